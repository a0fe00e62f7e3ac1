"""The check of the machine code: what it reads, and that it can fail; no device needed."""

from __future__ import annotations

import functools
import importlib.util
import shutil
from dataclasses import dataclass

import pytest
from gpushmoo.core.errors import DeviceError, NoDeviceError
from gpushmoo.devices.machine_code import sass
from gpushmoo.devices.machine_code.cubins import Unit, compile_cubin
from gpushmoo.devices.machine_code.sass import AccessCount, EntryCode, complaints, parse
from gpushmoo.workloads.contract import Access
from hypothesis import given
from hypothesis import strategies as st

ARCHS = ["sm_75", "sm_90", "sm_100"]


REGISTERS = """
	//----- nvinfo : EIATTR_REGCOUNT
	.align		4
        /*0000*/ 	.byte	0x04, 0x2f
        /*0002*/ 	.short	(.L_1 - .L_0)
	.align		4
.L_0:
        /*0004*/ 	.word	index@({entry})
        /*0008*/ 	.word	0x0000002a
"""
SECTION = """
//--------------------- .text.{entry}             --------------------------
	.section	.text.{entry},"ax",@progbits
	.sectioninfo	@"SHI_REGISTERS=42"
	.align	128
        .type           {entry},@function
        .other          {entry},@"{kind} STV_DEFAULT"
{entry}:
.text.{entry}:
{code}
"""
TRAP = [".L_trap:", "BRA `(.L_trap)", "NOP"]


def listing(code: list[str], entry: str = "k", kind: str = "STO_CUDA_ENTRY") -> str:
    """nvdisasm's text of a kernel: instructions, and labels that end in a colon."""
    lines, place = [], 0
    for line in [*code, *TRAP]:
        if line.endswith(":"):
            lines.append(line)
            continue
        guard, bare = line.split(" ", 1) if line.startswith("@") else ("", line)
        lines.append(f"        /*{place:04x}*/             {guard:>6} {bare} ;")
        place += 16
    body = SECTION.format(entry=entry, kind=kind, code="\n".join(lines))
    return REGISTERS.format(entry=entry) + body


def code_of(*lines: str) -> EntryCode:
    return parse(listing(list(lines)))["k"]


@pytest.mark.parametrize(
    ("instruction", "space", "kind", "width"),
    [
        ("LDG.E.SYS R2, [R4]", "global", "load", 4),
        ("LDG.E.64.CONSTANT.SYS R8, [UR6+0xb00]", "global", "load", 8),
        ("LDG.E.LTC128B R2, desc[UR4][R2.64]", "global", "load", 4),
        ("LDG.E.128 R8, desc[UR4][R16.64+0x30]", "global", "load", 16),
        ("LDG.E.ENL2.256 R12, R8, desc[UR4][R2.64]", "global", "load", 32),
        ("LDG.E.S16 R0, desc[UR4][R18.64]", "global", "load", 2),
        ("LDGSTS.E.BYPASS.128 [R7], desc[UR6][R2.64]", "global", "load", 16),
        ("STG.E.U8 desc[UR4][R20.64+0x63], R17", "global", "store", 1),
        ("STG.E.64.STRONG.SYS desc[UR4][R10.64+0x1f38], R4", "global", "store", 8),
        ("LD.E R4, desc[UR4][R2.64+0x4]", "generic", "load", 4),
        ("ST.E.SYS [R2], R5", "generic", "store", 4),
        ("UTMALDG.2D [UR8], [UR4]", "global", "load", 0),
        ("UTMASTG.2D [UR8], [UR4]", "global", "store", 0),
        ("UBLKCP.S.G [UR6], [UR4], UR8", "global", "load", 0),
        ("UBLKCP.G.S [UR4], [UR8], UR6", "global", "store", 0),
        ("UBLKCP.S.S [UR8], [UR6], UR7", "shared", "load", 0),
        ("LDS.U.128 R4, [R0.X16]", "shared", "load", 16),
        ("STS [R7.X4], R0", "shared", "store", 4),
        ("TEX.SCR.LL RZ, R5, R4, R6, 0x0, 0x58, 2D, 0x1", "texture", "load", 4),
        ("TEX.LL P0, RZ, R21, R28, R3, UR4, 0x0, 2D, 0x3", "texture", "load", 8),
        ("TEX.LL R0, R4, R4, R0, UR4, 2D, 0xb", "texture", "load", 12),
        ("TLD.LZ R6, R4, R0, UR4, 1D", "texture", "load", 16),
        ("TLD4.R R6, R4, R4, UR4, 2D", "texture", "load", 16),
        ("TXD RZ, R0, R14, R20, UR4, 0x0, ARRAY_2D, 0x1", "texture", "load", 4),
        ("SULD.D.BA.2D.STRONG.CTA.TRAP R0, [R2], 0x0, 0x58", "surface", "load", 4),
        ("SULD.D.BA.2D.64.STRONG.SM.TRAP R6, [R4], UR4, 0x0", "surface", "load", 8),
        ("SUST.D.BA.2D.U16.STRONG.SM.TRAP [R2], R0, UR4", "surface", "store", 2),
        ("SUST.D.BA.2D.128.STRONG.SM.TRAP [R2], R4, UR4", "surface", "store", 16),
    ],
)
@pytest.mark.parametrize("guard", ["", "@!P0 ", "@UP1 "])
def test_accesses(guard: str, instruction: str, space: str, kind: str, width: int) -> None:
    code = code_of(guard + instruction, "EXIT")
    assert code.accesses == (AccessCount(space, kind, width, count=1, in_loop=0),)


