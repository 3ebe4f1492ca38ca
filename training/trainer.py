"""The loop: step, report, and at the boundaries that all ranks agree on evaluate, save, pause."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from paceline.monitoring.words import plural
from paceline.training.build import JoinedGeneration
from paceline.training.gradients.recorder import GradientRecorder
from paceline.training.optim.bad_loss import BadLossError, BadLossVerdict
from paceline.training.reporting.agent_link import AgentLink
from paceline.training.reporting.communication import report_communication
from paceline.training.saving import left_out
from paceline.training.saving.saves import Saves
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import StepReport
from paceline.training.warm_up import compile_ahead


@dataclass(frozen=True)
class StepActions:
    """Actions that follow a step."""

    evaluate: bool
    save: bool
    must_save: bool  # the run ends here: without this checkpoint work is lost
    stop: bool


def due(spec: JobSpec, report: StepReport, total_steps: int) -> StepActions:
    """Return the actions that follow a step. Pure, and a function of agreed values only, so that all ranks take the same."""
    training, last = derived.training_of(spec), report.step >= total_steps
    every, eval_every = spec.checkpoint.every_steps, training.eval_every_steps
    planned_end = last or report.step in training.pauses
    ends = planned_end or report.pause
    parts_go = report.leave and spec.parallelism.spreads_state  # and the next generation may cut them otherwise
    return StepActions(
        evaluate=eval_every is not None and (planned_end or report.step % eval_every == 0),
        save=ends or parts_go or report.checkpoint or (every is not None and report.step % every == 0),
        must_save=ends,
        stop=ends,
    )


@dataclass(frozen=True)
class StepRequests:
    """Requests of this rank in a step: its agent's, and those of its saves."""

    link: AgentLink
    saves: Saves
    recorder: GradientRecorder

    @property
    def pause_wanted(self) -> bool:
        return self.link.pause_wanted

    @property
    def checkpoint_wanted(self) -> bool:
        return self.link.checkpoint_wanted or self.saves.unfinished

    @property
    def leave_wanted(self) -> bool:
        return self.link.leave_wanted

    @property
    def gradients_wanted(self) -> bool:
        return self.recorder.wanted

    @property
    def outcome_bytes(self) -> int | None:
        return self.saves.outcome_bytes


def train(generation: JoinedGeneration) -> Literal["completed", "paused", "left"]:
    """Run until the last step, an agreed pause, or the step after which all ranks go to their next places.

    `generation.state.step` is always the last committed step.
    """
    state, telemetry = generation.state, generation.telemetry
    telemetry.joined(state.step, state.total_steps, state.task, state.feed.epoch_samples)
    if generation.rebuilt is not None:
        telemetry.record_unreported(generation.rebuilt.agreement)
    state.set_training_mode()
    if not state.compiled:
        telemetry.activity.enter("step", state.step + 1)
        compile_ahead(generation.step_runner)
    stop = state.pending_step is not None and run_actions(generation, state.pending_step)
    leave, requests = False, StepRequests(telemetry.link, generation.saves, generation.gradients)
    while state.step < state.total_steps and not (stop or leave):
        telemetry.activity.enter("step", state.step + 1)
        report = run_step(generation, requests)
        telemetry.step(report)
        if report.bad is not None and report.bad.is_news:
            report_bad_loss(generation, report.step, report.bad)
        report_recovery(generation, report.time)
        stop, leave = run_actions(generation, report), may_leave(generation, report)
    telemetry.activity.enter("rest", state.step)
    report_recovery(generation, None)
    if leave and not stop:
        leave_together(generation)
        return "left"
    if state.step < state.total_steps:
        telemetry.log(f"paused after step {state.step}")
        return "paused"
    log_sample(generation)
    telemetry.log(f"completed {plural(state.total_steps, 'step')}")
    return "completed"


def run_step(generation: JoinedGeneration, requests: StepRequests) -> StepReport:
    """Run one step. Raises BadLossError, on every rank, once everything needed of this generation is on disk."""
    runner = generation.step_runner
    try:
        with generation.gradients.recording(runner.prepared, generation.state.step + 1):
            report = runner.run(requests)
    except BadLossError as error:
        end_on_bad_loss(generation, error.bad)
        raise
    if report.gradients:
        generation.gradients.record_next()
    if report.applied:
        generation.reducer.commit()
    verdict = generation.sums.after_step(report)
    if verdict is not None:
        report_communication(generation.telemetry, report.step, verdict)
    return report


