"""What a thread runs of a kernel: handwritten machine code by hand, then what NVRTC makes."""

from dataclasses import replace

import pytest
from conftest import ROOT
from gpushmoo.core.code_path import CodePath, PathPart
from gpushmoo.devices.machine_code import sass
from gpushmoo.devices.machine_code.control_flow import touched_registers
from gpushmoo.workloads.loader import load_kernel
from hypothesis import strategies as st
from test_cuda_compiles import code_of as codes_in
from test_cuda_compiles import compiled, options_of
from test_sass import code_of, listing

NOTHING = PathPart()


def load(register: int) -> str:
    return f"LDG.E R{register}, desc[UR4][R40.64]"


def store(register: int) -> str:
    return f"STG.E desc[UR4][R42.64], R{register}"


def path_of(*lines: str) -> CodePath:
    path = code_of(*lines).path
    assert path is not None
    return path


def part(instructions: int, loads: int, stores: int, waits: int, width: int = 4) -> PathPart:
    """A part whose accesses are all of `width` bytes."""
    return PathPart(instructions, loads, stores, width * bool(loads), width * bool(stores), waits)


TOGETHER = [load(0), load(1), store(0), store(1)]
BY_TURNS = [load(0), store(0), load(1), store(1)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(TOGETHER, part(5, 2, 2, 1), id="together"),
        pytest.param(BY_TURNS, part(5, 2, 2, 2), id="by turns"),
        pytest.param([store(0)], part(2, 0, 1, 0), id="a store waits for nothing"),
        pytest.param([load(0)], part(2, 1, 0, 1), id="the end waits for what is pending"),
        # What is written over was not read: nobody waits for it here.
        pytest.param([load(0), load(0), store(0)], part(4, 2, 1, 1), id="written over"),
        # A load whose address another load gave: one after the other.
        pytest.param(
            ["LDG.E.64 R40, [R38.64]", "LDG.E.64 R2, [R40.64]"],
            part(3, 2, 0, 2, width=8),
            id="by address",
        ),
        # The high half of an address, which is not named.
        pytest.param(
            ["LDG.E R41, [R38.64]", "LDG.E R2, [R40.64]"], part(3, 2, 0, 2), id="high half"
        ),
        # Neither shared nor local memory is beyond the multiprocessor.
        pytest.param(
            ["LDS R2, [R4]", "STL [R1], R2"],
            replace(part(3, 0, 0, 0), shared_waits=1),
            id="shared and local",
        ),
    ],
)
def test_a_way_without_a_loop_runs_once(lines: list[str], expected: PathPart) -> None:
    assert path_of(*lines, "EXIT") == CodePath(expected, NOTHING)


def test_widths_accesses_that_never_run_and_no_code() -> None:
    lines = [load(0), "LDG.E.128 R4, [R40.64]", "STG.E.64 [R42.64], R4", "STG.E.U8 [R42.64], R0"]
    assert path_of(*lines, "EXIT").once == PathPart(5, 2, 2, 16, 8, 1)
    assert path_of("@!PT " + load(0), "EXIT").once.accesses == 0
    assert path_of() == CodePath(part(1, 0, 0, 0), NOTHING)  # the trap at the end of each listing


TURN = [load(0), store(0), "ISETP.LT.AND P0, PT, R9, R8, PT"]


def test_a_loop_is_the_turn_and_all_else_runs_once() -> None:
    code = ["MOV R9, RZ", ".L_a:", *TURN, "@P0 BRA `(.L_a)", store(1), "EXIT"]
    assert path_of(*code) == CodePath(part(3, 0, 1, 0), part(4, 1, 1, 1))
    # Four elements a turn; then those that are left, in a loop of their own.
    four = [*(load(k) for k in range(4)), *(store(k) for k in range(4))]
    code = [".L_a:", *four, "@P0 BRA `(.L_a)", "@!P1 EXIT", ".L_b:", *TURN, "@P0 BRA `(.L_b)"]
    assert path_of(*code, "EXIT") == CodePath(part(6, 1, 1, 1), part(9, 4, 4, 1))
    code = [load(0), ".L_a:", "IADD3 R9, R9, 0x1, RZ", "@P0 BRA `(.L_a)", store(0), "EXIT"]
    assert path_of(*code) == CodePath(part(5, 1, 1, 1), NOTHING)


