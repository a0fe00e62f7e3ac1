# Says in a sentence what Snakemake itself would answer with a traceback.
import os
import sys
from pathlib import Path

# What kernels' own code prints in a job is UTF-8 in any locale, as all that we write.
os.environ.setdefault("PYTHONUTF8", "1")
sys.path.insert(0, f"{workflow.basedir}/workflow/scripts")

from gpushmoo.core.paths import IMPORTED, lend_imports

lend_imports(IMPORTED)

from gpushmoo.core.readable import UnreadableError, read_mapping, refuse_braces

try:
    refuse_braces(workflow.basedir)
    if not workflow.overwrite_configfiles or Path("config/config.yaml").exists():
        read_mapping("config/config.yaml")
    # Of what Snakemake has loaded by now it has kept the last of keys that stand twice.
    for path in workflow.overwrite_configfiles:
        read_mapping(path)
except UnreadableError as err:
    raise SystemExit(f"gpushmoo: {err}")
