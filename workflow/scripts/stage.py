"""Does the stage of a job: the function that its rule names as its parameter `call`.

A stage that claims a GPU is done by this process, others by the run's server of stages.
"""

from gpushmoo.stages import Stage, do


def _plain(named):
    return {k: str(v) if isinstance(v, str) else [*map(str, v)] for k, v in named.items()}


stage = Stage(
    snakemake.rule,
    snakemake.params.call,
    dict(snakemake.params.items()),
    _plain(snakemake.input),
    _plain(snakemake.output),
    next(iter(snakemake.output), ""),
    snakemake.log[0],
    snakemake.threads,
)
if snakemake.resources.get("gpu", 0):
    stage.run()
else:
    do(stage)
