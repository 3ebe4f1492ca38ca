"""What is told of an experiment while it is followed."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.cli.answers import parsed
from paceline.cli.api_types import Experiment, Trial
from paceline.cli.experiment_progress import TrialNews, follow_experiment, progress_line, rest
from tests.cli.fake_coordinator import experiment, trial

ID = experiment()["id"]


class Answers:
    """A client that gives the experiment's states in turn, with these trials."""

    def __init__(self, documents: list[dict[str, Any]], trials: list[dict[str, Any]]) -> None:
        self.documents, self.trials, self.asked_for_trials = documents, trials, 0

    def get(self, path: str) -> Any:
        assert path == f"/experiments/{ID}"
        return self.documents.pop(0)

    def pages(self, path: str) -> list[dict[str, Any]]:
        self.asked_for_trials += 1
        return self.trials


def test_it_is_followed_until_it_is_at_rest(capsys: pytest.CaptureFixture[str]) -> None:
    last = experiment(state="stopped")
    client = Answers([experiment(), last], [trial(0, "completed")])
    assert follow_experiment(client, ID) is last  # type: ignore[arg-type]
    assert capsys.readouterr().err.splitlines() == ["trial 0 (strategy=ddp, world_size=2) completed, 152 samples/s"]


def test_trials_are_asked_for_when_their_number_has_changed_and_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    client = Answers([], [trial(0, "completed"), trial(1, "running")])
    news = TrialNews(client, ID)  # type: ignore[arg-type]
    for _ in range(3):
        news.tell(parsed(experiment(), Experiment))
    assert (client.asked_for_trials, len(capsys.readouterr().err.splitlines())) == (1, 1)
    client.trials[1] = trial(1, "pruned", metric=0.25)
    news.tell(parsed(experiment(counts={"pruned": 1}), Experiment))
    assert capsys.readouterr().err == "trial 1 (strategy=ddp, world_size=2, repeat 1) pruned at step 40, 152 samples/s, metric 0.25\n"


def test_each_pause_is_told_with_its_step(capsys: pytest.CaptureFixture[str]) -> None:
    client = Answers([], [])
    news = TrialNews(client, ID)  # type: ignore[arg-type]
    for step, running in ((40, 1), (40, 0), (120, 1)):
        client.trials = [trial(0, "paused", metric=0.5, metric_step=step)]
        client.trials[0]["job"]["step"] = step
        news.tell(parsed(experiment(counts={"completed": 0, "running": running}), Experiment))
    assert [line.partition(" paused ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "at step 40, 152 samples/s, metric 0.5",
        "at step 120, 152 samples/s, metric 0.5",
    ]


def test_a_trial_that_has_ended_is_told_once_its_metric_is_that_of_its_last_step(capsys: pytest.CaptureFixture[str]) -> None:
    client = Answers([], [trial(0, "completed", metric=2.13, metric_step=36)])
    news = TrialNews(client, ID)  # type: ignore[arg-type]
    news.tell(parsed(experiment(), Experiment))
    assert capsys.readouterr().err == ""
    client.trials = [trial(0, "completed", metric=2.04)]
    for _ in range(2):
        news.tell(parsed(experiment(), Experiment))
    assert (client.asked_for_trials, capsys.readouterr().err) == (
        2,
        "trial 0 (strategy=ddp, world_size=2) completed, 152 samples/s, metric 2.04\n",
    )


def test_what_is_at_rest_is_told_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    client = Answers([], [trial(0, "cancelled", metric=2.13, metric_step=36)])
    TrialNews(client, ID).tell(parsed(experiment(state="cancelled"), Experiment))  # type: ignore[arg-type]
    assert capsys.readouterr().err == "trial 0 (strategy=ddp, world_size=2) cancelled, 152 samples/s, metric 2.13\n"


def test_a_reason_to_wait_is_told_as_often_as_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    news = TrialNews(Answers([], []), ID)  # type: ignore[arg-type]
    for text in ("all slots are taken", "all slots are taken", "needs 4 slots"):
        news.tell(parsed(experiment(counts={"completed": 0}, waits_for={"code": "x", "text": text}), Experiment))
    assert capsys.readouterr().err.splitlines() == ["note: waiting: all slots are taken", "note: waiting: needs 4 slots"]


def test_an_end_names_its_reason() -> None:
    assert rest(parsed(trial(0, "refused", refusal="no way"), Trial)) == "trial 0 (strategy=ddp, world_size=2) refused: no way"


def test_the_line_says_how_far_it_is() -> None:
    line = progress_line(parsed(experiment(), Experiment))
    assert line == "ddp-vs-fsdp running: 1 of 3 completed, 1 running, 1 waiting; about 2 min 10 s left"
