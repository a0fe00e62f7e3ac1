"""How long the explorer's page takes to open and to answer, in Chromium without a window.

    PYTHONPATH=workflow/scripts:tests/browser .venv/bin/python experiments/benchmarks/explorer.py \
        reports/reference/nvidia-h200 --out explorer.json

Opening is from the request of the file to the first drawn map with its answer; `loaded` is when all
kernels are inflated. An answer is from the event (a choice, a move or click of the pointer, a key)
to the end of the next frame, so that the answer and the map can be seen; `to the last line` is when
cross-sections and the table are there, too. Every repeat is a new tab.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from browsing import chromium, missing
from gpushmoo import explore
from gpushmoo.storage.wholefile import write_json

MAP = "#kernel=copy2d_coalesced&dtype=float&size=8192x8192&cache=warm"
# Milliseconds until the frame after that in which the event was answered; `done` says that it was.
TIMED = """async ([selector, event, value, done]) => {
  const element = document.querySelector(selector);
  const box = element.getBoundingClientRect();
  const frame = () => new Promise(next => requestAnimationFrame(next));
  const answered = new Function(`return ${done}`);
  for (const child of document.querySelectorAll("#answer > div")) child.dataset.old = "true";
  await frame();
  const start = performance.now();
  if (event === "change") element.value = value;
  if (event === "check") element.click();
  else if (event === "change") element.dispatchEvent(new Event(event, { bubbles: true }));
  else if (event === "keydown") {
    element.dispatchEvent(new KeyboardEvent(event, { key: value, bubbles: true }));
  } else {
    const clientX = box.x + value[0] * box.width;
    const clientY = box.y + value[1] * box.height;
    element.dispatchEvent(new PointerEvent(event, { clientX, clientY, bubbles: true }));
  }
  while (!answered()) await new Promise(next => setTimeout(next));
  await frame();
  await new Promise(next => setTimeout(next));
  const answer = performance.now() - start;
  while (document.documentElement.dataset.busy) await new Promise(next => setTimeout(next));
  await frame();
  await new Promise(next => setTimeout(next));
  return [answer, performance.now() - start];
}"""
# A new answer stands at the top.
DRAWN = "document.querySelector('#answer > div:not([data-old])') !== null"
CURSOR = ".canvas canvas.cursor"
# What is done in each tab, in this order: name, element, event, its value, what tells the answer.
ACTIONS: tuple[tuple[str, str, str, Any, str | None], ...] = (
    ("hover", CURSOR, "pointermove", [0.4, 0.6], "!document.getElementById('tip').hidden"),
    ("click", CURSOR, "click", [0.3, 0.8], "true"),
    ("key", "#maps", "keydown", "ArrowRight", "document.getElementById('say').textContent !== ''"),
    ("sort", "[data-sort=median_s]", "click", [0.5, 0.5], "true"),
    ("filter by threads", "#choose-threads", "change", "256", DRAWN),
    ("all cells", "#clear", "click", [0.5, 0.5], DRAWN),
    ("filter over all types", "#choose-near", "check", None, DRAWN),
    ("scale", "#choose-scale", "change", "log", DRAWN),
    ("type", "#choose-dtype", "change", "double", DRAWN),
    ("kernel", "#choose-kernel", "change", "tex2d_sum", DRAWN),
)


def one_tab(context: Any, page: Path) -> dict[str, float]:
    """Milliseconds of everything, once."""
    tab = context.new_page()
    tab.goto(f"{page.as_uri()}{MAP}")
    tab.wait_for_selector("html[data-loaded]")
    marks = "['drawn', 'loaded'].map(name => performance.getEntriesByName(name)[0].startTime)"
    drawn, loaded = tab.evaluate(marks)
    times = {"open": drawn, "loaded": loaded}
    for name, selector, event, value, done in ACTIONS:
        answer, rest = tab.evaluate(TIMED, [selector, event, value, done])
        times |= {name: answer, f"{name}, to the last line": rest}
    tab.close()
    return times


def summary(times: list[float]) -> dict[str, float]:
    """Median and both ends, in milliseconds."""
    return {
        "median": round(statistics.median(times), 1),
        "least": round(min(times), 1),
        "most": round(max(times), 1),
    }


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run's folder or recorded shards")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, help="where the record goes, as JSON")
    given = parser.parse_args()
    reason = missing()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        start = time.perf_counter()
        page = explore(given.run, out=Path(folder) / "page.html")
        written_s = time.perf_counter() - start
        size = page.stat().st_size
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        # The first tab also starts the browser's own processes.
        tabs = [one_tab(context, page) for _ in range(given.repeats + 1)][1:]
        counting = context.new_page()
        counting.goto(page.as_uri())
        script = "JSON.parse(document.getElementById('index').textContent)"
        cells = counting.evaluate(f"{script}.reduce((sum, set) => sum + set.cells, 0)")
        version = browser.version
    found = {
        "cells": cells,
        "page_bytes": size,
        "written_s": round(written_s, 1),
        "repeats": given.repeats,
        "browser": f"Chromium {version}",
        "cores": os.cpu_count(),
        # What else the machine had to do shows here: the browser alone makes about one.
        "load_before": round(load, 1),
        "milliseconds": {name: summary([tab[name] for tab in tabs]) for name in tabs[0]},
    }
    print(json.dumps(found, indent=1))
    if given.out is not None:
        write_json(given.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
