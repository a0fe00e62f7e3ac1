# Loads the library and checks the configuration before any job exists.
from gpushmoo.core.errors import REFUSALS

try:
    from gpushmoo.planning.again import Remaking
    from gpushmoo.planning.digest import code_of, code_of_extras, extra_code
    from gpushmoo.planning.inside_snakemake import Inside
    from gpushmoo.planning.plan import figure_labels, figure_note
    from gpushmoo.planning.start import limit_gpus, load_flow, start_run, quiet_snakemake_output
    from gpushmoo.registry import extra_rules

    inside = Inside(workflow)
    flow = load_flow(config, inside)
except ModuleNotFoundError as err:
    raise SystemExit(
        f"gpushmoo: the Python that runs Snakemake has no module '{err.name}', and kernels are read "
        f"before the first job; run Snakemake in the environment of 'conda env create -f "
        f"{ROOT}/environment.yml', or after 'pip install -r {ROOT}/requirements/run.lock'."
    )
except REFUSALS as err:
    # Not a WorkflowError: Snakemake would set lines of its own above and below the sentence. Of any
    # other error, which is a fault of gpushmoo, Snakemake shows the traceback.
    raise SystemExit(f"gpushmoo: {err}")
except KeyboardInterrupt:
    # Most of the time before the first job goes by here.
    raise SystemExit("gpushmoo: stopped before anything was started.")


# Scripts of a chapter's rules import the chapter, wherever its folder lies.
expose_imports(c.folder.path.parent.resolve() for c in flow.config.chapters.values())
# What compiles for a device or opens it; all else needs no CuPy.
device_environment = str(ROOT / (flow.backend.environment if flow.backend else "environment.yml"))
# All other jobs, which take a minute at most: on a cluster they run on the host that submits.
environment = str(ROOT / "environment.yml")
# The scripts of rules: each calls one function of the library.
scripts = ROOT / "workflow/scripts/stages"
# What Snakemake's report says of a figure.
figure_caption = str(ROOT / "workflow/report/figure.rst")
remaking = Remaking(flow)
limit_gpus(flow, inside)
quiet_snakemake_output(flow, inside, remaking.asked)


wildcard_constraints:
    sweep="[A-Za-z0-9_]+",
    dtype="[a-z0-9]+",
    shard="[0-9]+-of-[0-9]+",
    repeat="[0-9]+",
    figure=rf"({'|'.join(sorted({figure.view.kind for figure in flow.figures}))})-.+",
