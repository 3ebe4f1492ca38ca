"""The loop: step, report, and at the boundaries that all ranks agree on evaluate, save, pause."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from training.build import Generation
from training.rehearsal import compile_ahead
from training.reporting.agent_link import AgentLink
from training.saving.saves import Saves
from training.spec.job import JobSpec
from training.state import StepReport, training_of


@dataclass(frozen=True)
class Due:
    """What follows a step."""

    evaluate: bool
    save: bool
    must_save: bool  # the run ends here: without this checkpoint work is lost
    stop: bool


def due(spec: JobSpec, report: StepReport, total_steps: int) -> Due:
    """Pure, and of agreed values only, so that every rank comes to the same answer."""
    last = report.step >= total_steps
    every, eval_every = spec.checkpoint.every_steps, training_of(spec).eval_every_steps
    ends = last or report.pause
    parts_go = report.leave and spec.parallelism.in_parts  # and the next generation may cut them otherwise
    return Due(
        evaluate=eval_every is not None and (last or report.step % eval_every == 0),
        save=ends or parts_go or report.checkpoint or (every is not None and report.step % every == 0),
        must_save=ends,
        stop=ends,
    )


@dataclass(frozen=True)
class Told:
    """What this rank tells the others in a step: what its agent asks for, and how its saves stand."""

    link: AgentLink
    saves: Saves

    @property
    def pause_wanted(self) -> bool:
        return self.link.pause_wanted

    @property
    def checkpoint_wanted(self) -> bool:
        return self.link.checkpoint_wanted or self.saves.owed

    @property
    def leave_wanted(self) -> bool:
        return self.link.leave_wanted

    @property
    def work_is_done(self) -> bool:
        return self.saves.work_is_done


def train(generation: Generation) -> Literal["completed", "paused", "left"]:
    """Run until the last step, an agreed pause, or the step after which all ranks go to their next places.

    `generation.state.step` is always the last committed step.
    """
    state, telemetry = generation.state, generation.telemetry
    telemetry.joined(state.step, state.total_steps, state.task, state.feed.epoch_samples)
    if generation.rebuilt is not None:
        telemetry.tell_again(generation.rebuilt.agreement)
    state.task.model.train()
    if not state.compiled:
        telemetry.activity.enter("step", state.step + 1)
        compile_ahead(generation.stepper)
    stop = state.unsettled is not None and settle(generation, state.unsettled)
    leave, told = False, Told(telemetry.link, generation.saves)
    while state.step < state.total_steps and not (stop or leave):
        telemetry.activity.enter("step", state.step + 1)
        report = generation.stepper.run(told)
        telemetry.step(report)
        note_recovery(generation, report.time)
        stop, leave = settle(generation, report), may_leave(generation, report)
    telemetry.activity.enter("rest", state.step)
    note_recovery(generation, None)
    if leave and not stop:
        part(generation)
        return "left"
    if state.step < state.total_steps:
        telemetry.say(f"paused after step {state.step}")
        return "paused"
    log_sample(generation)
    telemetry.say(f"completed {state.total_steps} steps")
    return "completed"


def may_leave(generation: Generation, report: StepReport) -> bool:
    """A state in parts goes on from its checkpoint: where that cannot be saved the ranks train on, and try again after the next step."""
    return report.leave and (not generation.spec.parallelism.in_parts or generation.saves.saved == report.step)


def part(generation: Generation) -> None:
    """The last thing that the ranks of a generation do together: nobody leaves while another still needs something of it."""
    generation.stepper.prepared.settle_buffers()
    generation.group.part()
    generation.telemetry.say(f"leaving generation {generation.vault.generation} after step {generation.state.step}")


def note_recovery(generation: Generation, first_step_at: float | None) -> None:
    """Once in a generation, when its first step is done: telling of it must not delay it."""
    if generation.rebuilt is not None:
        generation.telemetry.carried_on(generation.rebuilt, first_step_at)
    generation.rebuilt = None


def settle(generation: Generation, report: StepReport) -> bool:
    """What follows a committed step; whether the run ends with it. A generation that breaks off in here leaves it to the next."""
    generation.saves.after_step(report)
    next_ = due(generation.spec, report, generation.state.total_steps)
    metrics = {"loss": report.loss} | (evaluate(generation) if next_.evaluate else {})
    if next_.save:
        save(generation, metrics, required=next_.must_save)
    if report.leave:
        generation.saves.finish()
    generation.state.unsettled = None
    return next_.stop


def evaluate(generation: Generation) -> dict[str, float]:
    generation.telemetry.activity.enter("evaluation", generation.state.step)
    metrics = generation.stepper.evaluate()
    if metrics:
        generation.telemetry.evaluated(generation.state.step, metrics)
    return metrics


def save(generation: Generation, metrics: dict[str, float], *, required: bool) -> None:
    """Begin to; `required`: and see to it that it is done."""
    state, telemetry = generation.state, generation.telemetry
    generation.saves.finish()
    since = time.monotonic()
    telemetry.activity.enter("save", state.step)
    state.improve(generation.spec.checkpoint, metrics)
    telemetry.link.checkpoint_done()
    telemetry.recorder.flush()  # who goes on from the checkpoint does not tell again what led to it
    generation.stepper.prepared.settle_buffers()
    generation.saves.begin(metrics, required=required, since=since)


def log_sample(generation: Generation) -> None:
    """A generated text, where the task can make one and the job asks for it."""
    task, tokens = generation.state.task, training_of(generation.spec).generate_tokens
    speaks = generation.telemetry.leads
    if task.sample is None or tokens == 0 or not (speaks or generation.stepper.prepared.in_lockstep):
        return
    task.model.eval()
    text = task.sample(generation.stepper.whole_model, tokens)
    if not speaks:  # it has only lent its part of the parameters
        return
    generation.telemetry.event("sample", step=generation.state.step, text=text)
    generation.telemetry.say(f"sample of {tokens} tokens:\n{text}")
