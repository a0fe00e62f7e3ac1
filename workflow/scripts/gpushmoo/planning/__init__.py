"""Prepare a run before its first job: configuration, plan, figures, digests of code."""

# The environment variable that names a file, which gets the path of the run's folder.
RUN_FOLDER = "GPUSHMOO_RUN_FOLDER"
