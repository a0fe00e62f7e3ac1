"""A Chromium without a window, for the tests of the explorer and for its benchmark."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# No GPU and no sandbox: the page is ours, and containers have neither.
FLAGS = ("--no-sandbox", "--disable-gpu")


def missing() -> str | None:
    """Why there is no browser here, as a sentence; None where there is one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ModuleNotFoundError:
        return "Python's package playwright is not installed: pip install playwright."
    if shutil.which("chromium") is None:
        return "Chromium is not installed: make test-browser, as root."
    return None


@contextmanager
def chromium() -> Iterator[Any]:
    """Open Chromium as Playwright's `Browser`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        program = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def opened(context: Any, file: Path, fragment: str = "") -> Any:
    """The page in `file`, drawn, in a new tab."""
    tab = context.new_page()
    tab.goto(f"{file.as_uri()}{fragment}")
    tab.wait_for_selector("html[data-ready]:not([data-busy])")
    tab.evaluate("document.getElementById('more')?.setAttribute('open', '')")
    return tab
