"""Define each key of a run's configuration: its meaning, its default and the allowed values.

config/config.yaml has the sweeps of the default run. A file that ``--configfile`` names is merged
over it (config/README.md). ``make docs`` writes workflow/schemas/config.schema.json from this
module.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, Tag

from ..core.backends import AUTO, BACKENDS
from ..core.keys import Axis, OneOf, Section, SizeKey, Text, Texts, Unique, alternatives, matching
from ..core.meaning import Meaning
from ..core.measure_settings import Measure
from ..core.schema import FAULTS, RENAMED_STATUSES
from ..core.space import TIMING_MODES

Backend = Annotated[str, OneOf((AUTO, *BACKENDS))]
OpenclRuntime = Annotated[str, OneOf((AUTO, *(r for b in BACKENDS.values() for r in b.runtimes)))]
CacheState = Annotated[str, OneOf(("warm", "flushed"))]
TimingMode = Annotated[str, OneOf(TIMING_MODES, {"back_to_back": TIMING_MODES[0]})]
Study = Annotated[str, OneOf(("counters", "energy", "machine"))]
FaultName = Annotated[
    str, OneOf(sorted(FAULTS), {was: now for was, now in RENAMED_STATUSES.items() if now in FAULTS})
]
RemeasureWord = Annotated[str, OneOf(("failed", "all"), {"faults": "failed"})]

Runs = Annotated[
    Annotated[Text, Tag("<text>")]
    | Annotated[Annotated[Texts, Field(min_length=1)], Tag("<list>")],
    alternatives(),
]
DeviceKey = Annotated[
    Annotated[Literal["all"], Tag("<text>")]
    | Annotated[Annotated[int, Field(ge=0, le=1023)], Tag("<number>")],
    alternatives(),
]
Remeasure = Annotated[
    Annotated[RemeasureWord, Tag("<text>")]
    | Annotated[
        Annotated[tuple[FaultName, ...], Field(min_length=1), Unique],
        Tag("<list>"),
    ],
    alternatives(),
]
Names = Annotated[tuple[str, ...], Field(min_length=1), Unique]


# The keys that are arguments of a call as well, with their defaults in a configuration.
SEED = 20091017
THREAD_LIMIT = 1024
Seed = Annotated[
    int,
    Field(ge=0, le=2**32 - 1),
    Meaning("Seed of the input data, of the order of samples and of the places of buffers."),
]
# 1024 is the limit of every NVIDIA GPU since Fermi. That of a CPU is higher; the same limit keeps
# both comparable. A cell over it is not run and gets the status too_many_threads.
ThreadLimit = Annotated[
    Annotated[int, Field(ge=1)] | None,
    Meaning(
        "Threads that a block may have at most, besides the device's own limit. null leaves "
        "only that limit."
    ),
]
Threshold = Annotated[
    float,
    Field(gt=0, lt=1),
    Meaning("The change that does not matter, a share of the time."),
]


class SweptKeys(Section):
    """Which cells of a kernel are measured. A missing key takes the kernel's own default."""

    FORMERLY: ClassVar = {"launch": "timing_modes"}

    dtypes: Names | None = None
    """Element types."""
    variants: Names | None = None
    """Variants of the kernel."""
    sizes: Annotated[tuple[SizeKey, ...], Field(min_length=1)] | None = None
    """Problem sizes."""
    cache: Annotated[tuple[CacheState, ...], Field(min_length=1), Unique] | None = None
    """State of the last cache level before a launch, warm or flushed, or both."""
    timing_modes: Annotated[tuple[TimingMode, ...], Field(min_length=1), Unique] | None = None
    """How launches come to the device, batched, isolated, stream or graph, or several."""
    axes: dict[str, Axis] | None = None
    """Launch parameters by name."""


class Sweep(SweptKeys):
    """A kernel to sweep and its cells. A missing key takes the kernel's own default."""

    kernel: Text | None = None
    """Folder name of the kernel that is swept, if it is not the sweep's own name."""


