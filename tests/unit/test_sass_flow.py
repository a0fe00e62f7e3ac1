"""Which arguments decide whether an access runs: handwritten machine code, then NVRTC's."""

from __future__ import annotations

import functools
import re

import pytest
from gpushmoo.devices.machine_code.cubins import compile_cubin
from gpushmoo.devices.machine_code.flow import Instruction, deciding
from gpushmoo.devices.machine_code.sass import EntryCode, complaints, listing, parse
from gpushmoo.workloads.contract import Access

# Handwritten ---------------------------------------------------------------------------------

# A pointer, another one, two bytes and a number that share no word.
ARGUMENTS = (
    range(0x160, 0x168),
    range(0x168, 0x170),
    range(0x170, 0x171),
    range(0x171, 0x172),
    range(0x174, 0x178),
)
FETCH = "TEX.LL RZ, R40, R40, R44, UR40, 0x0, 2D, 0x1"
READ = "MOV R2, c[0x0][0x160]"
OF_R2 = ["ISETP.NE.AND P0, PT, R2, RZ, PT", "@P0 EXIT"]
OF_R3 = ["ISETP.NE.AND P0, PT, R3, RZ, PT", "@P0 EXIT"]
EARLY = [READ, *OF_R2]


def program(*lines: str) -> list[Instruction]:
    """Instructions, and labels that end in a colon."""
    code = [line for line in lines if not line.endswith(":")]
    labels: dict[str, int] = {}
    for index, line in enumerate(lines):
        if line.endswith(":"):
            labels[line[:-1]] = index - len(labels)
    found = []
    for line in code:
        guard, bare = line.split(" ", 1) if line.startswith("@") else ("", line)
        op, _, operands = bare.partition(" ")
        name, *flags = op.split(".")
        targets = tuple(labels[at] for at in re.findall(r"`\((\w+)\)", operands) if at in labels)
        found.append(Instruction(guard, name, tuple(flags), operands, targets))
    return found


def deciders(*lines: str) -> set[int]:
    """The arguments that decide about any fetch."""
    code = program(*lines)
    decided = deciding(code, ARGUMENTS)
    return {k for i, by in zip(code, decided, strict=True) if i.name == "TEX" for k in by}


