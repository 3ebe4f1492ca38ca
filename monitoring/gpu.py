"""Readings of this machine's GPUs through NVML (nvidia-ml-py). Imported anywhere: the driver is only looked for in `open_gpus`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

from paceline.monitoring.samples import Gpu, GpuSample

T = TypeVar("T")

_THROTTLE_REASONS = {
    pynvml.nvmlClocksEventReasonApplicationsClocksSetting: "applications_clocks_setting",
    pynvml.nvmlClocksEventReasonSwPowerCap: "software_power_cap",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware_slowdown",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync_boost",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "software_thermal_slowdown",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "hardware_thermal_slowdown",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "hardware_power_brake",
    pynvml.nvmlClocksEventReasonDisplayClockSetting: "display_clock_setting",
}

#: A field that this card or driver does not have; anything else is an error of the card.
_ABSENT = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NoPermission)


class NoGpuError(Exception):
    """There is nothing to read, and why."""


def open_gpus() -> GpuSampler:
    """Open NVML. Raises NoGpuError("no GPU") on a machine without NVIDIA's driver, or with the driver's message if it fails."""
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        raise NoGpuError("no GPU") from None
    except pynvml.NVMLError as error:
        raise NoGpuError(f"NVML: {error}") from error
    try:
        sampler = GpuSampler()
    except pynvml.NVMLError as error:
        pynvml.nvmlShutdown()
        raise NoGpuError(f"NVML: {error}") from error
    if not sampler.gpus:
        sampler.close()
        raise NoGpuError("no GPU")
    return sampler


class GpuSampler:
    """NVML must have been initialized: use `open_gpus`."""

    def __init__(self) -> None:
        self.gpus = tuple(_describe(index) for index in range(pynvml.nvmlDeviceGetCount()))
        self.versions = {"driver": pynvml.nvmlSystemGetDriverVersion(), "cuda": _cuda_version()}

    def sample(self) -> tuple[GpuSample, ...]:
        return tuple(_sample(gpu) for gpu in self.gpus)

    def close(self) -> None:
        pynvml.nvmlShutdown()


def _describe(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(
        index=index,
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        name=pynvml.nvmlDeviceGetName(handle),
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
    )


def _cuda_version() -> str:
    version = pynvml.nvmlSystemGetCudaDriverVersion()
    return f"{version // 1000}.{version % 1000 // 10}"


def _sample(gpu: Gpu) -> GpuSample:
    """One card's failure is its own sample's error; the others are read on."""
    try:
        return _read(gpu, pynvml.nvmlDeviceGetHandleByIndex(gpu.index))
    except pynvml.NVMLError as error:
        return GpuSample(index=gpu.index, uuid=gpu.uuid, error=str(error))


def _read(gpu: Gpu, handle: Any) -> GpuSample:
    memory = _memory(handle)
    utilization = _optional(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return GpuSample(
        index=gpu.index,
        uuid=gpu.uuid,
        utilization_percent=None if utilization is None else float(utilization.gpu),
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        temperature_celsius=_optional(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        power_watts=_watts(_optional(pynvml.nvmlDeviceGetPowerUsage, handle)),
        power_limit_watts=_watts(_optional(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
        sm_clock_mhz=_optional(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        memory_clock_mhz=_optional(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        ecc_uncorrected=_ecc_uncorrected(handle),
        throttle_reasons=throttle_reasons(_optional(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle) or 0),
        processes=_processes(handle),
    )


def _optional(read: Callable[..., T], *arguments: Any) -> T | None:
    try:
        return read(*arguments)
    except _ABSENT:
        return None


def _memory(handle: Any) -> Any:
    """Used without what the driver keeps for itself, as nvidia-smi shows it; drivers before 510 count that as used."""
    newer = _optional(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    return newer or _optional(pynvml.nvmlDeviceGetMemoryInfo, handle)


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _ecc_uncorrected(handle: Any) -> int | None:
    """Since the driver was loaded."""
    return _optional(pynvml.nvmlDeviceGetTotalEccErrors, handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)


def throttle_reasons(mask: int) -> tuple[str, ...]:
    """Names of what holds the clocks down; being idle is no reason."""
    return tuple(name for bit, name in _THROTTLE_REASONS.items() if mask & bit)


def _processes(handle: Any) -> dict[int, int]:
    """Bytes by pid; a process of which the driver does not tell the memory is left out."""
    running = _optional(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return {process.pid: process.usedGpuMemory for process in running if process.usedGpuMemory is not None}
