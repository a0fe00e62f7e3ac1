"""A whole run whose results live in S3: a local server that speaks it, and the plugin of Snakemake.

Skipped where they are not installed: ``make s3``, and ``moto[server]`` beside it for the server.
"""

import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))

from projects import TINY_SHARDS, Outcome, Project
from workflow_fixtures import new_project

MISSING = [n for n in ("snakemake_storage_plugin_s3", "boto3", "moto") if find_spec(n) is None]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (make s3, and moto[server])"
)

BUCKET, PREFIX = "bench", "gpushmoo"
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
DEADLINE_S = 60


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Address of a server of this test's own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def bucket(endpoint: str) -> Any:
    import boto3

    session = boto3.Session(KEYS["AWS_ACCESS_KEY_ID"], KEYS["AWS_SECRET_ACCESS_KEY"])
    found = session.resource("s3", endpoint_url=endpoint, region_name="us-east-1").Bucket(BUCKET)
    found.create()
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return new_project(tmp_path_factory.mktemp("s3") / "project")


@pytest.fixture(scope="module")
def first(project: Project, bucket: Any, endpoint: str) -> Outcome:
    return run(project, endpoint)


def run(project: Project, endpoint: str, *args: str) -> Outcome:
    os.environ.update(KEYS)
    return project.snakemake(
        "--profile",
        "profiles/s3",
        "--storage-s3-endpoint-url",
        endpoint,
        "--storage-s3-region",
        "us-east-1",
        "--default-storage-prefix",
        f"s3://{BUCKET}/{PREFIX}",
        *args,
    )


def objects(bucket: Any) -> dict[str, Any]:
    """What the bucket holds of the run, by path within it."""
    start = f"{PREFIX}/results/tiny/"
    return {o.key.removeprefix(start): o for o in bucket.objects.filter(Prefix=start)}


def test_all_results_lie_in_the_bucket(first: Outcome, project: Project, bucket: Any) -> None:
    assert first.status == 0, first.text
    found = objects(bucket)
    shards = {f"cells/{name}.parquet" for name in TINY_SHARDS}
    wanted = {*shards, "report.pdf", "summary/best.parquet", "summary/verdict.txt"}
    assert wanted <= set(found)
    assert any(name.startswith("dataset/kernel=") for name in found)
    kept = [p for p in project.results.rglob("*") if p.is_file() and ".cache" not in p.parts]
    assert kept == []


def test_what_lies_there_is_whole(first: Outcome, bucket: Any) -> None:
    found = objects(bucket)
    shard = found[f"cells/{TINY_SHARDS[0]}.parquet"].get()["Body"].read()
    assert pq.read_table(io.BytesIO(shard)).num_rows == 24
    assert found["report.pdf"].get()["Body"].read(5) == b"%PDF-"


def test_nothing_is_measured_again_and_what_is_missing_is(
    first: Outcome, project: Project, bucket: Any, endpoint: str
) -> None:
    again = run(project, endpoint, "-n")
    assert again.status == 0, again.text
    assert "Nothing to be done" in again.text
    objects(bucket)[f"cells/{TINY_SHARDS[2]}.parquet"].delete()
    planned = run(project, endpoint, "-n", "cells")
    assert planned.jobs.get("measure") == 1, planned.text


def test_recorded_data_set_is_read_from_here(project: Project, bucket: Any, endpoint: str) -> None:
    recorded = "dataset=reports/reference/nvidia-h200"
    command = project.command(
        "-n",
        "--profile",
        "profiles/s3",
        "--storage-s3-endpoint-url",
        endpoint,
        "--default-storage-prefix",
        f"s3://{BUCKET}/{PREFIX}",
        config=("config/full.yaml", "config/dots.yaml"),
    )
    done = subprocess.run(
        [*command, "--config", "run=h200", "only=null", recorded],
        cwd=project.root,
        env={**project.environment, **KEYS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    jobs = Outcome(done.returncode, done.stdout + done.stderr).jobs
    assert jobs["aggregate"] == 1
    assert jobs["figure_study"] == 2
    assert "measure" not in jobs
