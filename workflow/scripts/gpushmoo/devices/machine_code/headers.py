"""What a CUDA source may include: its folder's headers, CUDA's, and the C++ standard library's.

NVRTC from CUDA 13.3 on carries CUDA's headers; others are those that packages or a toolkit brought.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

# Below a folder of packages: CUDA's headers and CCCL's (libcu++, CUB, Thrust). Packages of CUDA 12
# had a folder each.
_OF_12 = ("cuda_runtime/include", "cuda_nvcc/include", "cuda_cccl/include")
_BELOW = {
    "nvidia": ("cu{major}/include", "cu{major}/include/cccl"),
    "cupy": (
        *("_core/include/cupy/_cccl/libcudacxx", "_core/include/cupy/_cccl/cub"),
        *("_core/include/cupy/_cccl/thrust", "_core/include/cupy/_cuda/cuda-*"),
    ),
}
# Files that tell the version of what stands beside them.
_TELLING = ("cuda_runtime_api.h", "cuda.h", "cuda/std/__cccl/version.h", "cub/version.cuh")
_VERSION = re.compile(r"#\s*define (?:CUDART|CUDA|CCCL|CUB)_VERSION (\d+)")

_FROM_CUDA = (
    *("algorithm", "array", "bit", "cassert", "cfloat", "climits", "cmath", "complex", "cstddef"),
    *("cstdint", "functional", "limits", "numeric", "span", "tuple", "type_traits", "utility"),
)
_OF_C = ("assert", "float", "limits", "math", "stddef", "stdint")
# NVRTC has their contents for device code without them.
_BUILT_IN = ("cstdio", "cstdlib", "cuda_runtime.h", "stdio.h", "stdlib.h")
STANDARD: Mapping[str, str] = {
    **{
        name: f"#include <cuda/std/{name}>\nnamespace cuda::std {{}}\n"
        "namespace std { using namespace ::cuda::std; }\n"
        for name in _FROM_CUDA
    },
    **{f"{name}.h": f"#include <c{name}>\n" for name in _OF_C},
    "math.h": "#include <cmath>\n#define M_PI 3.14159265358979323846\n",
    **dict.fromkeys(_BUILT_IN, ""),
}


def bundled(nvrtc: Any, cache: Path) -> tuple[Path, ...]:
    """The headers that NVRTC carries, laid out in `cache`; () from an NVRTC without."""
    version = "-".join(map(str, nvrtc.nvrtcVersion()[1:]))
    folder = cache / "headers" / version
    with suppress(AttributeError, RuntimeError):  # older bindings, or an older library
        folder.parent.mkdir(parents=True, exist_ok=True)
        status, *_ = nvrtc.nvrtcInstallBundledHeaders(os.fsencode(folder), 0)
        if not status:
            return folder, folder / "cccl"
    return ()


def installed(nvrtc: str) -> tuple[Path, ...]:
    """CUDA's and CCCL's headers for an NVRTC of this version, in packages and toolkits."""
    major = nvrtc.split(".")[0]
    roots = [Path(os.environ[name]) for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)]
    found = []
    for package, below in _BELOW.items():
        spec = importlib.util.find_spec(package)
        places = (spec.submodule_search_locations if spec is not None else None) or ()
        names = [name.format(major=major) for name in below]
        names += _OF_12 if (package, major) == ("nvidia", "12") else ()
        found += [f for place in places for name in names for f in sorted(Path(place).glob(name))]
    for root in (*roots, Path("/usr/local/cuda")):
        found += [root / "include", root / "include/cccl"]
    return tuple(path for path in dict.fromkeys(found) if path.is_dir())


def versions(nvrtc: str) -> Iterator[str]:
    """What decides about the content of CUDA's headers, beside NVRTC's version."""
    for path in installed(nvrtc):
        texts = (p.read_text("utf-8", "replace") for n in _TELLING if (p := path / n).is_file())
        yield " ".join([str(path), *(v for text in texts for v in _VERSION.findall(text)[:1])])
