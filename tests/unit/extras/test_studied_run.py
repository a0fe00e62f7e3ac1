"""What the rule files ask about studies."""

import shutil
from pathlib import Path
from typing import Any

from conftest import record
from energetic import write_energy
from gpushmoo.extras.studies import energy_files
from gpushmoo.planning.flow import COUNTED, Flow


def test_a_study_is_made_where_it_is_asked_for(raw_config: dict[str, Any]) -> None:
    none = Flow(raw_config, ask_device=False)
    assert (none.study_files, none.counted_files) == ([], [])
    raw_config["studies"] = ["counters"]
    flow = Flow(raw_config, ask_device=False)
    assert flow.study_files == ["results/local/studies/counters.parquet"]
    assert flow.counted_files == ["results/local/studies/counters.json"]
    assert flow.study_job.device == flow.job_device


def test_energy_is_of_the_runs_kernels(raw_config: dict[str, Any], tmp_path: Path) -> None:
    assert energy_files(Flow(raw_config, ask_device=False)) == []
    raw_config["studies"] = ["energy", "machine"]
    flow = Flow(raw_config, ask_device=False)
    assert flow.study_files == energy_files(flow) == ["results/local/studies/energy.parquet"]
    assert flow.path("figures", "energy.svg") in flow.figure_files
    job = flow.study_job
    assert set(job.kernels) == set(job.folders) >= {"copy2d_coalesced", "chase"}
    shutil.copytree(record("nvidia-h200/global_load"), tmp_path / "mine/global_load")
    recorded = raw_config | {"dataset": str(tmp_path / "mine"), "studies": []}
    assert energy_files(Flow(recorded, ask_device=False)) == []
    write_energy(tmp_path / "mine-studies/energy.parquet", [])
    (tmp_path / "mine" / COUNTED).write_text("{}")
    flow = Flow(recorded, ask_device=False)
    assert Path(*flow.counted_files).resolve() == tmp_path / "mine" / COUNTED
    [file] = energy_files(flow)
    assert Path(file).resolve() == tmp_path / "mine-studies/energy.parquet"
