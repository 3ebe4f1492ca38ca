"""Everything a rank says about itself: metrics and events to its folder, progress to its agent, lines to its output."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping
from typing import Any

import torch

from monitoring.checks import checked_values
from monitoring.devices import Peak, model_flops_utilization, peak_of
from monitoring.points import TRAINER_NAMES, EventKind, communication
from monitoring.recorder import recorder_at
from monitoring.sinks import events_at, on_the_wire
from training.elastic import Agreement, Rebuilt
from training.link import Joined, ProfileRequest, RankFolder, World
from training.planning.flops import model_flops
from training.reporting.activity import Activity
from training.reporting.agent_link import AgentLink
from training.reporting.pace import Pace
from training.reporting.profiling import Profiling
from training.spec.job import JobSpec
from training.state import StepReport, training_of
from training.task import Task

LINE_SECONDS = 1.0  # between progress lines
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
KIBIBYTE = 1024


class Telemetry:
    """Of one rank in one generation. Rank 0 speaks for the job; `led_before`: this process did so in the last generation too."""

    def __init__(
        self,
        world: World,
        spec: JobSpec,
        folder: RankFolder,
        link: AgentLink,
        activity: Activity | None = None,
        *,
        led_before: bool = False,
    ) -> None:
        self.leads, self.led_before = world.rank == 0, led_before
        self.link, self.activity = link, activity or Activity(Pace())
        self.recorder = recorder_at(folder.metrics)
        self.recorder.after_write = self._nudge
        self._events = events_at(folder.events)
        self.recorder.reserve(TRAINER_NAMES)
        self.recorder.tell = self._events.tell_dropped
        self._profiling = Profiling(spec.profile, world, folder.artifacts, self)
        self._samples = training_of(spec).global_batch_size
        self._world, self._precision = world, spec.precision
        self._formula = model_flops(spec)
        self._peak: Peak | None = None
        self._tokens_per_sample: int | None = None
        self._told_flops: float | None = None  # of a sample, where no formula is known
        self._epoch_samples: int | None = None
        self._step = 0
        self._spoke = 0.0

    def joined(self, step: int, total_steps: int, task: Task, epoch_samples: int | None) -> None:
        self._step, self._total, self._tokens_per_sample = step, total_steps, task.tokens_per_sample
        self._told_flops = task.flops_per_sample if self._formula is None else None
        self._epoch_samples = epoch_samples
        self._peak = peak_of_device(torch.device(self._world.device, self._world.slot), self._precision)
        self.link.say(Joined(step=step, total_steps=total_steps))
        self.say(f"training from step {step + 1} to {total_steps}")
        self._profiling.between(step)

    def tell_again(self, agreement: Agreement | None) -> None:
        """What an earlier rank 0 may not have written down."""
        for report in agreement.untold if agreement and self.leads else ():
            self.recorder.record(report.step, self.of_the_job(report))

    def carried_on(self, rebuilt: Rebuilt, first_step_at: float | None) -> None:
        self.event(
            "carried_on",
            step=rebuilt.step,
            transfers=len(rebuilt.agreement.transfers) if rebuilt.agreement else 0,
            fell_back=rebuilt.agreement is None,
            entered_at=rebuilt.entered_at,
            joined_at=rebuilt.joined_at,
            agreed_at=rebuilt.agreed_at,
            first_step_at=first_step_at,
        )

    def step(self, report: StepReport) -> None:
        values = {**report.parts, "step_seconds": report.seconds, "memory_bytes": memory_bytes(self._world.device)}
        values["peak_memory_bytes"] = peak_memory_bytes(self._world.device)
        values["dropped_records"] = float(self.recorder.dropped)
        values |= communication(*report.sent)
        if self.leads:
            values |= self.of_the_job(report) | self.efficiency(report)
        self._step = report.step
        self.recorder.record(report.step, values)
        if not report.applied:
            self.say(
                f"step {report.step}: gradients overflowed in fp16, and the update was skipped; the loss scale is now {report.scale.value:g}"
            )
        if time.monotonic() - self._spoke >= LINE_SECONDS:
            self._spoke = time.monotonic()
            self.say(self.progress_line(report))
        self._profiling.between(report.step)

    def of_the_job(self, report: StepReport) -> dict[str, float]:
        values = {"loss": report.loss, "learning_rate": report.learning_rate, "gradient_norm": report.gradient_norm}
        values |= report.scale.metrics
        values |= {"first_sample": float(report.first_sample), "samples": float(report.samples)}
        values["samples_per_second"] = self._samples / report.seconds
        if self._tokens_per_sample is not None:
            values["tokens_per_second"] = values["samples_per_second"] * self._tokens_per_sample
        if report.bubble is not None:
            values["pipeline_bubble"] = report.bubble
        if self._told_flops is not None:
            values["flops_per_sample"] = self._told_flops
        if self._epoch_samples is not None:
            values["epoch_samples"] = float(self._epoch_samples)
        return values

    def efficiency(self, report: StepReport) -> dict[str, float]:
        """Of this generation's ranks; nothing where the model's arithmetic or the device's peak is not known."""
        flops = self._formula.per_sample if self._formula is not None else self._told_flops
        if flops is None or self._peak is None:
            return {}
        rate, peak = self._samples / report.seconds, self._peak.flops * self._world.world_size
        return {"mfu": model_flops_utilization(rate, flops, peak)}

    @property
    def profile_wanted(self) -> ProfileRequest | None:
        return self.link.profile_wanted

    def step_aside(self) -> None:
        """What follows is no part of a step, which the watchdog times."""
        self.activity.enter("rest", self._step)

    def progress_line(self, report: StepReport) -> str:
        rate, unit = self._samples / report.seconds, "samples/s"
        if self._tokens_per_sample is not None:
            rate, unit = rate * self._tokens_per_sample, "tokens/s"
        return (
            f"step {report.step}/{self._total} loss {report.loss:.4f} lr {report.learning_rate:.2e} "
            f"grad norm {report.gradient_norm:.3f} {rate:,.0f} {unit}"
        )

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """Raises TypeError or ValueError where a task's own metric is no number, or has no name that can be printed."""
        if not self.leads:
            return
        values = checked_values(metrics, set())
        self.recorder.record(step, values)
        self.event("evaluated", step=step, metrics={name: on_the_wire(value) for name, value in values.items()})
        self.say(f"step {step}/{self._total} " + " ".join(f"{name} {value:.4f}" for name, value in values.items()))

    def event(self, kind: EventKind, **data: Any) -> None:
        if self.leads:
            self._events.emit(kind, data)

    def say(self, text: str) -> None:
        """A line of the rank's output, which its agent ships as a log line."""
        if self.leads:
            print(text, flush=True)

    def _nudge(self) -> None:
        """In the recorder's thread, several times a second."""
        self._events.write_waiting()
        self.link.progress(self._step)

    def wait_for_traces(self) -> None:
        self._profiling.wait()

    def close(self) -> None:
        self._profiling.close()
        self.recorder.close()
        self._events.close()


def memory_bytes(device: str) -> float:
    """Allocated on the GPU, or resident in memory."""
    if device == "cuda":
        return float(allocated_on_gpu()["current"])
    with open("/proc/self/statm", "rb") as file:
        return float(int(file.read().split()[1]) * PAGE_BYTES)


def peak_memory_bytes(device: str) -> float:
    """The most that was allocated on the GPU, or was resident, since this process began; on a CPU what its spawner had, it has too."""
    if device == "cuda":
        return float(allocated_on_gpu()["peak"])
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIBIBYTE)


def allocated_on_gpu() -> dict[str, int]:
    """Bytes, `current` and `peak`. Straight from the allocator: torch's own functions make a flat table of all its numbers for one of them."""
    found: dict[str, int] = torch.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]
    return found


def peak_of_device(device: torch.device, precision: str) -> Peak | None:
    """Every rank of a gang has the same kind of device."""
    return peak_of(torch.cuda.get_device_name(device), precision) if device.type == "cuda" else None
