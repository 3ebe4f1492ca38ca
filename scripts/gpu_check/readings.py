"""What our sampler reads through NVML, beside what nvidia-smi says at the same time."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from paceline.monitoring.gpu import NoGpuError, open_gpus
from paceline.monitoring.samples import Gpu, GpuSample
from scripts.gpu_check.machine import Machine, RowSkippedError
from scripts.gpu_check.outcome import RowFailedError, Seen

QUERY = ("uuid", "name", "memory.total", "memory.used", "temperature.gpu", "power.draw")
TIMEOUT_SECONDS = 30.0
SECONDS_BETWEEN = 1.0
READINGS, QUICK_READINGS = 60, 5
GOAL_PERCENT = 0.5
MEBIBYTE = 2**20
#: Between the two readings things move; total memory does not.
MEMORY_MOVES, TEMPERATURE_MOVES, POWER_MOVES = 256 * MEBIBYTE, 5.0, 100.0


class Reading(NamedTuple):
    """One card's values as nvidia-smi prints them. None: the card does not report it."""

    uuid: str
    name: str
    total: float | None  # bytes
    used: float | None
    temperature: float | None  # Celsius
    power: float | None  # watts


def check(machine: Machine) -> Seen:
    if shutil.which("nvidia-smi") is None:
        raise RowSkippedError("this machine has no nvidia-smi")
    try:
        sampler = open_gpus()
    except NoGpuError as reason:
        raise RowSkippedError(f"NVML finds {reason}") from reason
    samples, readings = sampler.sample(), nvidia_smi()
    sampler.close()
    compare(sampler.gpus, samples, readings)
    told = readings[0]
    return Seen(
        f"{len(readings)} as nvidia-smi has it; the first: {told.used} of {told.total} bytes used, {told.temperature} °C, {told.power} W"
    )


def check_cost(machine: Machine) -> Seen:
    """Time the calls into the driver as an agent makes them, once a second: `scripts.bench.telemetry` has only a stand-in for it."""
    try:
        sampler = open_gpus()
    except NoGpuError as reason:
        raise RowSkippedError(f"NVML finds {reason}") from reason
    percent = percent_of_a_core(sampler.sample, QUICK_READINGS if machine.quick else READINGS)
    sampler.close()
    told = f"{len(sampler.gpus)} read once a second: {percent:.3f} % of one core in the driver and its binding"
    return Seen(f"{told}; goal for a node with all that an agent does with them: {GOAL_PERCENT} %")


def percent_of_a_core(read: Callable[[], object], count: int, wait: Callable[[float], object] = threading.Event().wait) -> float:
    """Return the CPU time of this process while it reads `count` times, a second apart, in percent of one core."""
    read()  # which opens what later readings only use
    began = time.process_time()
    for _ in range(count):
        wait(SECONDS_BETWEEN)
        read()
    return 100.0 * (time.process_time() - began) / (count * SECONDS_BETWEEN)


def nvidia_smi() -> list[Reading]:
    command = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    return parse(done.stdout)


def parse(text: str) -> list[Reading]:
    return [reading_of([cell.strip() for cell in row.split(",")]) for row in text.splitlines() if row.strip()]


def reading_of(cells: Sequence[str]) -> Reading:
    uuid, name, *rest = cells
    total, used, temperature, power = (number(cell) for cell in rest)
    return Reading(uuid, name, bytes_of(total), bytes_of(used), temperature, power)


def number(cell: str) -> float | None:
    """nvidia-smi writes "[N/A]" or "[Not Supported]" for what a card does not tell."""
    return None if cell.startswith("[") else float(cell)


def bytes_of(mebibytes: float | None) -> float | None:
    return None if mebibytes is None else mebibytes * MEBIBYTE


def compare(gpus: Sequence[Gpu], samples: Sequence[GpuSample], readings: Sequence[Reading]) -> None:
    """Compare both readings by UUID. Raises RowFailedError with everything that differs."""
    by_uuid = {reading.uuid: reading for reading in readings}
    wrong = []
    for gpu, sample in zip(gpus, samples, strict=True):
        if gpu.uuid not in by_uuid:
            wrong.append(f"{gpu.uuid} is not in nvidia-smi's list")
        else:
            wrong += differences(gpu, sample, by_uuid[gpu.uuid])
    if wrong or len(gpus) != len(readings):
        raise RowFailedError(f"{len(gpus)} cards here, {len(readings)} in nvidia-smi; {'; '.join(wrong)}")


def differences(gpu: Gpu, sample: GpuSample, reading: Reading) -> list[str]:
    pairs = {
        "total memory": (sample.memory_total_bytes, reading.total, MEBIBYTE),
        "used memory": (sample.memory_used_bytes, reading.used, MEMORY_MOVES),
        "temperature": (sample.temperature_celsius, reading.temperature, TEMPERATURE_MOVES),
        "power": (sample.power_watts, reading.power, POWER_MOVES),
    }
    found = [
        f"{what} of {gpu.name} is {ours}, nvidia-smi has {theirs}"
        for what, (ours, theirs, moves) in pairs.items()
        if apart(ours, theirs, moves)
    ]
    if gpu.name != reading.name:
        found.append(f"{gpu.uuid} is a {gpu.name}, in nvidia-smi a {reading.name}")
    return found if sample.error is None else [*found, f"{gpu.name}: {sample.error}"]


def apart(ours: float | None, theirs: float | None, moves: float) -> bool:
    if ours is None or theirs is None:
        return ours is not theirs
    return abs(ours - theirs) > moves
