"""What figures import, and that nothing of seaborn is lost for who draws more with it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from gpushmoo.core.paths import ROOT

PATH = {**os.environ, "PYTHONPATH": str(ROOT / "workflow" / "scripts")}


def run(program: str) -> str:
    """What a new process prints."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=PATH, capture_output=True, text=True, check=True).stdout


def test_a_figures_job_imports_no_part_of_scipy() -> None:
    modules = run("import sys, gpushmoo.figures.stage; print(*sys.modules)").split()
    assert "seaborn" in modules
    assert not {"scipy.stats", "scipy.cluster", "scipy.optimize", "scipy.special"} & {*modules}


@pytest.mark.parametrize("before", ["", "import scipy.stats; "])
def test_a_view_may_draw_what_needs_scipy(before: str) -> None:
    program = (
        f"{before}from gpushmoo.figures.style import sns; import numpy as np, scipy.stats;"
        "scipy.stats.gaussian_kde; import scipy.cluster.vq;"
        "values = np.random.default_rng(1).random((6, 4));"
        "sns.kdeplot(x=values.ravel()); print(len(sns.clustermap(values).data2d))"
    )
    assert run(program) == "6\n"
