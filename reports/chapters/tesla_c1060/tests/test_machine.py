"""The device file and arrays cut into tiles: what is taken, and how it is refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tesla_c1060.simulation.machine import Level, MachineError, Tiling, load_machine

FILE = Path(__file__).parents[1] / "devices/tesla-c1060.yaml"
SHIPPED: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
C1060 = load_machine(FILE)


def write(path: Path, **changes: Any) -> Path:
    """The shipped device file with some keys changed; None removes a key."""
    data = SHIPPED | changes
    out = path / "device.yaml"
    out.write_text(yaml.safe_dump({k: v for k, v in data.items() if v is not None}), "utf-8")
    return out


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("partitions", 0, "at least 1"),
        ("n_sm", 2.5, "whole number"),
        ("n_sms", 30, "unknown key 'n_sms'; allowed are "),
        ("core_clock_ghz", -1.3, "above 0"),
        ("memory_data_rate_mhz", 399, "at least memory_clock_mhz"),
        ("latency_cycles", 1, "at least one bus transfer (1.625 core cycles)"),
        ("max_threads_per_sm", 15, "at least one half-warp (16 threads)"),
        ("name", 1060, "non-empty"),
        ("writes_awaited", "yes", "true or false"),
        ("partitions", 7, "must be a multiple of the 7 partitions"),
        ("latency_cycles", 71, "t_rcd_cycles + t_cl_cycles (71.5 core cycles)"),
        ("t_ras_cycles", 11, "at least t_rcd_cycles (12)"),
        ("t_ras_cycles", None, "the key t_ras_cycles is missing"),
        ("banks", 8, "mapping"),
        ("banks.count", 0, "at least 1"),
        ("banks.page_bytes", 300, "multiple of partition_bytes (256)"),
        ("banks.burst_bytes", 48, "divide partition_bytes (256)"),
        ("banks.choose_from", 33, "at most open_ahead (32)"),
        ("banks.tras", 21, "unknown key 'tras'; allowed are count, "),
    ],
)
def test_impossible_value_is_refused(tmp_path: Path, key: str, value: object, allowed: str) -> None:
    group, _, inner = key.rpartition(".")
    change = {group: SHIPPED[group] | {inner: value}} if group else {key: value}
    with pytest.raises(MachineError) as caught:
        load_machine(write(tmp_path, **change))
    message = str(caught.value)
    assert inner in message
    assert allowed in message
    assert "\n" not in message
    assert message.endswith(".")


def test_the_least_possible_values_are_accepted(tmp_path: Path) -> None:
    least = {"latency_cycles": 2, "max_threads_per_sm": 16, "memory_data_rate_mhz": 800, "n_sm": 1}
    machine = load_machine(write(tmp_path, **least, banks=None))
    assert machine.latency_cycles == 2
    # Without banks there is one level less.
    assert (C1060.levels, machine.levels) == (tuple(Level), (Level.BUS, Level.PARTITIONS))


@pytest.mark.parametrize("text", ["- 1\n- 2\n", "", "name: [unclosed\nn_sm: 3\n"])
def test_a_file_that_is_no_mapping_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "device.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MachineError, match=str(path)) as caught:
        load_machine(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("tiling", "words"),
    [
        ((32, 32, 4, 64, 8), "tiles 64 elements wide do not divide an array 32 elements wide"),
        ((64, 4, 4, 64, 8), "tiles 8 elements high do not divide an array 4 elements high"),
        ((64, 8, 4, 64, 8, 1, 63), "a pitch of 63 elements is less than a row of 64"),
        ((64, 8, 4, 64, 8, 3), "3 elements of a thread do not divide a tile 8 elements high"),
    ],
)
def test_tiles_that_do_not_fit_are_refused(tiling: tuple[int, ...], words: str) -> None:
    with pytest.raises(MachineError, match=words):
        Tiling(*tiling)


def test_rows_may_lie_apart() -> None:
    padded = Tiling.of_rows(64, 8, 128, 192)
    assert (padded.tile_width, padded.tile_height, padded.pitch_bytes) == (16, 32, 704)
    assert (padded.n_bytes, padded.extent_bytes) == (64 * 512, 64 * 704)
    for asked in ((64, 8, 4), (64, 8, 132), (64, 8, 128, 4), (64, 8, 8192)):
        with pytest.raises(MachineError, match="no tile of 512 elements of 8 bytes has rows of"):
            Tiling.of_rows(*asked)