@pytest.mark.parametrize(
    "instruction",
    [
        "LDC.64 R2, c[0x0][0x218]",
        "RED.E.ADD.F32.FTZ.RN.STRONG.GPU [UR4], R2",
        "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R9",
        "ATOMG.E.EXCH.STRONG.GPU PT, R0, desc[UR4][R4.64+0x1c], R13",
        "LDGDEPBAR",
        "UTMAREDG.2D.ADD [UR8], [UR4]",
        "UBLKRED.G.S.ADD.F32.RN [UR4], [UR8], UR6",
        "UBLKPF.L2 [UR4], UR7",
        "@!PT LDS RZ, [RZ]",
    ],
)
def test_what_is_no_load_and_no_store(instruction: str) -> None:
    assert code_of(instruction, "EXIT").accesses == ()


def test_a_copy_of_a_tile_is_as_wide_as_is_wanted() -> None:
    code = code_of("UTMALDG.2D [UR8], [UR4]", "EXIT")
    assert complaints(code, [Access("load", "global", 16)]) == []
    (said,) = complaints(code, [Access("store")])
    assert said.endswith("the machine code holds 1 global load of a tile (0 in a loop).")


def test_spills_stand_apart_only_kernels_are_listed_and_nothing_is_guessed() -> None:
    code = code_of("STL.64 [R1], R2", "STL [R1+0x8], R2", "LDL.LU R2, [R1]", "EXIT")
    told = EntryCode("k", registers=42, spill_loads=1, spill_stores=2, accesses=(), path=code.path)
    assert code == told
    load, other = ["LDG.E R2, [R2]", "EXIT"], ["LDG.E.64 R2, [R2]", "RET.REL.NODEC R2 `(f)"]
    text = listing(load, "a") + listing(other, "f", kind="STO_CUDA_FUNC") + listing(load, "b")
    codes = parse(text)
    assert set(codes) == {"a", "b"}
    for code in codes.values():
        assert [(a.width, a.count) for a in code.accesses] == [(4, 1)]
    text = listing(["EXIT"]).replace("EIATTR_REGCOUNT", "EIATTR_UNKNOWN")
    with pytest.raises(DeviceError, match="no registers of kernel 'k'"):
        parse(text)


LOAD = "LDG.E R2, [R2]"


