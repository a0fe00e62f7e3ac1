"""Rule record: makes the record of what no measurement enters anew.

In: all such files of the run. Out: ``reports/recorded/`` with these files and no others.
"""

from gpushmoo.planning.recorded import replace_record
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    replace_record(snakemake.params.constants)