@pytest.mark.parametrize("outer", [["MOV R9, RZ"], [load(1)]], ids=["bare", "loads"])
def test_of_nested_loops_all_accesses_are_made_again_and_again(outer: list[str]) -> None:
    code = [".L_a:", *outer, ".L_b:", *TURN, "@P0 BRA `(.L_b)", "@P1 BRA `(.L_a)", "EXIT"]
    path = path_of(*code)
    assert path.once.accesses == 0
    assert (path.turn.loads, path.turn.stores, path.turn.waits) == (1 + outer.count(load(1)), 1, 1)


AGAIN = "@P0 BRA `(.L_a)"
BARRIER = "BAR.SYNC.DEFER_BLOCKING 0x0"


def test_a_loop_that_loads_and_a_later_one_that_stores_are_one_turn() -> None:
    first = [".L_a:", load(0), "STS [R4], R0", "@P0 BRA `(.L_a)"]
    second = [".L_b:", "LDS R1, [R5]", store(1), "@P0 BRA `(.L_b)"]
    path = path_of(*first, BARRIER, *second, "EXIT")
    assert path.once == replace(part(2, 0, 0, 0), barriers=1)
    assert path.turn == replace(part(6, 1, 1, 1), shared_waits=1)
    # A loop around both is run as often as they are left.
    around = path_of(".L_o:", "MOV R9, RZ", *first, *second, "@P1 BRA `(.L_o)", "EXIT")
    assert (around.turn.loads, around.turn.stores) == (1, 1)
    nested = path_of(".L_o:", "MOV R9, RZ", *first, "@P1 BRA `(.L_o)", *second, "EXIT")
    assert (nested.turn.instructions, nested.around.instructions) == (6, 2)
    assert nested.once.instructions == 3


def test_a_loop_with_a_barrier_and_no_access_is_a_step() -> None:
    sums = [
        "LDS R2, [R4]",
        "FADD R0, R0, R2",
        "STS [R4], R0",
        "ISETP.GT.U32.AND P0, PT, R9, 0x1, PT",
    ]
    loop = ["@!P1 BRA `(.L_end)", ".L_a:", BARRIER, *sums, AGAIN, ".L_end:"]
    path = path_of(load(0), *loop, store(0), "EXIT")
    assert path.once == part(4, 1, 1, 1)
    assert path.step == replace(part(6, 0, 0, 0), barriers=1, shared_waits=1)


def test_of_opposite_predicates_a_thread_runs_one() -> None:
    more, fewer = [f"@!P0 {load(k)}" for k in (0, 1)], [f"@P0 {load(0)}"]
    assert path_of(*more, *fewer, store(0), "EXIT").once == part(4, 2, 1, 1)
    # A predicate that is written in between is another one.
    again = "ISETP.LT.AND P0, PT, R9, R8, PT"
    assert path_of(*more, again, *fewer, store(0), "EXIT").once.loads == 3
    # The tile of a block contains what most of its threads need.
    tile = path_of(f"@P0 {load(0)}", "@!P0 LDS R0, [R4]", store(0), "EXIT")
    assert tile.once == replace(part(3, 0, 1, 0), shared_waits=1, edge_waits=1)


def test_the_way_with_the_most_accesses_is_taken() -> None:
    edge = [load(0), store(0), "EXIT"]
    inside = [".L_in:", *TOGETHER, "EXIT"]
    assert path_of("@!P0 BRA `(.L_in)", *edge, *inside) == CodePath(part(6, 2, 2, 1), NOTHING)
    long = ["MOV R3, RZ", "MOV R4, RZ", load(0), "EXIT"]
    assert path_of("@P0 BRA `(.L_b)", *long, ".L_b:", load(1), "EXIT").once == part(3, 1, 0, 1)
    moved = [".L_far:", load(1), store(1), "BRA `(.L_back)"]
    code = ["@P0 BRA `(.L_far)", ".L_back:", load(0), store(0), "EXIT", *moved]
    assert path_of(*code) == CodePath(part(7, 2, 2, 2), NOTHING)


