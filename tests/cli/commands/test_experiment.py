"""`paceline experiment`: what is sent, what is told, and how it exits."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from paceline.cli.answers import parsed
from paceline.cli.api_types import Experiment
from paceline.cli.commands.experiment import exit_code
from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, analysis, experiment, problem, trial
from tests.e2e.stack import wait_until

ID = experiment()["id"]
ONE = f"/experiments/{ID}"
SPEC = "name: ddp-vs-fsdp\njob: {training: {steps: 40}}\ngrid:\n  parallelism.strategy: [ddp, fsdp]\n"
LISTED = Answer(200, {"items": [experiment()], "next_cursor": None})


def page(*items: dict[str, object]) -> Answer:
    return Answer(200, {"items": list(items), "next_cursor": None})


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "grid.yaml").write_text(SPEC)
    return "grid.yaml"


def test_run_tells_of_each_trial_once_and_ends_with_the_analysis(paceline: Paceline, coordinator: FakeCoordinator, file: str) -> None:
    ended = experiment(state="completed", counts={"completed": 2, "running": 0, "waiting": 0, "failed": 1})
    coordinator.on("POST", "/experiments", Answer(201, experiment()))
    coordinator.on("GET", ONE, Answer(200, experiment()), Answer(200, ended))
    failed = trial(2, "failed")
    failed["job"]["end_reason"] = "out_of_memory"
    coordinator.on(
        "GET", f"{ONE}/trials", page(trial(0, "completed"), trial(1, "running")), page(trial(0, "completed"), trial(1, "completed"), failed)
    )
    coordinator.on("POST", f"{ONE}/analyze", Answer(200, analysis()))
    done = paceline("experiment", "run", file, "--set", "grid.optimizer.lr=[0.1, 0.2]", "--set", "job.training.steps=50")
    assert done.returncode == 0, done.stderr
    (request,) = coordinator.sent("POST", "/experiments")
    assert request.body["grid"] == {"parallelism.strategy": ["ddp", "fsdp"], "optimizer.lr": [0.1, 0.2]}
    assert (request.body["job"], "idempotency-key" in request.headers) == ({"training": {"steps": 50}}, True)
    told = done.stderr.splitlines()
    assert "1 of 3 completed, 1 running, 1 waiting; http://" in told[0]
    assert told[1] == "Ctrl-C stops following, not the experiment"
    assert told[2] == "trial 0 (strategy=ddp, world_size=2) completed, 152 samples/s"
    assert told[4] == "trial 2 (strategy=ddp, world_size=2, repeat 2) failed, 152 samples/s, out_of_memory; paceline show ddp-vs-fsdp-2"
    assert (len(told), told[-1]) == (6, "next: paceline experiment export ddp-vs-fsdp report.html")
    assert done.stdout.startswith("recommendation: Take ddp.\ndoubt: Two ranks say nothing of a network.\n\n")


def test_a_requirements_file_is_read_for_all_trials(paceline: Paceline, coordinator: FakeCoordinator, file: str) -> None:
    (paceline.folder / "requirements.txt").write_text("numpy\n")
    coordinator.on("POST", "/experiments", Answer(201, experiment()))
    done = paceline("experiment", "run", file, "--no-follow", "--set", "job.environment.requirements=requirements.txt")
    assert done.returncode == 0, done.stderr
    assert coordinator.sent("POST", "/experiments")[0].body["job"]["environment"] == {"requirements": ["numpy"]}


@pytest.mark.parametrize(
    ("state", "counts", "code"),
    [
        ("cancelled", {"completed": 1, "cancelled": 2}, 11),
        ("completed", {"completed": 0, "failed": 3}, 10),
        ("completed", {"completed": 1, "failed": 2}, 0),
        ("stopped", {"completed": 0, "paused": 3}, 0),
    ],
)
def test_how_it_ends_is_the_exit_code(state: str, counts: dict[str, int], code: int) -> None:
    assert exit_code(parsed(experiment(state=state, counts=counts), Experiment)) == code


def test_ctrl_c_detaches_and_cancels_nothing(paceline: Paceline, coordinator: FakeCoordinator, file: str) -> None:
    coordinator.on("POST", "/experiments", Answer(201, experiment()))
    coordinator.on("GET", ONE, Answer(200, experiment(counts={"completed": 0})))
    coordinator.on("GET", f"{ONE}/trials", page(trial(0, "running")))
    process = paceline.start("experiment", "run", file)
    wait_until("a look at it", lambda: coordinator.sent("GET", ONE), 30)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130, told
    assert "detached; the experiment goes on. next: paceline experiment show ddp-vs-fsdp" in told
    assert {request.method for request in coordinator.requests} == {"GET", "POST"}


def test_a_refused_experiment_names_the_field(paceline: Paceline, coordinator: FakeCoordinator, file: str) -> None:
    field = {"pointer": "/grid/optimizer.speed", "code": "extra", "message": "there is no field optimizer.speed", "hint": "optimizer.lr"}
    coordinator.on("POST", "/experiments", problem(422, "invalid_experiment", "it is refused", errors=[field]))
    done = paceline("experiment", "run", file)
    assert done.returncode == 2
    assert "/grid/optimizer.speed (line 4): there is no field optimizer.speed -> optimizer.lr" in done.stderr


TAKEN = problem(409, "already_exists", "there is an experiment 'ddp-vs-fsdp' of ada in project 'default' already")


def plan_of(cancels: int) -> Answer:
    replaces = {"id": ID, "created_by": {"kind": "user", "id": "01JU0000000000000000000001", "name": "ada"}, "cancels": cancels}
    return Answer(200, {"trials": 2, "configurations": [], "replaces": replaces})


def test_run_asks_before_it_cancels_trials_of_the_experiment_that_is_there(
    paceline: Paceline, coordinator: FakeCoordinator, file: str
) -> None:
    coordinator.on("POST", "/experiments", TAKEN, Answer(200, experiment()))
    coordinator.on("POST", "/experiments/plan", plan_of(cancels=2))
    words = ("experiment", "run", file, "--no-follow")
    code, shown = paceline.at_terminal(*words, typed="n\n", until="Replace its grid? [y/N]")
    assert (code, "Aborted" in shown) == (1, True)
    assert "of ada" in shown
    assert "2 trials that this grid lacks will be cancelled, with what they have trained" in " ".join(shown.split())
    assert [each.headers.get("if-none-match") for each in coordinator.sent("POST", "/experiments")] == ["*"]
    assert paceline.at_terminal(*words, "--yes")[0] == 0
    assert paceline(*words).returncode == 0, "a script does what it is told"
    assert [each.headers.get("if-none-match") for each in coordinator.sent("POST", "/experiments")] == ["*", None, None]


def test_run_asks_nothing_where_it_only_adds_what_is_missing(paceline: Paceline, coordinator: FakeCoordinator, file: str) -> None:
    coordinator.on("POST", "/experiments", TAKEN, Answer(200, experiment()))
    coordinator.on("POST", "/experiments/plan", plan_of(cancels=0))
    assert paceline.at_terminal("experiment", "run", file, "--no-follow")[0] == 0
    assert [each.headers.get("if-none-match") for each in coordinator.sent("POST", "/experiments")] == ["*", None]


def test_plan_tells_what_would_run_and_what_not(paceline: Paceline, coordinator: FakeCoordinator, file: str) -> None:
    planned = {
        "values": {"parallelism.strategy": "ddp"},
        "world_size": 2,
        "repeats": 3,
        "baseline": False,
        "refusal": None,
    }
    refused = {**planned, "values": {"parallelism.strategy": "fsdp"}, "refusal": "no way"}
    document = {
        "trials": 6,
        "refused": 3,
        "axes": ["parallelism.strategy"],
        "configurations": [planned, refused],
        "seconds": 90.0,
        "slot_hours": 0.05,
    }
    coordinator.on("POST", "/experiments/plan", Answer(200, document))
    done = paceline("experiment", "plan", file)
    assert done.returncode == 0, done.stderr
    assert "trials      3 to run, 3 refused" in done.stdout
    assert "about 1 min 30 s with the slots of today" in done.stdout
    assert done.stdout.splitlines()[-1].split() == ["strategy=fsdp", "2", "3", "-", "no", "way"]
    assert "planned" not in done.stdout
    coordinator.on("POST", "/experiments/plan", Answer(200, {**document, "not_planned": 1}))
    assert "the first 1 of 2 configurations; others may be refused yet" in paceline("experiment", "plan", file).stdout


def test_a_plan_with_errors_exits_with_2_and_does_not_offer_to_run(paceline: Paceline, coordinator: FakeCoordinator, file: str) -> None:
    error = {"pointer": "/job/model_x", "message": "there is no field model_x; did you mean `model`?"}
    document = {"trials": 0, "refused": 0, "axes": [], "configurations": [], "seconds": None, "slot_hours": None, "errors": [error]}
    coordinator.on("POST", "/experiments/plan", Answer(200, document))
    done = paceline("experiment", "plan", file)
    assert done.returncode == 2
    assert "/job/model_x: there is no field model_x" in done.stdout
    assert "no configurations before the errors are mended" in done.stdout
    assert "experiment run" not in done.stdout + done.stderr


def test_a_plan_tells_of_its_budget_and_that_a_search_draws(paceline: Paceline, coordinator: FakeCoordinator, file: str) -> None:
    document = {"trials": 20, "refused": 0, "axes": ["optimizer.lr"], "configurations": [], "seconds": None, "slot_hours": None}
    coordinator.on("POST", "/experiments/plan", Answer(200, document))
    done = paceline("experiment", "plan", file, "--set", "budget.trials=9")
    assert done.returncode == 0, done.stderr
    assert "no more than 9 trials of them run" in done.stdout
    assert "configurations are drawn as the experiment runs" in done.stdout


def test_a_trial_whose_job_waits_for_slots_is_queued(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    waiting = trial(0, "running")
    waiting["job"]["state"] = "queued"
    coordinator.on("GET", "/experiments", LISTED)
    coordinator.on("GET", f"{ONE}/trials", page(waiting, trial(1, "running")))
    rows = paceline("experiment", "trials", ID).stdout.splitlines()[1:]
    assert ["queued" in row for row in rows] == [True, False]


def test_lists_and_pages_name_experiments_by_id_or_name(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/experiments", LISTED)
    coordinator.on("GET", ONE, Answer(200, experiment()))
    coordinator.on("GET", f"{ONE}/trials", page(trial(0, "refused", refusal="no way"), trial(1, "running")))
    assert (
        paceline("experiment", "list").stdout.splitlines()[1].startswith("ddp-vs-fsdp  running  1 of 3 completed, 1 running, 1 waiting  ")
    )
    shown = paceline("experiment", "show", "ddp-vs-fsdp")
    assert "left        2 min 10 s" in shown.stdout
    assert shown.stdout.splitlines()[-2].endswith("no way")
    listed = paceline("experiment", "trials", ID, "--json")
    assert [each["state"] for each in json.loads(listed.stdout)] == ["refused", "running"]
    unknown = paceline("experiment", "show", "other")
    assert (unknown.returncode, "paceline experiment list" in unknown.stderr) == (5, True)


CHANGED = {
    "pause": "ddp-vs-fsdp is paused\n",
    "resume": "Resuming ddp-vs-fsdp (paused)...\n",
    "cancel": "Cancelling ddp-vs-fsdp (paused)...\n",
}


def test_changes_are_asked_for_by_name(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/experiments", LISTED)
    coordinator.on("GET", ONE, Answer(200, experiment(state="paused")))
    for verb, method, path in (("pause", "PUT", f"{ONE}/pause"), ("resume", "PUT", f"{ONE}/resume"), ("cancel", "DELETE", ONE)):
        coordinator.on(method, path, Answer(200, experiment(state="paused")))
        done = paceline("experiment", verb, "ddp-vs-fsdp")
        assert (done.returncode, done.stdout) == (0, CHANGED[verb]), done.stderr
        assert len(coordinator.sent(method, path)) == 1


def test_export_writes_the_format_that_the_file_ends_in(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", f"{ONE}/export", Answer(200, b"<svg/>"))
    done = paceline("experiment", "export", ID, "step.svg", "--figure", "step_time")
    assert (done.returncode, (paceline.folder / "step.svg").read_text()) == (0, "<svg/>"), done.stderr
    assert coordinator.sent("GET", f"{ONE}/export")[0].query == {"format": "svg", "figure": "step_time"}
    paceline("experiment", "export", ID, "map.png", "--figure", "heatmap", "--x", "world_size", "--y", "optimizer.lr", "--value", "metric")
    asked = {"format": "png", "figure": "heatmap", "x": "world_size", "y": "optimizer.lr", "value": "metric"}
    assert coordinator.sent("GET", f"{ONE}/export")[1].query == asked
    for arguments, told in ((("step.svg",), "none is named"), (("report.pdf",), "'pdf' is no format of a report")):
        refused = paceline("experiment", "export", ID, *arguments)
        assert (refused.returncode, told in refused.stderr) == (2, True)


def test_an_export_before_any_analysis_names_the_command_that_makes_one(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    problem = {"code": "not_analyzed", "title": "The experiment has not been analyzed", "detail": "experiment x has not been analyzed"}
    coordinator.on("GET", f"{ONE}/export", Answer(409, problem))
    refused = paceline("experiment", "export", ID, "report.html")
    assert refused.returncode == 6, refused.stderr
    assert f"hint: paceline experiment analyze {ID}" in refused.stderr
    assert not (paceline.folder / "report.html").exists()
