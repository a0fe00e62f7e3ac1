"""Everything before the first job: configuration, plan, figures, digests."""

# The environment variable that names a file, which gets the path of the run's folder.
RUN_FOLDER = "GPUSHMOO_RUN_FOLDER"
