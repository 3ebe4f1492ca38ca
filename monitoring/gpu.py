"""Readings of this machine's GPUs through NVML (nvidia-ml-py). Imported anywhere: the driver is only looked for in `open_gpus`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml

from paceline.monitoring.gpu_traffic import TrafficMeter
from paceline.monitoring.samples import NO_GPU, THROTTLE_NAMES, Gpu, GpuSample

T = TypeVar("T")
#: How old the seldom readings of a card may be.
SELDOM_SECONDS = 4.5

_THROTTLE_REASONS = dict(
    zip(
        (
            pynvml.nvmlClocksEventReasonApplicationsClocksSetting,
            pynvml.nvmlClocksEventReasonSwPowerCap,
            pynvml.nvmlClocksEventReasonHwSlowdown,
            pynvml.nvmlClocksEventReasonSyncBoost,
            pynvml.nvmlClocksEventReasonSwThermalSlowdown,
            pynvml.nvmlClocksEventReasonHwThermalSlowdown,
            pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
            pynvml.nvmlClocksEventReasonDisplayClockSetting,
        ),
        THROTTLE_NAMES,
        strict=True,
    )
)

#: A field that this card or driver does not have; anything else is an error of the card.
_ABSENT = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NoPermission)


class NoGpuError(Exception):
    """There is nothing to read, and why."""


def open_gpus() -> GpuSampler:
    """Open NVML. Raises NoGpuError(NO_GPU) on a machine without NVIDIA's driver, or with the driver's message if it fails."""
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        raise NoGpuError(NO_GPU) from None
    except pynvml.NVMLError as error:
        raise NoGpuError(f"NVML: {error}") from error
    try:
        sampler = GpuSampler()
    except pynvml.NVMLError as error:
        pynvml.nvmlShutdown()
        raise NoGpuError(f"NVML: {error}") from error
    if not sampler.gpus:
        sampler.close()
        raise NoGpuError(NO_GPU if sampler.unread is None else f"NVML: {sampler.unread}")
    return sampler


@dataclass(frozen=True)
class _Card:
    """A card and its seldom readings: what hardly changes, and its processes, which cost more to ask for than all the rest."""

    handle: Any
    power_limit_watts: float | None
    ecc_corrected: int | None
    ecc_uncorrected: int | None
    processes: dict[int, int]


class GpuSampler:
    """Reads the cards that NVML describes; `unread` says why it does not describe others, as one that has fallen off the bus. NVML must have been
    initialized: use `open_gpus`."""

    def __init__(self) -> None:
        self.gpus, self.unread = _describe_all()
        self.versions = {"driver": pynvml.nvmlSystemGetDriverVersion(), "cuda": _cuda_version()}
        self._traffic = {gpu.index: TrafficMeter() for gpu in self.gpus}
        self._cards: dict[int, _Card] = {}
        self._cards_read_at = -math.inf
        self._gone: set[str] = set()

    def restrict(self, gpus: Sequence[Gpu]) -> None:
        """Read these cards only, in this order; without any, close NVML. One that NVML has not described has an error as its sample."""
        self._gone = {gpu.uuid for gpu in gpus} - {gpu.uuid for gpu in self.gpus}
        self.gpus = tuple(gpus)
        if not gpus:
            self.close()

    def sample(self) -> tuple[GpuSample, ...]:
        """Read every card. Processes, errors and the power limit are those of the last few seconds."""
        if time.monotonic() - self._cards_read_at >= SELDOM_SECONDS:
            self._cards, self._cards_read_at = {}, time.monotonic()
        return tuple(self._sample(gpu) for gpu in self.gpus)

    def _sample(self, gpu: Gpu) -> GpuSample:
        """One card's failure is its own sample's error; the others are read on."""
        if gpu.uuid in self._gone:
            return GpuSample(index=gpu.index, uuid=gpu.uuid, error="GPU is gone")
        try:
            if gpu.index not in self._cards:
                self._cards[gpu.index] = _read_seldom(gpu.index)
            return _read(gpu, self._cards[gpu.index], self._traffic[gpu.index])
        except pynvml.NVMLError as error:
            self._cards.pop(gpu.index, None)
            return GpuSample(index=gpu.index, uuid=gpu.uuid, error=str(error))

    def close(self) -> None:
        pynvml.nvmlShutdown()


def _describe_all() -> tuple[tuple[Gpu, ...], str | None]:
    """The cards that NVML describes, and why it does not describe the others."""
    found, unread = list[Gpu](), list[str]()
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            found.append(_describe(index))
        except pynvml.NVMLError as error:
            unread.append(f"GPU {index} cannot be read ({error})")
    return tuple(found), "; ".join(unread) or None


def _describe(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(
        index=index,
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        name=pynvml.nvmlDeviceGetName(handle),
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        mig=_is_split(handle),
    )


def _is_split(handle: Any) -> bool:
    """Whether the card is in MIG mode now; one that is to be after the next reset is not yet."""
    modes = _optional(pynvml.nvmlDeviceGetMigMode, handle)
    return modes is not None and modes[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def _cuda_version() -> str:
    version = pynvml.nvmlSystemGetCudaDriverVersion()
    return f"{version // 1000}.{version % 1000 // 10}"


def _read_seldom(index: int) -> _Card:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return _Card(
        handle,
        power_limit_watts=_watts(_optional(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
        ecc_corrected=_ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        ecc_uncorrected=_ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        processes=_processes(handle),
    )


def _read(gpu: Gpu, card: _Card, traffic: TrafficMeter) -> GpuSample:
    handle = card.handle
    memory, rates = _memory(handle), traffic.rates(handle, time.monotonic())
    utilization = _optional(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return GpuSample(
        index=gpu.index,
        uuid=gpu.uuid,
        utilization_percent=None if utilization is None else float(utilization.gpu),
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        temperature_celsius=_optional(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        power_watts=_watts(_optional(pynvml.nvmlDeviceGetPowerUsage, handle)),
        power_limit_watts=card.power_limit_watts,
        sm_clock_mhz=_optional(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        memory_clock_mhz=_optional(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        ecc_corrected=card.ecc_corrected,
        ecc_uncorrected=card.ecc_uncorrected,
        pcie_sent_bytes_per_second=rates.get("pcie_sent"),
        pcie_received_bytes_per_second=rates.get("pcie_received"),
        nvlink_sent_bytes_per_second=rates.get("nvlink_sent"),
        nvlink_received_bytes_per_second=rates.get("nvlink_received"),
        throttle_reasons=throttle_reasons(_optional(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle) or 0),
        processes=card.processes,
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


def _ecc_errors(handle: Any, kind: int) -> int | None:
    """Since the driver was loaded."""
    return _optional(pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, pynvml.NVML_VOLATILE_ECC)


def throttle_reasons(mask: int) -> tuple[str, ...]:
    """Names of what holds the clocks down; being idle is no reason."""
    return tuple(name for bit, name in _THROTTLE_REASONS.items() if mask & bit)


def _processes(handle: Any) -> dict[int, int]:
    """Bytes by pid; a process of which the driver does not tell the memory is left out."""
    running = _optional(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return {process.pid: process.usedGpuMemory for process in running if process.usedGpuMemory is not None}