@pytest.mark.parametrize(
    ("line", "reads", "writes"),
    [
        ("LDG.E.64 R2, desc[UR4][R8.64]", "R8 R9 UR4", "R2 R3"),
        ("LDG.E.128 R4, [R8.64]", "R8 R9", "R4 R5 R6 R7"),
        ("STG.E [R8.64], R2", "R2 R8 R9", ""),
        ("STG.E.64 [R8.64], R2", "R2 R3 R8 R9", ""),
        ("@!P3 MOV R1, R2", "P3 R2", "R1"),
        ("ISETP.NE.AND P0, PT, R2, RZ, PT", "R2", "P0"),
        ("@!PT LDG.E R2, [R8.64]", "", ""),
        ("IADD3 R4, P0, PT, R2, R6, RZ", "R2 R6", "R4 P0"),
        ("IADD3.X R2, R4, R6, RZ, P0, !PT", "R4 R6 P0", "R2"),
        ("LOP3.LUT P0, RZ, R2, 0x1, RZ, 0xc0, !PT", "R2", "P0"),
        ("SHFL.IDX PT, R3, R2, RZ, 0x1f", "R2", "R3"),
        ("VOTE.ANY R3, PT, P0", "P0", "R3"),
        ("IMAD.WIDE R2, R8, R9, R6", "R8 R9 R6 R7", "R2 R3"),
        ("SHF.L.U64.HI R4, R2, 0x2, R8", "R2 R8", "R4"),
        ("P2R R3, PR, RZ, 0x7f", "P0 P6 P7", "R3"),
        ("R2P PR, R2, 0x7f", "R2", "P0 P1 P2 P3 P4 P5 P6 P7"),
        ("TLD.LZ RZ, R2, R2, UR4, 1D", "R2 R3", "R2 R3"),
        ("TEX.LL R0, R4, R4, R8, UR4, 2D", "R4 R5 R8", "R0 R1 R4 R5"),
        ("HMMA.1688.F32 R0, R2, R8, R12", "R2 R3 R8 R12", "R0 R1 R2 R3"),
        ("LDS R3, [R5]", "R5 shared", "R3"),
        ("STS [R2], R4", "R2 R4", "shared"),
        ("UISETP.NE.U32.AND UP0, UPT, UR7, URZ, UPT", "UR7", "UP0"),
        ("CALL.REL.NOINC `($k$R2)", "", ""),
        ("EXIT", "", ""),
    ],
)
def test_registers_that_an_instruction_reads_and_writes(line: str, reads: str, writes: str) -> None:
    instruction = sass._entries(listing([line]))["k"][0]
    read, written = touched_registers(instruction)
    assert set(reads.split()) <= read  # more may count as read: a doubt makes a wait
    assert written == set(writes.split())
    assert not read & (written - set(reads.split()))


PARTS = st.builds(PathPart, *[st.integers(0, 2**20)] * 6)


def compiled_path(kernel: str, variant: str, entry: str) -> CodePath:
    folder = load_kernel(ROOT / "kernels" / kernel)
    codes = codes_in(compiled(folder.path, options_of(folder, "float", variant), "sm_90"))
    path = codes[entry].path
    assert path is not None
    return path


@pytest.mark.parametrize(("variant", "waits"), [("published", 4), ("distinct", 1)])
def test_pointers_that_may_overlap_make_threads_wait(variant: str, waits: int) -> None:
    path = compiled_path("copy2d_document", variant, "copy_rows_8")
    assert (path.once.loads, path.once.stores, path.once.waits) == (4, 4, waits)
    assert path.turn == NOTHING


@pytest.mark.parametrize(
    ("kernel", "variant", "entry", "loads", "stores", "waits"),
    [
        ("block_eq_partition", "exact", "copy_exact", 1, 1, 1),
        ("block_eq_partition", "reciprocal", "copy_reciprocal", 1, 1, 1),
        ("global_load", "plain", "load_8", 8, 0, 1),
        ("global_copy", "plain", "copy_8", 8, 8, 1),
        ("global_store", "plain", "store_8", 0, 8, 0),
        ("transpose", "tile", "transpose_tile", 1, 1, 1),
        ("transpose", "naive", "transpose_naive", 1, 1, 1),
    ],
)
def test_a_turn_of_a_compiled_loop(
    kernel: str, variant: str, entry: str, loads: int, stores: int, waits: int
) -> None:
    path = compiled_path(kernel, variant, entry)
    assert (path.turn.loads, path.turn.stores, path.turn.waits) == (loads, stores, waits)
    assert path.once.accesses == 0