DECIDED = {
    "exit": EARLY,
    "high half": [READ.replace("160", "164"), *OF_R2],
    "operand": ["ISETP.NE.AND P0, PT, RZ, c[0x0][0x160], PT", "@!P0 EXIT"],
    "exit by operand": [*EARLY[:2], "EXIT P0"],
    "exit by guard and operand": [*EARLY[:2], "@P1 EXIT P0"],
    "branch": [*EARLY[:2], "@!P0 BRA `(out)"],
    "branch by operand": [*EARLY[:2], "BRA P0, `(out)"],
    "branch by guard and operand": [*EARLY[:2], "@P1 BRA !P0, `(out)"],
    "trap": [*EARLY[:2], "@P0 BPT.TRAP 0x1"],
    "second of a wide load": ["LDC.64 R2, c[0x0][0x160]", *OF_R3],
    "copied": [READ, "MOV R3, R2", "MOV R2, RZ", *OF_R3],
    "kept by a guarded result": [READ, "@P3 MOV R2, RZ", *OF_R2],
    "kept on one way": [READ, "@P3 BRA `(over)", "MOV R2, RZ", "over:", *OF_R2],
    "kept beside a result": [READ.replace("R2", "R3"), "MOV R2, RZ", *OF_R3],
    "kept beside a narrowed": [READ.replace("R2", "R3"), "F2F.F32.F64 R2, R8", *OF_R3],
    "kept beside a shifted half": [
        READ.replace("R2", "R3"),
        "SHF.L.U64.HI R2, R8, 0x2, R9",
        *OF_R3,
    ],
    "selected": [*EARLY[:2], "SEL R2, R4, R5, P0", *OF_R2],
    "guarded result": [*EARLY[:2], "MOV R2, 0x1", "@P0 MOV R2, RZ", *OF_R2],
    "carried out": [READ, "IADD3 R4, P0, PT, R2, R6, RZ", "MOV R2, RZ", "@P0 EXIT"],
    "carried in": [*EARLY[:2], "IADD3.X R2, R4, R6, RZ, P0, !PT", *OF_R2],
    "logic": [READ, "LOP3.LUT P0, RZ, R2, 0x1, RZ, 0xc0, !PT", "@P0 EXIT"],
    "shuffled": [READ, "SHFL.IDX PT, R3, R2, RZ, 0x1f", *OF_R3],
    "voted": [*EARLY[:2], "VOTE.ANY R3, PT, P0", *OF_R3],
    "wide sum": ["LDC.64 R6, c[0x0][0x160]", "IMAD.WIDE R2, R8, R9, R6", *OF_R3],
    "packed predicates": [
        *EARLY[:2],
        "P2R R3, PR, RZ, 0x7f",
        "ISETP.NE.AND P0, PT, RZ, RZ, PT",
        *OF_R3,
    ],
    "unpacked predicates": [READ, "R2P PR, R2, 0x7f", "@P6 EXIT"],
    "predicates under a mask": [*EARLY[:2], "R2P PR, R4, 0x7e", "@P0 EXIT"],
    "second of a comparison": [READ, "ISETP.NE.AND P1, P0, R2, RZ, PT", "@P0 EXIT"],
    "half of a wide sum": ["MOV R7, c[0x0][0x164]", "IMAD.WIDE R2, R8, R9, R6", *OF_R3],
    "fetched": [READ, "TLD.LZ RZ, R2, R2, UR4, 1D", *OF_R3],
    "matrix product": [READ, "HMMA.1688.F32 R0, R2, R8, R12", *OF_R3],
    "uniform": [
        "ULDC.64 UR6, c[0x0][0x160]",
        "UISETP.NE.U32.AND UP0, UPT, UR7, URZ, UPT",
        "PLOP3.LUT P0, PT, P1, PT, UP0, 0xd5, 0x5d",
        "@!P0 EXIT",
    ],
    "local memory": [READ, "STL [R1], R2", "LDL R3, [R1+0x8]", *OF_R3],
    "shared memory": [READ, "STS [R2], R4", "LDS R3, [R5]", *OF_R3],
    "what it points at": [READ, "LDG.E R3, desc[UR4][R2.64]", *OF_R3],
    "test in a function": [READ, "CALL.REL.NOINC `(test)"],
    "result of a function": ["CALL.REL.NOINC `(read)", *OF_R3],
    "fetch in a function": [*EARLY, "CALL.REL.NOINC `(fetch)", "EXIT"],
}


@pytest.mark.parametrize("lines", DECIDED.values(), ids=DECIDED)
def test_a_test_before_the_fetch_decides_about_it(lines: list[str]) -> None:
    functions = [
        *("test:", *OF_R2, "RET.REL.NODEC R20 `(k)"),
        *("read:", "MOV R3, c[0x0][0x160]", "RET.REL.NODEC R20 `(k)"),
        *("fetch:", FETCH, "RET.REL.NODEC R20 `(k)"),
    ]
    assert deciders(*lines, FETCH, "out:", "EXIT", *functions) == {0}


UNDECIDED: dict[str, list[str]] = {
    "nothing": [],
    "computed but not asked": EARLY[:2],
    "overwritten": [READ, "MOV R2, RZ", *OF_R2],
    "overwritten by a pair": ["LDC.64 R2, c[0x0][0x160]", "IMAD.WIDE R2, R8, R9, R10", *OF_R3],
    "predicate": [*EARLY[:2], "ISETP.NE.AND P0, PT, R4, RZ, PT", "@P0 EXIT"],
    "never runs": [READ, "@!PT EXIT", "@!PT MOV R3, R2", *OF_R3],
    "size of the block": ["LDC R2, c[0x0][RZ]", *OF_R2],
    "another bank": ["MOV R2, c[0x3][0x160]", *OF_R2],
    "in front of the arguments": ["MOV R2, c[0x0][0x15c]", *OF_R2],
    "beside an address": [READ, "LDG.E.128 R4, [R0.64]", "MOV R3, R4", *OF_R3],
    "cleared pair": ["LDC.64 R2, c[0x0][0x160]", "CS2R R2, SRZ", *OF_R3],
    "shifted": [READ, "SHF.L.U64.HI R4, R2, 0x2, R8", "MOV R3, R5", *OF_R3],
    "label": [READ, "@P1 BRA `($k$R2)"],
    "LIMIT global": [READ, "STG.E [R6.64], R2", "LDG.E R3, [R6.64]", *OF_R3],
}