def end_on_bad_loss(generation: JoinedGeneration, bad: BadLossVerdict) -> None:
    """Report the bad loss before the update, and save the state or the reason why the step is to be left out."""
    state, saves = generation.state, generation.saves
    report_bad_loss(generation, state.step + 1, bad)
    saves.finish()
    if bad.act == "roll_back":
        left_out.add(generation.checkpoints, generation.step_runner.left_out, state.step + 1, bad.kind)
    elif state.step not in (0, saves.saved):
        save(generation, {"loss": state.reports[-1].loss} if state.reports else {}, required=False)
        saves.finish()


def report_bad_loss(generation: JoinedGeneration, step: int, bad: BadLossVerdict) -> None:
    if generation.telemetry.leads:
        ids = [number for index in bad.micro_batches for number in generation.state.feed.sample_ids(step, index)]
        generation.telemetry.bad_loss(step, bad, ids)


def may_leave(generation: JoinedGeneration, report: StepReport) -> bool:
    """Return whether the ranks may leave after this step. A sharded state goes on from its checkpoint: if that fails, training goes on
    and tries again."""
    return report.leave and (not generation.spec.parallelism.spreads_state or generation.saves.saved == report.step)


def leave_together(generation: JoinedGeneration) -> None:
    """Leave the generation, as the last thing that its ranks do together: no rank leaves while another still needs it."""
    generation.step_runner.prepared.sync_buffers()
    generation.hand_over_unsent(leaves=generation.telemetry.link.released)
    generation.group.barrier_and_leave()
    generation.telemetry.log(f"leaving generation {generation.checkpoints.generation} after step {generation.state.step}")


def report_recovery(generation: JoinedGeneration, first_step_at: float | None) -> None:
    """Report the recovery once in a generation, when its first step is done, so that the report does not delay the step."""
    if generation.rebuilt is not None:
        generation.telemetry.recovered(generation.rebuilt, first_step_at)
    generation.rebuilt = None


def run_actions(generation: JoinedGeneration, report: StepReport) -> bool:
    """Run the actions that follow a committed step. Returns whether the run ends with it.

    If the generation breaks off here, the next one runs the actions again.
    """
    generation.saves.after_step(report)
    next_ = due(generation.spec, report, generation.state.total_steps)
    metrics = {"loss": report.loss} | (evaluate(generation) if next_.evaluate else {})
    if next_.save:
        save(generation, metrics, required=next_.must_save)
    if report.leave:
        generation.saves.finish()
    generation.state.pending_step = None
    return next_.stop


def evaluate(generation: JoinedGeneration) -> dict[str, float]:
    generation.telemetry.activity.enter("evaluation", generation.state.step)
    metrics = generation.step_runner.evaluate()
    if metrics:
        generation.telemetry.evaluated(generation.state.step, metrics)
    return metrics


def save(generation: JoinedGeneration, metrics: dict[str, float], *, required: bool) -> None:
    """Begin a save; if `required`, also finish it."""
    state, telemetry = generation.state, generation.telemetry
    generation.saves.finish()
    since = time.monotonic()
    telemetry.activity.enter("save", state.step)
    state.update_best(generation.spec.checkpoint, metrics)
    telemetry.link.checkpoint_done()
    generation.step_runner.prepared.sync_buffers()
    state.unsent = generation.reducer.state()
    generation.saves.begin(metrics, required=required, since=since)


def log_sample(generation: JoinedGeneration) -> None:
    """Log a generated text, if the task can make one and the job asks for it."""
    task, tokens = generation.state.task, derived.training_of(generation.spec).generate_tokens
    is_loss_reporter = generation.telemetry.leads
    if task.sample is None or tokens == 0 or not (is_loss_reporter or generation.step_runner.prepared.has_collective_forward):
        return
    task.model.eval()
    text = task.sample(generation.step_runner.whole_model, tokens)
    if not is_loss_reporter:  # it has only lent its part of the parameters
        return
    generation.telemetry.event("sample", step=generation.state.step, text=text)
    generation.telemetry.log(f"sample of {tokens} tokens:\n{text}")
