# Loads the library and checks the configuration before any job exists.
try:
    from gpushmoo.planning.snakemake_hooks import (
        build_input,
        limit_gpus,
        load_flow,
        refuse_unwritable,
        refuse_without_device,
        remake_damaged,
        rerun_changed_scripts,
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

# Scripts of a chapter's rules import the chapter, wherever its folder lies.
lend_imports(c.folder.path.parent.resolve() for c in flow.chapters.values())
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
    figure=flow.figure_pattern,
    machine="[A-Za-z0-9][A-Za-z0-9._-]*",