@pytest.mark.parametrize("lines", UNDECIDED.values(), ids=UNDECIDED)
def test_no_test_no_decision(lines: list[str]) -> None:
    assert deciders(*lines, FETCH, *EARLY, "EXIT") == set()


def test_the_guard_of_the_fetch_decides_about_it() -> None:
    assert deciders(*EARLY[:2], f"@!P0 {FETCH}", "EXIT") == {0}
    assert deciders(*EARLY[:2], f"@!P1 {FETCH}", "EXIT") == set()


@pytest.mark.parametrize(
    ("read", "arguments"),
    [
        ("LDC.64 R2, c[0x0][0x168]", {1}),
        ("LDC.128 R2, c[0x0][0x160]", {0, 1}),
        ("LDC.U8 R2, c[0x0][0x170]", {2}),
        ("LDC.S8 R2, c[0x0][0x171]", {3}),
        ("LDC R2, c[0x0][0x170]", {2, 3}),
        ("ULDC.64 UR2, c[0x0][0x170]", {2, 3, 4}),
        ("LDCU.128 UR2, c[0x0][0x168]", {1, 2, 3, 4}),
        ("IMAD R2, R3, R4, c[0x0][0x174]", {4}),
        ("IADD3 R2, -R3, -c[0x0][0x174], RZ", {4}),
        ("DADD R2, R4, c[0x0][0x170]", {2, 3, 4}),
        ("IMAD.WIDE R2, R4, 0x4, c[0x0][0x168]", {1}),
        # An index may reach any of them.
        ("LDC R2, c[0x0][R5+0x160]", {0, 1, 2, 3, 4}),
        ("LDC R2, c[0x0][RZ+0x168]", {1}),
    ],
)
def test_which_arguments_a_constant_operand_reads(read: str, arguments: set[int]) -> None:
    test = "ISETP.NE.AND P0, PT, R2, UR2, PT"
    assert deciders(read, test, "@P0 EXIT", FETCH, "EXIT") == arguments


def test_an_argument_that_moves_on_in_every_turn_of_a_loop_arrives() -> None:
    turn = ["loop:", *OF_R2, FETCH, "MOV R2, R3", "MOV R3, R4", READ.replace("R2", "R4")]
    assert deciders(*turn, "@P1 BRA `(loop)", "EXIT") == {0}
    assert deciders(*turn, "MOV R4, RZ", "@P1 BRA `(loop)", "EXIT") == set()


def test_a_loop_that_ends_with_the_test_is_decided_by_it() -> None:
    assert deciders("loop:", FETCH, *EARLY[:2], "@P0 BRA `(loop)", "EXIT") == {0}
    assert deciders("loop:", FETCH, "@P1 BRA `(loop)", *EARLY, "EXIT") == set()


# Real machine code ---------------------------------------------------------------------------

SOURCE = """
#define SUMS(NAME, ARGUMENTS, TYPE, LANES, START, FETCH, TEST)                            \\
    extern "C" __global__ void NAME ARGUMENTS                                             \\
    {                                                                                     \\
        START;                                                                            \\
        float sum = 0.0f;                                                                 \\
        const int row0 = blockIdx.y * blockDim.y + threadIdx.y;                           \\
        const int col0 = blockIdx.x * blockDim.x + threadIdx.x;                           \\
        for (int row = row0; row < height; row += blockDim.y * gridDim.y)                 \\
            for (int col = col0; col < width; col += blockDim.x * gridDim.x) {            \\
                FETCH {                                                                   \\
                    const TYPE v = tex2D<TYPE>(tex, AT(col, across), AT(row, down));      \\
                    sum += LANES;                                                         \\
                }                                                                         \\
            }                                                                             \\
        if (TEST row0 < height && col0 < width)                                           \\
            out[(size_t)row0 * width + col0] = sum;                                       \\
    }
#define TEX cudaTextureObject_t tex
#define OUT_FIRST (float *out, TEX, int width, int height)
#define OUT_SECOND (TEX, float *out, int width, int height)
#define AND_ENABLED (float *out, TEX, int width, int enabled, int height)
#define SCALED (float *out, TEX, int width, int height, float across, float down)
#define ALL_FOUR v.x + v.y + v.z + v.w
#define NOTHING

#define AT(place, scale) (float)(place)
SUMS(sums, OUT_FIRST, float, v, NOTHING, NOTHING, out != nullptr &&)
SUMS(sums_float4, OUT_FIRST, float4, ALL_FOUR, NOTHING, NOTHING, out != nullptr &&)
SUMS(second, OUT_SECOND, float, v, NOTHING, NOTHING, out != nullptr &&)
SUMS(early, OUT_FIRST, float, v, if (!out) return, NOTHING, NOTHING)
SUMS(early_float4, OUT_FIRST, float4, ALL_FOUR, if (!out) return, NOTHING, NOTHING)
SUMS(inside, OUT_FIRST, float, v, NOTHING, if (out), out != nullptr &&)
SUMS(early_second, OUT_SECOND, float, v, if (!out) return, NOTHING, NOTHING)
SUMS(enabled, AND_ENABLED, float, v, if (!enabled) return, NOTHING, out != nullptr &&)
SUMS(early_trap, OUT_FIRST, float, v, if (!out) __trap(), NOTHING, NOTHING)
#undef AT
#define AT(place, scale) ((place) + 0.5f) * scale
SUMS(normalised, SCALED, float, v, NOTHING, NOTHING, out != nullptr &&)
SUMS(early_normalised, SCALED, float, v, if (!out) return, NOTHING, NOTHING)

// Bits of the pointer, kept in a local array, end the loop.
extern "C" __global__ void kept(float *out, TEX, const int at, const int width)
{
    bool asked[64];
    for (int i = 0; i < 64; ++i)
        asked[i] = (size_t)out >> i & 1;
    float sum = 0.0f;
    for (int col = 0; col < width && asked[col + at & 63]; ++col)
        sum += tex2D<float>(tex, (float)col, 0.0f);
    out[0] = sum;
}
"""