class Settings(Section):
    """The configuration of one run of gpushmoo."""

    FORMERLY: ClassVar = {
        "again": "remeasure",
        "same": "noise_runs",
        "delta": "threshold",
        "guard": "fail_on_regression",
    }

    # `$` alone would let a line break pass at the end.
    run: Annotated[
        str,
        matching(
            "[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
            "letters, digits, '.', '_' and '-' are allowed, up to 64, a letter or digit first",
        ),
    ] = "local"
    """Name of the run. Its outputs are in results/<run>/."""
    seed: Seed = SEED
    # On a cluster it must be named: auto asks the host on which Snakemake starts, not the nodes.
    backend: Backend = AUTO
    """Device backend, a folder of the library's devices. auto takes the first that finds a
    device."""
    device: DeviceKey = "all"
    """all (every CUDA device at once, one shard each, or the first OpenCL device) or the index of
    one device."""
    opencl_runtime: OpenclRuntime = AUTO
    """OpenCL runtime: pocl by pip, the intel extra, the one that the system offers, or auto for the
    first that works."""
    cuda_arch: (
        Annotated[
            str,
            matching(
                "sm_[0-9]{2,3}",
                "it must be sm_ and the two or three digits of the compute capability",
            ),
        ]
        | None
    ) = None
    """Architecture to check CUDA machine code for, such as sm_90. null asks the device."""
    # With backend auto the device is asked before any job starts, else when the first job opens it.
    device_memory_gib: Annotated[float, Field(gt=0, le=2**20)] | None = None
    """Memory of the device in GiB, for checks if the device is not on this host. null asks the
    device."""
    thread_limit: ThreadLimit = THREAD_LIMIT
    # A relative one begins at the folder of the file that names it; on the command line, at the
    # working directory.
    kernel_folders: Texts = ()
    """Folders that hold kernel folders, besides the project's own."""
    kernels: Annotated[dict[str, Sweep | None], Field(min_length=1, max_length=256)]
    """Sweeps by name, which is the kernel's folder unless the sweep has the key kernel. A
    missing key takes the kernel's own default. null leaves a sweep out."""
    only: Names | None = None
    """Names of the sweeps to run, or null for all of kernels."""
    measure: Measure = Field(default_factory=Measure)
    """How cells are measured."""
    # Relative ones as in kernel_folders. A run has the chapters whose kernels it sweeps.
    chapter_folders: Texts = ()
    """Folders that hold chapters, besides the project's own."""
    chapters: dict[str, dict[str, Any] | None] | None
    """The options of chapters, by name of their folder. null leaves out one chapter, or all. A run
    has no chapter whose kernels it does not sweep."""
    # counters: a profiler (Nsight Compute) reads hardware counters. energy: joules per gigabyte of
    # the best launches and the usual blocks, by NVML's counter.
    studies: Annotated[tuple[Study, ...], Unique] = ()
    """Measurements beside the sweeps. machine adds the sweeps of config/machine.yaml, each as
    machine_<name>."""
    dataset: Text | None = None
    """Folder of recorded shards to render instead of measuring. null measures."""
    strict: bool = False
    """End with an error, after the report, when a cell ended in a fault."""
    history: Runs | None = None
    """Earlier runs that the report and the explorer show beside this one: a folder of a run, of
    runs or of shards, or a list of them, or null."""
    # snakemake compare --config before=results/one after=results/other writes
    # results/<run>/compare/. Lists of equally many folders are pairs, measured in turns.
    before: Runs | None = None
    """The earlier run that the target compare takes: the folder of a run, of a data set or of
    shards, or a list of them, or null."""
    after: Runs | None = None
    """The later run that the target compare compares with before: the same number of folders."""
    noise_runs: Annotated[Texts, Unique] = ()
    """Folders of two or more runs of one and the same thing, which show how far runs are apart."""
    threshold: Threshold = 0.01
    fail_on_regression: bool = False
    """Whether compare ends with an error when a group's best got slower by more than threshold,
    significant at 95 %."""
    # Meant for the command line: --config remeasure=failed, --config remeasure=[timeout,throttled].
    remeasure: Remeasure | None = None
    """Measure cells again that ended in a fault (failed), in one of these statuses, or all. null
    measures none again."""


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a configuration file, with which editors check and complete it."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Settings.model_json_schema(),
    }
