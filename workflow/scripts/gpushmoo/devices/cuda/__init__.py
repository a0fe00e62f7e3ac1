"""Backend `cuda`: NVIDIA GPUs through CuPy; `device` is one of them."""
