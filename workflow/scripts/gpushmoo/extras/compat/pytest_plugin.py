"""A pytest plugin: ``@pytest.mark.shmoo`` compares a kernel with its recorded launches.

It measures a marked test's kernel before the test begins. The test fails if the launch that was the
fastest is slower than the present fastest by more than `threshold`, significant at 95 %, or if its
time as a multiple of a plain copy's grew by more than `slower`. Both are ratios within one run:
seconds of two hosts are not compared. A kernel that cannot be measured is an error, not a failure.
"""

from __future__ import annotations

import pytest

_MEANING = (
    "shmoo(kernel, recorded, threshold=0.01, slower=0.1, sample=3, **sweep): the launch recorded "
    "of the kernel's folder must still be as fast as the fastest; paths are those from the rootdir"
)
# Sentences on regressions.
_FOUND = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--shmoo-record``: sweep marked kernels and write their files instead of comparing."""
    told = "sweep the kernels of tests marked shmoo, and record what is tied with the fastest"
    parser.getgroup("gpushmoo").addoption("--shmoo-record", action="store_true", help=told)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, with its arguments and defaults, for ``pytest --markers``."""
    config.addinivalue_line("markers", _MEANING)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Measure the kernel of a marked test; a failure is an error, as for a broken fixture."""
    if (marker := item.get_closest_marker("shmoo")) is None:
        return
    # This import takes a second, which a run without marks must not spend.
    from ...core.errors import UserError
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
    """Fail a marked test, before its body runs, with the regressions that `hold` found."""
    if found := item.stash.get(_FOUND, []):
        pytest.fail("\n".join(found), pytrace=False)
