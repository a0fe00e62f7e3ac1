# Says in a sentence what Snakemake itself would answer with a traceback.
import os
import sys
from pathlib import Path

# What kernels' own code prints in a job is UTF-8 in any locale, as all that we write.
os.environ.setdefault("PYTHONUTF8", "1")
# Ours, also where another workflow imports these rules; `workflow.basedir` is then its folder.
scripts = Path(str(workflow.current_basedir)).parent / "scripts"
if not scripts.is_dir():
    raise SystemExit(
        "gpushmoo: its Snakefile must lie in a folder of this machine, with its library beside it; "
        "clone the repository and name that Snakefile."
    )
sys.path.insert(0, str(scripts))
# The default profile may have found another copy of the library, such as an installed one.
for name in [name for name in sys.modules if name.split(".")[0] == "gpushmoo"]:
    del sys.modules[name]

from gpushmoo.core.paths import DEFAULTS, IMPORTED, ROOT, expose_imports

expose_imports(IMPORTED)

from gpushmoo.core.readable import UnreadableError, read_mapping, refuse_braces

try:
    refuse_braces(ROOT)
    # Of what Snakemake loads it keeps the last of keys that stand twice.
    read_mapping(os.path.relpath(DEFAULTS))
except UnreadableError as err:
    raise SystemExit(f"gpushmoo: {err}")
