"""What is fed to a device piece by piece, each through a stream that is made for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy.typing as npt

from ..workloads.host_fed import Piece

T = TypeVar("T")


@dataclass(frozen=True)
class FedInTurn:
    """What a pipeline of `StreamSetup.IN_TURN` feeds, one of its `pieces` after another.

    `arrays` are the flat inputs on the host, by name; `partials`, on the host as well, is where the
    launches' partial results end up. A `poisoned` feed fills all device memory with all-ones words
    first.
    """

    program: Any
    pieces: Sequence[Piece]
    arrays: Mapping[str, npt.NDArray[Any]]
    partials: npt.NDArray[Any]
    poisoned: bool


class InTurn(Protocol):
    """A `FedInTurn` made ready on a device."""

    def run(self, meanwhile: Callable[[], T]) -> T:
        """Queue all pieces, call `meanwhile`, wait, and fetch the partial results.

        Returns what `meanwhile` did. Whatever is raised, what was taken is given back.
        """
