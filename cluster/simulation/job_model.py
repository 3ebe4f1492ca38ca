"""A simulated job's numbers: from its spec and its size to what its ranks report at each step. Pure but for the time of a failure."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paceline.cluster.simulation import curves, step_times
from paceline.cluster.simulation.machines import GIBIBYTE, CardModel
from paceline.cluster.simulation.step_times import StepCost
from paceline.monitoring.devices import model_flops_utilization, peak_of
from paceline.training.link import FailureReport
from paceline.training.planning.flops import model_flops
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import BuiltinWorkload, ScriptWorkload

#: Modelled seconds to save a checkpoint, and for which training waits meanwhile; the share by which steps are slower behind it.
SAVE_SECONDS, STALL_SECONDS, SLOWDOWN = 2.0, 0.08, 0.01
#: Bytes of a checkpoint for each parameter: fp32 parameters and AdamW's two moments.
SAVED_BYTES = 12
#: Where the code of a job raises that is to raise.
WHERE = "loss in train.py:118"


@dataclass(frozen=True)
class JobModel:
    """The model of one job on so many ranks."""

    spec: JobSpec
    ranks: int
    card: CardModel
    slots_per_node: int
    seed: int

    @cached_property
    def total(self) -> int:
        """The number of steps of the whole job."""
        training = self.spec.training
        if training is None:
            return step_times.SCRIPT_STEPS
        return training.steps or (training.epochs or 1) * max(1, curves.EPOCH_SAMPLES // training.global_batch_size)

    @property
    def pauses(self) -> Sequence[int]:
        """The steps after which the job pauses by itself."""
        return self.spec.training.pauses if self.spec.training is not None else ()

    @cached_property
    def cost(self) -> StepCost:
        return step_times.cost_of(self.spec, self.ranks, self.slots_per_node, self.card)

    @cached_property
    def curve(self) -> curves.LossCurve:
        return curves.curve_of(f"{self.seed}/{self.spec.name}", self.spec, self.total)

    def values(self, step: int, seconds: float) -> dict[str, float | str]:
        """Metrics of the whole job, as rank 0 reports them, after a step that took so many modelled seconds."""
        optimizer, batch = self.spec.optimizer, self.cost.samples
        rate = batch / seconds
        values: dict[str, float | str] = {
            "loss": self.curve.loss(step),
            "learning_rate": curves.learning_rate(optimizer.lr, self.spec.schedule, step, self.total),
            "gradient_norm": self.curve.gradient_norm(step),
            "samples_per_second": rate,
        }
        if isinstance(self.spec.workload, ScriptWorkload):
            return values
        values |= {"first_sample": float((step - 1) * batch), "samples": float(batch), "epoch_samples": float(curves.EPOCH_SAMPLES)}
        if self._tokens_per_sample:
            values["tokens_per_second"] = rate * self._tokens_per_sample
        if self.cost.bubble is not None:
            values["pipeline_bubble"] = self.cost.bubble
        if self._flops and self._peak:
            values["mfu"] = model_flops_utilization(rate, self._flops, self._peak * self.ranks)
        return values

    def progress_line(self, step: int, seconds: float) -> str:
        """The line that rank 0 prints after a step."""
        rate, unit = self.cost.samples / seconds, "samples/s"
        if self._tokens_per_sample:
            rate, unit = rate * self._tokens_per_sample, "tokens/s"
        loss, norm = self.curve.loss(step), self.curve.gradient_norm(step)
        return f"step {step}/{self.total} loss {loss:.4f} grad norm {norm:.3f} {rate:,.0f} {unit}"

    def evaluation(self, step: int) -> dict[str, float]:
        return {"eval_loss": self.curve.eval_loss(step), "eval_accuracy": self.curve.accuracy(step)}

    def checkpoint(self, step: int, directory: str) -> dict[str, Any]:
        """The data of the event that tells of a checkpoint in this folder, which nobody has written."""
        return {
            "directory": directory,
            "step": step,
            "bytes": SAVED_BYTES * step_times.parameters_of(self.spec),
            "manifest_sha256": hashlib.sha256(directory.encode()).hexdigest(),
            "metrics": {"eval_loss": self.curve.eval_loss(step)},
            "stall_seconds": STALL_SECONDS,
            "write_seconds": SAVE_SECONDS,
            "slowdown": SLOWDOWN,
        }

    def failure(self, kind: str, rank: int, step: int) -> FailureReport:
        """The report of a rank whose code raises in `step`. `kind`: exception or out_of_memory."""
        needed, has = (size / GIBIBYTE for size in (self.cost.memory_bytes, self.card.memory_bytes))
        exception, message = {
            "exception": ("ValueError", "target 50431 is out of bounds for a vocabulary of 50304 (simulated)"),
            "out_of_memory": (
                "torch.OutOfMemoryError",
                f"CUDA out of memory (simulated): by the planner's estimate a rank needs {needed:.1f} GiB, and the card has {has:.1f}",
            ),
        }[kind]
        traceback = (
            "Traceback (most recent call last):\n"
            '  File "train.py", line 203, in <module>\n    main()\n'
            '  File "train.py", line 118, in loss\n    return cross_entropy(logits, targets)\n'
            f"{exception}: {message}"
        )
        return FailureReport(
            kind="exception" if kind == "exception" else "out_of_memory",
            rank=rank,
            message=message,
            exception=exception,
            traceback=traceback,
            where=WHERE,
            step=step,
            time=time.time(),
            exit_code=1,
        )

    @cached_property
    def _flops(self) -> float | None:
        flops = model_flops(self.spec)
        return flops.per_sample if flops else None

    @cached_property
    def _peak(self) -> float | None:
        peak = peak_of(self.card.name, self.spec.precision)
        return peak.flops if peak else None

    @cached_property
    def _tokens_per_sample(self) -> int | None:
        match self.spec.workload:
            case BuiltinWorkload(model, _):
                return getattr(model, "context", None)
        return None
