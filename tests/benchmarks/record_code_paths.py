"""Records the ways through the machine code of kernels that were measured before shards told them.

    export PYTHONPATH=workflow/scripts:kernels
    python tests/benchmarks/record_code_paths.py --record reports/reference/nvidia-h200 \
        --revision 81b2bda^ --index-bits 64 --out reports/reference/nvidia-h200/code_paths.json

Compiles each version that the record's cells need from the sources of that git revision, with the
NVRTC at hand; what does not compile is left out and named. The compilers of 13.0 and 13.5 were seen
to make the same paths of the recorded kernels; the numbers of accesses agree with what the shards
hold. Needs no device.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import BuildError
from gpushmoo.core.space import INDEX_BITS
from gpushmoo.devices.machine_code.nvrtc import build_options, compile_cubin, nvrtc_version
from gpushmoo.devices.machine_code.sass import listing, parse
from gpushmoo.storage.wholefile import write_json

# Macros that `build_options` makes itself.
TYPES = ("element_t", "index_t")


def main() -> None:
    """Compile and read all versions of the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--revision", required=True)
    parser.add_argument("--index-bits", type=int, choices=(32, 64), default=64)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    paths: dict[str, Any] = {}
    for kernel, dtype, version, macros in sorted(set(versions(options.record))):
        source = git("show", f"{options.revision}:kernels/{kernel}/kernel.cu")
        defines = dict(macros) | ({INDEX_BITS: "64"} if options.index_bits == 64 else {})
        flags = build_options(DTYPES[dtype], defines)
        try:
            codes = parse(listing(compile_cubin(source, kernel, flags, options.arch).code))
        except BuildError as err:
            print(f"{kernel}, {dtype}, {version}: left out, {err}")
            continue
        told = {name: code.path.to_json() for name, code in codes.items() if code.path is not None}
        paths.setdefault(kernel, {}).setdefault(dtype, {})[version] = told
    made = {
        "made_from": f"kernels of commit {git('rev-parse', options.revision).strip()[:12]}",
        "compiler": f"NVRTC {nvrtc_version()}, {options.arch}, {options.index_bits}-bit indices",
    }
    write_json(options.out, made | {"paths": paths})


def versions(record: Path) -> Iterator[tuple[str, str, str, tuple[tuple[str, str], ...]]]:
    """Kernel, type, version and macros of each version that was built for the record's shards."""
    for shard in record.rglob("*.parquet"):
        metadata = pq.read_metadata(shard).metadata or {}
        if b"gpushmoo" not in metadata:
            continue
        told = json.loads(metadata[b"gpushmoo"])
        for version, built in told["builds"].items():
            # What does not begin so is the second word of a type, as in "unsigned char".
            flags = [flag for flag in built.split() if flag.startswith("-D")]
            macros = [flag.removeprefix("-D").partition("=") for flag in flags]
            mine = {name: value for name, _, value in macros if name not in TYPES}
            if told["machine_code"]:
                kernel = Path(told["params"]["folder"]).name
                yield kernel, told["params"]["dtype"], version, tuple(sorted(mine.items()))


def git(*words: str) -> str:
    """What a git command prints."""
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