def in_loop(*lines: str) -> tuple[int, int]:
    """How many loads there are and how many of them are in a loop."""
    (access,) = code_of(*lines).accesses
    return access.count, access.in_loop


@pytest.mark.parametrize("branch", ["@P0 BRA", "BRA P0,", "BRA.DIV", "BRA.DIV ~URZ,"])
def test_a_block_behind_the_exit_that_a_loop_visits_is_in_the_loop(branch: str) -> None:
    head = [".L_head:", f"{branch} `(.L_cold)", LOAD, ".L_back:", "@P0 BRA `(.L_head)", "EXIT"]
    assert in_loop(LOAD, *head, ".L_cold:", LOAD, "BRA `(.L_back)") == (3, 2)


def test_a_branch_by_table_closes_a_loop_and_a_call_reaches_one_function() -> None:
    table = 'BRX R2 -0x170        (*"BRANCH_TARGETS .L_head,.L_out"*)'
    assert in_loop(".L_head:", LOAD, table, ".L_out:", LOAD, "EXIT") == (2, 1)
    loop = [".L_head:", "CALL.REL.NOINC `($k$f)", "@P0 BRA `(.L_head)", "EXIT"]
    returns = "RET.REL.NODEC R4 `(k)"
    assert in_loop(*loop, "$k$f:", LOAD, returns, "$k$g:", LOAD, returns) == (2, 1)


@pytest.mark.parametrize(("called_in_loop", "expected"), [(True, 1), (False, 0)])
def test_a_function_called_in_a_loop_is_in_the_loop(called_in_loop: bool, expected: int) -> None:
    call = "CALL.REL.NOINC `($k$_Z1fPf)"
    inside, after = (call, "NOP") if called_in_loop else ("NOP", call)
    loop = [".L_head:", inside, "@P0 BRA `(.L_head)", after, "EXIT"]
    assert in_loop(*loop, "$k$_Z1fPf:", LOAD, "RET.REL.NODEC R4 `(k)") == (1, expected)


@dataclass(frozen=True)
class Block:
    """A source construct: what is in it, and whether it is repeated or moved out of line."""

    form: str  # "loop", "while", "if", "outlined"
    body: tuple[Block | None, ...]  # None is a load


PROGRAMS = st.recursive(
    st.none(),
    lambda part: st.builds(
        Block,
        st.sampled_from(["loop", "while", "if", "outlined"]),
        st.lists(part, max_size=3).map(tuple),
    ),
    max_leaves=12,
)


class Assembler:
    """Lays programs out as compilers do, and counts the loads that are in loops."""

    def __init__(self) -> None:
        self.cold: list[str] = []
        self.labels = self.loads = self.looped = 0

    def lines(self, parts: tuple[Block | None, ...], depth: int) -> list[str]:
        found: list[str] = []
        for part in parts:
            if part is None:
                self.loads += 1
                self.looped += depth > 0
                found.append(LOAD)
            else:
                found += self.block(part, depth + (part.form in {"loop", "while"}))
        return found

    def block(self, block: Block, depth: int) -> list[str]:
        self.labels += 1
        start, end = f".L_s{self.labels}", f".L_e{self.labels}"
        body = self.lines(block.body, depth)
        if block.form == "loop":
            return [f"{start}:", *body, f"@P0 BRA `({start})", f"{end}:"]
        if block.form == "while":
            return [f"{start}:", f"@!P0 BRA `({end})", *body, f"BRA `({start})", f"{end}:"]
        if block.form == "if":
            return [f"BRA.U !UP0, `({end})", *body, f"{end}:"]
        self.cold += [f"{start}:", *body, f"BRA `({end})"]
        return [f"@P1 BRA `({start})", f"{end}:"]


@given(st.lists(PROGRAMS, min_size=1, max_size=4).map(tuple))
def test_loops_are_found_in_every_layout(program: tuple[Block | None, ...]) -> None:
    assembler = Assembler()
    lines = assembler.lines((*program, None), 0)
    assert in_loop(*lines, "EXIT", *assembler.cold) == (assembler.loads, assembler.looped)


