"""A sweep here and now, from Python or the shell, and a new kernel's folder."""
