"""Clocks, temperature, power and throttle reasons of an NVIDIA GPU, through NVML."""

from __future__ import annotations

from typing import Any

from ..base import Reading

_REASONS = {
    "gpu_idle": "nvmlClocksThrottleReasonGpuIdle",
    "applications_clocks": "nvmlClocksThrottleReasonApplicationsClocksSetting",
    "sw_power_cap": "nvmlClocksThrottleReasonSwPowerCap",
    "hw_slowdown": "nvmlClocksThrottleReasonHwSlowdown",
    "sync_boost": "nvmlClocksThrottleReasonSyncBoost",
    "sw_thermal_slowdown": "nvmlClocksThrottleReasonSwThermalSlowdown",
    "hw_thermal_slowdown": "nvmlClocksThrottleReasonHwThermalSlowdown",
    "hw_power_brake_slowdown": "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
}


class NvmlSensor:
    """Reads the GPU at a PCI bus address (CUDA and NVML count devices differently)."""

    def __init__(self, nvml: Any, bus_id: str) -> None:
        self._nvml = nvml
        nvml.nvmlInit()
        self._handle = nvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())

    def read(self) -> Reading | None:
        """The state now; None when the driver does not answer."""
        n, handle = self._nvml, self._handle
        try:
            mask = n.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
            return Reading(
                sm_clock_mhz=n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_SM),
                memory_clock_mhz=n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_MEM),
                temperature_c=n.nvmlDeviceGetTemperature(handle, n.NVML_TEMPERATURE_GPU),
                power_w=n.nvmlDeviceGetPowerUsage(handle) / 1000.0,
                reasons=tuple(name for name, bit in _REASONS.items() if mask & getattr(n, bit)),
            )
        except n.NVMLError:
            return None

    def energy_mj(self) -> int | None:
        """Millijoules since the driver was loaded; None of a GPU that does not count them."""
        try:
            return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        except self._nvml.NVMLError:
            return None


def open_sensor(bus_id: str) -> NvmlSensor | None:
    """The sensor of the GPU at `bus_id`; None without nvidia-ml-py or without an answer of NVML."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        return NvmlSensor(pynvml, bus_id)
    except pynvml.NVMLError:
        return None
