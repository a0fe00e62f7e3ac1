"""One model for a device: a single set of parameters for all kernels, sizes and shapes."""

from .fit import DeviceFit as DeviceFit
from .fit import fit_device as fit_device
from .fit import training as training
