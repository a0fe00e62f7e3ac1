"""A plugin of pytest: ``@pytest.mark.shmoo`` holds a kernel to the launch that was recorded for it.

A marked test is measured before it begins. It fails where the launch that was the fastest is surely
slower than the one that is now by more than `threshold`, or where its time as a multiple of a plain
copy's grew by more than `slower`. Both are ratios within one run: seconds of two hosts are not
compared. What cannot be measured is an error, not a failure.
"""

from __future__ import annotations

import pytest

from ...core.errors import UserError

_MEANING = (
    "shmoo(kernel, recorded, threshold=0.01, slower=0.1, sample=3, **sweep): the launch recorded "
    "of the kernel's folder must still be as fast as the fastest; paths are those from the rootdir"
)
# Sentences on what is wrong.
_FOUND = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--shmoo-record``: sweep marked kernels and write their files, in place of judging."""
    told = "sweep the kernels of tests marked shmoo, and record what is tied with the fastest"
    parser.getgroup("gpushmoo").addoption("--shmoo-record", action="store_true", help=told)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, with its arguments and defaults, for ``pytest --markers``."""
    config.addinivalue_line("markers", _MEANING)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Measure the kernel of a marked test; not measured is an error, as of a broken fixture."""
    if (marker := item.get_closest_marker("shmoo")) is None:
        return
    # A second, where nothing is marked for nothing.
    from .recorded_launches import hold

    asked = dict(marker.kwargs)
    root = item.config.rootpath
    kernel = root / asked.pop("kernel")
    recorded = root / asked.pop("recorded")
    renew = item.config.getoption("--shmoo-record")
    try:
        item.stash[_FOUND] = hold(kernel, recorded, renew, **asked)
    except UserError as err:
        pytest.fail(f"not measured: {err}", pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail a marked test, before its body runs, with what `hold` found worse than recorded."""
    if found := item.stash.get(_FOUND, []):
        pytest.fail("\n".join(found), pytrace=False)
