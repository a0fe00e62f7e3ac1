# Says in a sentence what Snakemake itself would answer with a traceback.
import os
import sys

# What kernels' own code prints in a job is UTF-8 in any locale, as all that we write.
os.environ.setdefault("PYTHONUTF8", "1")
sys.path.insert(0, f"{workflow.basedir}/workflow/scripts")

from gpushmoo.readable import refuse_braces, refuse_unreadable

try:
    refuse_braces(workflow.basedir)
    refuse_unreadable("config/config.yaml")
except ValueError as err:
    raise SystemExit(f"gpushmoo: {err}")