def fake(*accesses: AccessCount) -> EntryCode:
    return EntryCode("k", 8, 0, 0, accesses)


def test_complaints_name_entry_expectation_and_what_the_code_holds() -> None:
    code = fake(AccessCount("global", "load", 4, 3, 1), AccessCount("global", "store", 16, 1, 0))
    want = Access("load", "global", 16, at_least=2, in_loop=True)
    assert complaints(code, [want, Access("store", "global", 16)]) == [
        "Kernel 'k': expected at least 2 global loads of 16 bytes inside a loop, but it was "
        "narrowed to 4 bytes; the machine code holds 3 global loads of 4 bytes (1 in a loop), "
        "1 global store of 16 bytes (0 in a loop)."
    ]
    code = fake(AccessCount("generic", "load", 4, 1, 0))
    assert complaints(code, [Access("load"), Access("load", "global", 4)]) == []
    assert len(complaints(code, [Access("load", "texture", 4)])) == 1


SOURCE = """
struct Packed { float x, y, z, w; };
#define KERNEL extern "C" __global__ void
#define AT (blockIdx.x * blockDim.x + threadIdx.x)

KERNEL vector_copy(float4 *dst, const float4 *src) { dst[AT] = src[AT]; }
KERNEL packed_copy(Packed *dst, const Packed *src) { dst[AT] = src[AT]; }
KERNEL dead_load(float *dst, const float *src) { float unused = src[AT]; dst[AT] = 1.0f; }

KERNEL sum(float *dst, const float *__restrict__ src, int n)
{
    float all = 0.0f;
    for (int i = 0; i < n; ++i)
        all += src[i * blockDim.x + threadIdx.x];
    dst[AT] = all;
}

KERNEL same_address(float *dst, const float *__restrict__ src, int n)
{
    float all = 0.0f;
    for (int i = 0; i < n; ++i)
        all = all * all + src[threadIdx.x];
    dst[AT] = all;
}

// The second document's trick: `never` is null at run time, which the compiler cannot know.
#define FETCHES(NAME, STORE)                                              \\
    KERNEL NAME(unsigned long long image, float *never, int rows)         \\
    {                                                                     \\
        float all = 0.0f;                                                 \\
        for (int y = 0; y < rows; ++y)                                    \\
            all += tex2D<float>(image, AT + 0.5f, y + 0.5f);              \\
        if (never)                                                        \\
            STORE;                                                        \\
    }
FETCHES(fetch_sum, never[AT] = all)
FETCHES(fetch_nothing, (void)all)

KERNEL fetch_float2(unsigned long long t, float2 *dst) { dst[AT] = tex2D<float2>(t, AT, 0.5f); }
KERNEL fetch_float4(unsigned long long t, float4 *dst) { dst[AT] = tex2D<float4>(t, AT, 0.5f); }
KERNEL fetch_one_of_4(unsigned long long t, float *dst) { dst[AT] = tex2D<float4>(t, AT, 0.5f).y; }

#define SURFACE_COPY(TYPE)                                                             \\
    KERNEL surface_##TYPE(unsigned long long src, unsigned long long dst)              \\
    {                                                                                  \\
        TYPE value;                                                                    \\
        surf2Dread(&value, src, AT * sizeof(TYPE), blockIdx.y);                        \\
        surf2Dwrite(value, dst, AT * sizeof(TYPE), blockIdx.y);                        \\
    }
SURFACE_COPY(float)
SURFACE_COPY(float2)
SURFACE_COPY(float4)

// Holds 64 values at once, in fewer registers.
KERNEL __launch_bounds__(1024, BLOCKS) transpose(float *array)
{
    float held[64];
    for (int i = 0; i < 64; ++i)
        held[i] = array[i * blockDim.x + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < 64; ++i)
        array[threadIdx.x * 64 + i] = held[i];
}

KERNEL counts(float *dst, int *seen) { atomicAdd(seen, 1); dst[0] = atomicExch(seen + 1, 2); }
"""
# Blocks of 1024 threads a multiprocessor: two leave 32 registers a thread, one leaves 64.
SPILLING = {"sm_75": 1, "sm_90": 2, "sm_100": 2}


