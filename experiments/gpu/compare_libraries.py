"""The kernels of `examples/` beside the functions of PyTorch and CuPy that people would call.

    python experiments/gpu/compare_libraries.py OUT.json [NAME…]

Needs an NVIDIA GPU and PyTorch. Each kernel is tuned (three processes); each function's result is
checked with the same limit, and its calls are timed by CUDA events behind a wait of the device that
hides the host. Times are medians of rounds with their extremes.
"""

import importlib.util
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import cupy
import gpushmoo
import numpy as np
import torch
from cupyx.scipy.special import softmax as softmax_of_scipy

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ROUNDS, CALLS, WAIT_CYCLES = 7, 20, 4_000_000


def loaded(path: Path) -> Any:
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names_of(call: dict[str, Any]) -> list[str]:
    """Names of the kernel's parameters."""
    head = call["source"].split(f"{call['name']}(")[1].split(")")[0]
    return [part.split()[-1].lstrip("*") for part in head.split(",")]


def timed_us(function: Any) -> list[float]:
    """Microseconds of a call, of each round."""
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    found = []
    with stream:
        for _ in range(ROUNDS + 1):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(WAIT_CYCLES)
            start.record()
            for _ in range(CALLS):
                function()
            stop.record()
            torch.cuda.synchronize()
            found.append(1e3 * start.elapsed_time(stop) / CALLS)
    return found[1:]


def peer(call: dict[str, Any], library: str, text: str) -> dict[str, Any]:
    """A function's times, and the share of its results that are within the call's limit."""
    of = {"PyTorch": lambda a: torch.from_numpy(a).cuda(), "CuPy": cupy.asarray}[library]
    arrays = {
        name: of(value)
        for name, value in zip(names_of(call), call["arguments"], strict=True)
        if isinstance(value, np.ndarray)
    }
    known = {"torch": torch, "cupy": cupy, "softmax_of_scipy": softmax_of_scipy, **arrays}
    code = compile(text, "<peer>", "eval")
    found = eval(code, known)
    result = found.cpu().numpy() if library == "PyTorch" else found.get()
    check = call["check"]
    due = check.expect[0]
    limit = np.asarray(check.atol) + check.rtol * np.abs(due)
    right = np.abs(result.astype(np.float64).reshape(due.shape) - due) <= limit
    us = timed_us(lambda: eval(code, known))
    low, middle, high = min(us), median(us), max(us)
    return {"us": middle, "low": low, "high": high, "within_limit": float(right.mean())}


def main(out: Path, *names: str) -> None:
    """Write a row for each example."""
    rows = []
    for path in sorted(EXAMPLES.glob("*.py")):
        if names and path.stem not in names:
            continue
        began = time.monotonic()
        module = loaded(path)
        result = gpushmoo.tune(**module.CALL, repeats=3, progress=False)
        cells, best = result.cells, result.best
        top = cells[cells["status"] == "ok"].sort_values("median_s").iloc[0]
        rows.append(
            {
                "example": path.stem,
                "device": top["device_name"],
                "statuses": result.statuses,
                "winner": result.winner,
                "tied": len(best),
                "us": 1e6 * top["median_s"],
                "low": 1e6 * top["median_low_s"],
                "high": 1e6 * top["median_high_s"],
                "gbs": (top["bytes_read"] + top["bytes_written"]) / top["median_s"] * 1e-9,
                "slowest_us": 1e6 * cells["median_s"].max(),
                "worst_error": None if np.isnan(top["worst_error"]) else top["worst_error"],
                "faults": sorted(set(cells["message"].dropna()))[:3],
                "peers": {},
            }
        )
        for library, text in module.PEERS.items():
            try:
                rows[-1]["peers"][library] = peer(module.CALL, library, text)
            except Exception as err:
                rows[-1]["peers"][library] = {"error": f"{type(err).__name__}: {err}"[:200]}
        rows[-1]["seconds"] = time.monotonic() - began
        out.write_text(json.dumps(rows, indent=1, default=str) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
