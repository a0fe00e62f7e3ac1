"""gpushmoo: sweep memory kernels over launch parameters, model the cells, render the report."""

__version__ = "0.1.0"

# Raised whenever a change makes new samples incomparable with old ones.
PROTOCOL_VERSION = 1
