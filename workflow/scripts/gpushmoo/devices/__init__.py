"""Open devices and run kernels on them, behind one protocol. Each backend has a folder."""
