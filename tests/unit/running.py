"""One cell of a kernel on a real device, for the tests of kernels and backends."""

from __future__ import annotations

from gpushmoo.core.space import Cell
from gpushmoo.devices.base import Device
from gpushmoo.measuring.buffers import Verdict, open_space
from gpushmoo.measuring.builds import build_versions
from gpushmoo.workloads.loader import KernelFolder


def verdict(device: Device, folder: KernelFolder, cell: Cell) -> Verdict:
    """What is wrong with a cell's output after one proof on poisoned memory."""
    workload, version = folder.workload, folder.workload.version(cell)
    space = open_space(device, workload, cell.problem, cell.dtype, cell.variant, seed=3)
    builds = build_versions(device, folder, cell.dtype, [version])
    assert not builds.failures
    proof = space.bind_proof(builds.programs[version.name], cell)
    if proof is None:
        proof = space.bind(builds.programs[version.name], cell)
    space.poison()
    proof.run()
    return space.verdict(cell, proof)


def wrong_words(device: Device, folder: KernelFolder, cell: Cell) -> int:
    """How many words of the output are wrong."""
    return verdict(device, folder, cell).wrong_words
