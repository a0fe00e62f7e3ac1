"""Does the stage of a job: the function that its rule names as its parameter `call`.

Jobs of this host that claim no GPU have it done by the run's server of stages instead.
"""

from gpushmoo.stages import stage_of

stage_of(snakemake, snakemake.rule).run()
