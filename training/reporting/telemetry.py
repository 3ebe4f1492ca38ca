"""Everything a rank says about itself: metrics and events to its folder, progress to its agent, lines to its output."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from paceline.distributed.env import device_index
from paceline.monitoring.checks import checked_values
from paceline.monitoring.devices import Peak, model_flops_utilization, peak_of
from paceline.monitoring.points import TRAINER_NAMES, EventKind, communication
from paceline.monitoring.recorder import recorder_at
from paceline.monitoring.sinks import events_at, on_the_wire
from paceline.training.elastic import RecoveryReport, StateAgreement
from paceline.training.link import GradientsRequest, Joined, RankPlace, TraceRequest
from paceline.training.optim.bad_loss import BadLossVerdict
from paceline.training.planning.flops import model_flops
from paceline.training.rank_folder import RankFolder
from paceline.training.reporting.agent_link import AgentLink
from paceline.training.reporting.memory import MemoryMeter
from paceline.training.reporting.profiling import Profiling
from paceline.training.schema.bad_loss import what_is_bad, what_is_done
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import StepReport
from paceline.training.task import Task
from paceline.training.timing.activity import Activity
from paceline.training.timing.phase_times import PhaseTimes

LINE_SECONDS = 1.0  # between progress lines


class Telemetry:
    """Metrics, events and log lines of one rank in one generation.

    Rank 0 reports for the whole job. `was_leader`: this process was rank 0 in the previous generation too.
    """

    def __init__(
        self,
        world: RankPlace,
        spec: JobSpec,
        folder: RankFolder,
        link: AgentLink,
        activity: Activity | None = None,
        *,
        was_leader: bool = False,
    ) -> None:
        self.leads, self.was_leader = world.rank == 0, was_leader
        self.link, self.activity = link, activity or Activity(PhaseTimes())
        self.folder = folder
        self.recorder = recorder_at(folder.metrics)
        self.recorder.after_write = self._nudge
        self._events = events_at(folder.events)
        self.recorder.reserve(TRAINER_NAMES)
        self.recorder.on_dropped = self._events.emit_dropped
        self.artifacts = folder.artifacts
        self._profiling = Profiling(spec.profile, world, self.artifacts, self)
        self._samples = derived.training_of(spec).global_batch_size
        self._world, self._precision = world, spec.precision
        self._memory = MemoryMeter(world.device)
        self._formula = model_flops(spec)
        self._peak: Peak | None = None
        self._tokens_per_sample: int | None = None
        self._task_flops: float | None = None  # of a sample, where no formula is known
        self._epoch_samples: int | None = None
        self._step = 0
        self._last_line_at = 0.0

    def joined(self, step: int, total_steps: int, task: Task, epoch_samples: int | None) -> None:
        self._step, self._total, self._tokens_per_sample = step, total_steps, task.tokens_per_sample
        self._task_flops = task.flops_per_sample if self._formula is None else None
        self._epoch_samples = epoch_samples
        self._peak = peak_of_device(torch.device(self._world.device, device_index(self._world.slot)), self._precision)
        self.link.send(Joined(step=step, total_steps=total_steps))
        self.log(f"training from step {step + 1} to {total_steps}")
        self._profiling.between(step)

    def record_unreported(self, agreement: StateAgreement | None) -> None:
        """Record the steps that an earlier rank 0 may not have written down."""
        for report in agreement.unreported if agreement and self.leads else ():
            self.recorder.record(report.step, self.job_values(report))

    def recovered(self, rebuilt: RecoveryReport, first_step_at: float | None) -> None:
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
        values = {**report.parts, "step_seconds": report.seconds, **self._memory.read()}
        values["dropped_records"] = float(self.recorder.dropped)
        values |= communication(*report.sent)
        if self.leads:
            values |= self.job_values(report) | self.efficiency(report)
        self._step = report.step
        self.recorder.record(report.step, values)
        if not report.applied and not (report.bad and report.bad.holds_back):
            self.log(
                f"step {report.step}: gradients overflowed in fp16, and the update was skipped; the loss scale is now {report.scale.value:g}"
            )
        if time.monotonic() - self._last_line_at >= LINE_SECONDS:
            self._last_line_at = time.monotonic()
            self.log(self.progress_line(report))
        self._profiling.between(report.step)

    def bad_loss(self, step: int, bad: BadLossVerdict, sample_ids: Sequence[int]) -> None:
        """Log and record a bad loss. `sample_ids` are those of the bad micro-batches."""
        what = what_is_bad(bad.kind, step, bad.loss, bad.limit)
        self.log(f"WARNING {what}: {what_is_done(bad.kind, bad.act, again=bad.again)}")
        self.event("bad_loss", **bad.event_data(step, sample_ids))

    def job_values(self, report: StepReport) -> dict[str, float]:
        values = {"loss": report.loss, "learning_rate": report.learning_rate, "gradient_norm": report.gradient_norm}
        values |= report.scale.metrics
        if report.skipped_updates:
            values["skipped_updates"] = float(report.skipped_updates)
        values |= {"first_sample": float(report.first_sample), "samples": float(report.samples)}
        values["samples_per_second"] = self._samples / report.seconds
        if self._tokens_per_sample is not None:
            values["tokens_per_second"] = values["samples_per_second"] * self._tokens_per_sample
        if report.bubble is not None:
            values["pipeline_bubble"] = report.bubble
        if self._task_flops is not None:
            values["flops_per_sample"] = self._task_flops
        if self._epoch_samples is not None:
            values["epoch_samples"] = float(self._epoch_samples)
        return values

    def efficiency(self, report: StepReport) -> dict[str, float]:
        """Return the MFU over this generation's ranks; empty if the model's arithmetic or the device's peak is unknown."""
        flops = self._formula.per_sample if self._formula is not None else self._task_flops
        if flops is None or self._peak is None:
            return {}
        rate, peak = self._samples / report.seconds, self._peak.flops * self._world.world_size
        return {"mfu": model_flops_utilization(rate, flops, peak)}

    @property
    def profile_wanted(self) -> TraceRequest | None:
        return self.link.profile_wanted

    @property
    def gradients_wanted(self) -> GradientsRequest | None:
        return self.link.gradients_wanted

    def leave_step(self) -> None:
        """Mark the end of the step for the watchdog, which times steps only."""
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
        """Record an evaluation's metrics. Raises TypeError or ValueError if one is no number, or has an invalid name."""
        if not self.leads:
            return
        values = checked_values(metrics, set())
        self.recorder.record(step, values)
        self.event("evaluated", step=step, metrics={name: on_the_wire(value) for name, value in values.items()})
        self.log(f"step {step}/{self._total} " + " ".join(f"{name} {value:.4f}" for name, value in values.items()))

    def event(self, kind: EventKind, **data: Any) -> None:
        if self.leads:
            self._events.emit(kind, data)

    def log(self, text: str) -> None:
        """Print a line to the rank's output, which the agent ships as a log line. Only rank 0 prints."""
        if self.leads:
            print(text, flush=True)

    def flush(self) -> None:
        """Wait until what has been recorded outlives this process."""
        self.recorder.flush()

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


def peak_of_device(device: torch.device, precision: str) -> Peak | None:
    """Return the device's peak; None on a CPU or an unlisted device. All ranks of a gang have the same kind of device."""
    return peak_of(torch.cuda.get_device_name(device), precision) if device.type == "cuda" else None
