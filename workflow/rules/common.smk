# Loads the library and checks the configuration before any job exists.
try:
    from gpushmoo.parse import (
        limit_gpus,
        load_flow,
        refuse_unwritable,
        refuse_without_device,
        remake_damaged,
        shards_anew,
        tell_lost_jobs,
        write_plan,
    )

    flow = load_flow(config, workflow)
except ValueError as err:
    # Not a WorkflowError: Snakemake would set lines of its own above and below the sentence.
    raise SystemExit(f"gpushmoo: {err}")
except KeyboardInterrupt:
    # Most of the time before the first job goes by here.
    raise SystemExit("gpushmoo: stopped before anything was started.")

limit_gpus(flow, workflow)
tell_lost_jobs(workflow)


onstart:
    refuse_unwritable(flow, workflow)
    refuse_without_device(flow, workflow)
    write_plan(flow, workflow)


wildcard_constraints:
    sweep="[A-Za-z0-9_]+",
    dtype="[a-z0-9]+",
    shard="[0-9]+-of-[0-9]+",
    repeat="[0-9]+",
    kind="heatmap|curve|workingset|footprint",
    machine="[A-Za-z0-9][A-Za-z0-9._-]*",
    study="timeline|errors",