@functools.cache
def text(arch: str) -> str:
    return listing(compile_cubin(SOURCE, "tests", [], arch).code)


@pytest.fixture(params=["sm_75", "sm_90", "sm_100"])
def codes(request: pytest.FixtureRequest) -> dict[str, EntryCode]:
    return parse(text(request.param))


@pytest.mark.parametrize(
    ("entry", "argument", "width", "asks"),
    [
        ("sums", 0, 4, False),
        ("sums", 1, 4, False),
        ("sums_float4", 0, 16, False),
        ("normalised", 0, 4, False),
        ("second", 1, 4, False),
        ("early_second", 0, 4, False),
        ("enabled", 0, 4, False),
        ("early", 0, 4, True),
        ("early_float4", 0, 16, True),
        ("early_normalised", 0, 4, True),
        ("early_trap", 0, 4, True),
        ("early_second", 1, 4, True),
        ("inside", 0, 4, True),
        ("enabled", 3, 4, True),
        ("kept", 0, 4, True),
        ("sums", 2, 4, True),
        ("sums", 3, 4, True),
    ],
)
def test_which_fetches_ask_first(
    codes: dict[str, EntryCode], entry: str, argument: int, width: int, asks: bool
) -> None:
    want = Access("load", "texture", width, in_loop=True, before_test_of=argument)
    found = complaints(codes[entry], [want])
    assert len(found) == asks
    said = f"before any test of argument {argument}, but it comes after a test"
    assert all(said in sentence for sentence in found)
    assert complaints(codes[entry], [Access("load", "texture", width, in_loop=True)]) == []


def test_the_store_does_ask(codes: dict[str, EntryCode]) -> None:
    (sentence,) = complaints(codes["sums"], [Access("store", "global", 4, before_test_of=0)])
    assert "but it comes after a test of argument 0;" in sentence


def test_arguments_of_every_size_are_found(codes: dict[str, EntryCode]) -> None:
    assert {codes[entry].arguments for entry in ("sums", "early", "second")} == {4}
    assert codes["enabled"].arguments == 5
    assert codes["normalised"].arguments == 6


@pytest.mark.parametrize(
    ("attribute", "where"), [("EIATTR_PARAM_CBANK", 0), ("EIATTR_KPARAM_INFO", 1)]
)
def test_text_that_does_not_tell_all_arguments_makes_a_complaint(
    attribute: str, where: int
) -> None:
    parts = text("sm_90").split(attribute)
    changed = [attribute.join(parts[: where + 1]), attribute.join(parts[where + 1 :])]
    codes = parse("EIATTR_UNKNOWN".join(changed))
    (untold,) = [code for code in codes.values() if not code.arguments]
    (sentence,) = complaints(untold, [Access("load", "texture", before_test_of=0)])
    assert "but nothing tells where argument 0 is tested;" in sentence