@functools.cache
def compiled(arch: str) -> dict[str, EntryCode]:
    options = [f"-DBLOCKS={SPILLING[arch]}"]
    return parse(sass.listing(compile_cubin(Unit(SOURCE, "tests", options), arch).code))


@pytest.fixture(params=ARCHS)
def codes(request: pytest.FixtureRequest) -> dict[str, EntryCode]:
    return compiled(request.param)


@pytest.mark.parametrize(
    ("entry", "expected", "fault"),
    [
        ("vector_copy", [Access("load", "global", 16), Access("store", "global", 16)], None),
        ("packed_copy", [Access(k, "global", 4, at_least=4) for k in ("load", "store")], None),
        ("sum", [Access("load", "global", 4, in_loop=True), Access("store", "global", 4)], None),
        ("same_address", [Access("load", "global", 4)], None),
        ("fetch_sum", [Access("load", "texture", 4, in_loop=True)], None),
        ("fetch_sum", [Access("store", "global", 4)], None),
        ("fetch_float2", [Access("load", "texture", 8)], None),
        ("fetch_float4", [Access("load", "texture", 16)], None),
        ("surface_float", [Access(k, "surface", 4) for k in ("load", "store")], None),
        ("surface_float2", [Access(k, "surface", 8) for k in ("load", "store")], None),
        ("surface_float4", [Access(k, "surface", 16) for k in ("load", "store")], None),
        ("dead_load", [Access("load", "global", 4)], "optimised away"),
        ("fetch_nothing", [Access("load", "texture", 4, in_loop=True)], "optimised away"),
        ("same_address", [Access("load", "global", 4, in_loop=True)], "hoisted out of its loop"),
        ("packed_copy", [Access("load", "global", 16)], "narrowed to 4 bytes"),
        ("packed_copy", [Access("store", "global", 16)], "narrowed to 4 bytes"),
        ("fetch_one_of_4", [Access("load", "texture", 16)], "narrowed to 4 bytes"),
        ("vector_copy", [Access("load", "global", 16, at_least=4)], "too few (1)"),
        ("vector_copy", [Access("load", "global", 4)], "changed to 16 bytes"),
        ("sum", [Access("store", "global", 4, in_loop=True)], "hoisted out of its loop"),
        ("counts", [Access("load")], "optimised away"),
    ],
)
def test_which_machine_code_deserves_a_complaint(
    codes: dict[str, EntryCode], entry: str, expected: list[Access], fault: str | None
) -> None:
    found = complaints(codes[entry], expected)
    assert len(found) == (fault is not None)
    assert all(f"'{entry}'" in sentence and str(fault) in sentence for sentence in found)


@pytest.mark.parametrize("arch", ARCHS)
def test_spills_show(arch: str) -> None:
    codes = compiled(arch)
    assert {entry for entry, code in codes.items() if code.spill_loads} == {"transpose"}
    assert {entry for entry, code in codes.items() if code.spill_stores} == {"transpose"}
    assert codes["transpose"].registers == 64 / SPILLING[arch]


def test_a_missing_nvdisasm_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match=r"nvdisasm cannot read .*; install .*\.$"):
        sass.listing(b"no cubin")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(NoDeviceError, match="install the package nvidia-cuda-nvdisasm"):
        sass.listing(b"")


def test_nvdisasm_of_a_toolkit_serves_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tool = tmp_path_factory.mktemp("bin") / "nvdisasm"
    tool.write_text("#!/bin/sh\necho found on the path\n")
    tool.chmod(0o755)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    assert sass.listing(b"") == "found on the path\n"
