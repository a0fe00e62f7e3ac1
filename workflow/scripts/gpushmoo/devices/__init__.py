"""Open devices and run kernels on them, behind one protocol; each backend has a folder."""
