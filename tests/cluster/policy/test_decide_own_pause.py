"""A job whose ranks end at a step of its `training.pause_at_steps` while it is being stopped for something else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.cluster.policy.decide import decide
from paceline.cluster.policy.decisions import Stop, Transition
from paceline.cluster.states import EndReason, Intent, JobState
from tests.cluster.policy.test_decide import NOW, job, paused


@pytest.mark.parametrize("reason", [EndReason.PREEMPTED, EndReason.RESIZED])
def test_a_job_that_loses_its_slots_at_the_step_where_its_spec_pauses_it_does_not_train_past_it(reason: EndReason) -> None:
    view = job(JobState.STOPPING, paused(0), paused(1), own_pause=30, end_reason=reason)
    own = decide(view, NOW)
    assert isinstance(own, Stop)
    assert (own.reason, own.waits_for_user, own.ends_generation) == (EndReason.PAUSED, True, False)
    assert "after step 30, as training.pause_at_steps says" in own.why
    end = decide(replace(view, end_reason=own.reason, desired=Intent.PAUSE), NOW)
    assert end == Transition(JobState.PAUSED, EndReason.PAUSED, "saved; its slots are free")


@pytest.mark.parametrize(
    ("reason", "own_pause", "desired", "to"),
    [
        (EndReason.PREEMPTED, None, Intent.RUN, JobState.QUEUED),  # it saved at another step
        (EndReason.PREEMPTED, 30, Intent.PAUSE, JobState.QUEUED),  # and pauses from there
        (EndReason.PAUSED, 30, Intent.RUN, JobState.PAUSED),  # its user has resumed it meanwhile: it goes on
        (EndReason.TIME_LIMIT, 30, Intent.RUN, JobState.FAILED),  # its time is over all the same
    ],
)
def test_otherwise_it_ends_as_it_was_to(reason: EndReason, own_pause: int | None, desired: Intent, to: JobState) -> None:
    decision = decide(job(JobState.STOPPING, paused(0), own_pause=own_pause, end_reason=reason, desired=desired), NOW)
    assert isinstance(decision, Transition)
    assert decision.to is to
