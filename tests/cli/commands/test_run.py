"""`paceline run` beside a coordinator that answers what it is told to."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.cli.conftest import ROOT, TIMEOUT_S, Paceline
from tests.cli.fake_coordinator import API, Answer, FakeCoordinator, Request, job, line
from tests.waiting import wait_until

JOB = "01JD0000000000000000000001"
LOGS = f"/training/jobs/{JOB}/logs"
PENDING = {"code": "cluster_too_small", "text": "needs 1 node with 4 slots; the largest is 1", "next_step": "add nodes"}
END = Answer(200, {"items": [], "next_after": 2, "complete": True})


@pytest.fixture(autouse=True)
def script(paceline: Paceline) -> None:
    (paceline.folder / "train.py").write_text("")


def play(coordinator: FakeCoordinator, *states: dict[str, Any]) -> None:
    """The job in these states, one a look; its log has one line."""
    coordinator.on("GET", "/auth/me", Answer(200, {"user_id": "u"}))
    coordinator.on("POST", "/training/jobs", Answer(201, job(**states[0])))
    coordinator.on("GET", f"/training/jobs/{JOB}", *[Answer(200, job(**state)) for state in states])
    coordinator.on("GET", LOGS, Answer(200, {"items": [line(1, "hello", rank=1)], "next_after": 1, "complete": True}), END)


def spec(coordinator: FakeCoordinator) -> dict[str, Any]:
    return dict(coordinator.sent("POST", "/training/jobs")[0].body)


def test_a_launch_becomes_a_job_and_its_log_is_printed(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    play(coordinator, {"state": "completed"})
    done = paceline("run", "--nproc-per-node", "2", "train.py", "--lr=.0003", "1e4", "a b", "--", "--env")
    assert (done.returncode, done.stdout) == (0, "12:00:00 [1] hello\n"), done.stderr
    assert spec(coordinator) == {
        "name": "train",
        "script": {"path": "train.py", "args": ["--lr=.0003", "1e4", "a b", "--", "--env"]},
        "resources": {"nodes": 1, "slots_per_node": 2},
        "fault_tolerance": {"max_restarts": 0},
        "environment": {"working_directory": str(paceline.folder), "variables": {}},
    }


def test_everything_behind_two_dashes_is_torchrun_s(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    play(coordinator, {"state": "completed"})
    done = paceline("run", "--env", "A=1", "--", "--standalone", "--nproc_per_node=2", "-m", "my.train", "--detach")
    assert done.returncode == 0, done.stderr
    assert spec(coordinator)["script"] == {"module": "my.train", "args": ["--detach"]}
    assert spec(coordinator)["environment"]["variables"] == {"A": "1"}
    assert "note: --standalone: not needed" in done.stderr


@pytest.mark.parametrize(("state", "code"), [("failed", 10), ("cancelled", 11)])
def test_the_exit_code_is_that_of_submit(paceline: Paceline, coordinator: FakeCoordinator, state: str, code: int) -> None:
    failure = {"kind": "exception", "rank": 1, "node_name": "b", "message": "bad sample 17", "exception": "ValueError"}
    play(coordinator, {"state": state, "failure": failure if state == "failed" else None})
    done = paceline("run", "train.py")
    assert done.returncode == code
    assert state == "cancelled" or "failed: ValueError on rank 1 (b): bad sample 17" in done.stderr


def test_why_it_waits_is_said_once(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    waiting = {"state": "queued", "pending": PENDING}
    play(coordinator, waiting, waiting, waiting, {"state": "running"}, {"state": "completed"})
    done = paceline("run", "--nproc-per-node", "4", "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("waiting: needs 1 node with 4 slots; the largest is 1 (add nodes)") == 1


def test_the_first_ctrl_c_cancels_and_waits_for_the_end(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    play(coordinator, {"state": "running"})

    def cancelled(request: Request) -> Answer:
        play(coordinator, {"state": "cancelled"})
        coordinator.on("GET", LOGS, Answer(200, {"items": [line(2, "saved")], "next_after": 2, "complete": True}), END)
        return Answer(200, job(state="stopping"))

    coordinator.on("GET", LOGS, Answer(200, {"items": [], "next_after": 0, "complete": False}))
    coordinator.handlers["DELETE", f"{API}/training/jobs/{JOB}"] = cancelled
    process = paceline.start("run", "train.py")
    wait_until(lambda: coordinator.sent("GET", LOGS), "a look at the log", seconds=TIMEOUT_S)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert out == "12:00:00 [0] saved\n"
    assert "cancelling gpt" in err


def test_a_detached_job_goes_on_without_the_terminal(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    play(coordinator, {"state": "running"})
    done = paceline("run", "--nproc-per-node=2", "--detach", "--json", "train.py")
    assert (done.returncode, json.loads(done.stdout)["id"]) == (0, JOB), done.stderr
    assert not coordinator.sent("GET", LOGS)


def test_variables_stay_unless_they_are_named(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    play(coordinator, {"state": "completed"})
    done = paceline("run", "--env", "HF_HOME", "train.py", HF_HOME="/x", WANDB_API_KEY="secret")
    assert spec(coordinator)["environment"]["variables"] == {"HF_HOME": "/x"}
    assert "WANDB_API_KEY" in done.stderr
    assert "secret" not in done.stderr


def test_a_time_limit_is_paceline_s_own_option(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    play(coordinator, {"state": "completed"})
    assert paceline("run", "--nproc-per-node", "2", "--time-limit", "2h", "train.py", "--time-limit", "9").returncode == 0
    assert (spec(coordinator)["time_limit"], spec(coordinator)["script"]["args"]) == ("2h", ["--time-limit", "9"])


def test_the_job_has_the_name_that_is_typed_in_front_of_the_script(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    play(coordinator, {"state": "completed"})
    assert paceline("run", "--name", "baseline", "--nproc-per-node", "2", "train.py", "--name", "of the script").returncode == 0
    assert (spec(coordinator)["name"], spec(coordinator)["script"]["args"]) == ("baseline", ["--name", "of the script"])


def test_a_script_that_saves_says_so(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    play(coordinator, {"state": "completed"})
    assert paceline("run", "--nproc-per-node", "2", "--saves-on-sigterm", "train.py").returncode == 0
    assert spec(coordinator)["script"] == {"path": "train.py", "args": [], "saves_on_sigterm": True}


def test_ranks_by_device_are_those_that_nodes_have(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    play(coordinator, {"state": "completed"})
    node = {"id": "n", "name": "n", "state": "ready", "device": "cuda", "address": "", "slots": [{"index": 0}, {"index": 1}]}
    coordinator.on("GET", "/cluster/nodes", Answer(200, {"items": [node], "next_cursor": None}))
    assert paceline("run", "--nproc-per-node", "gpu", "train.py").returncode == 0
    assert spec(coordinator)["resources"] == {"nodes": 1, "slots_per_node": 2}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere.py"], "there is no script nowhere.py, seen from"),
        (["run.sh"], "write --no-python bash run.sh"),
        (["python3", "train.py"], "leave out python3: scripts are run by Python anyway"),
        ([], "there is no script to run"),
        (["--lr", "1", "train.py"], "--lr is no option of torchrun or of 'paceline run'"),
    ],
)
def test_a_slip_is_told_before_anything_is_submitted(paceline: Paceline, coordinator: FakeCoordinator, words: list[str], says: str) -> None:
    done = paceline("run", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert coordinator.requests == []


def test_a_second_task_of_slurm_does_not_launch_again(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    done = paceline("run", "--nnodes", "2", "train.py", SLURM_PROCID="1")
    assert done.returncode == 2
    assert "type it once, without srun" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nnodes", "2"], "--nnodes 2 needs a coordinator, and there is none (this Slurm job has 2 nodes)"),
        (["--nnodes", "2:4"], "--nnodes 2 needs a coordinator, and there is none (this Slurm job has 2 nodes)"),
        (["--tee", "3"], "--tee: a run without a coordinator that stays leaves no log files behind"),
        (["--detach"], "--detach needs a coordinator that stays"),
    ],
)
def test_what_needs_a_coordinator_is_refused_where_there_is_none(stranger: Paceline, words: list[str], says: str) -> None:
    done = stranger("run", *words, "train.py", SLURM_NNODES="2")
    assert done.returncode == 2
    assert says in done.stderr
    assert "paceline up" in done.stderr


def test_several_nodes_of_a_slurm_job_are_led_to_the_script_that_has_them(stranger: Paceline) -> None:
    """The way out was one token for all tasks of `srun`: it works once."""
    done = stranger("run", "--nnodes", "2", "train.py", SLURM_NNODES="2")
    assert "docs/scripts.md, 'In a Slurm job'" in done.stderr
    assert "## In a Slurm job\n" in (ROOT / "docs" / "scripts.md").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--time-limit", "1x"], "time_limit: Invalid value '1x': use a time from 1 s to 366 d"),
        (["--env", "RANK=1"], "environment.variables sets RANK"),
    ],
)
def test_a_private_run_that_will_be_refused_starts_no_coordinator(stranger: Paceline, words: list[str], says: str) -> None:
    """The refusal came after the whole stack had come up."""
    done = stranger("run", "--private", *words, "train.py")
    assert done.returncode == 2
    assert says in done.stderr
    assert "starting a coordinator" not in done.stderr


def test_a_coordinator_that_was_named_is_not_replaced_by_a_private_one(stranger: Paceline) -> None:
    done = stranger("run", "--server", "http://127.0.0.1:9", "train.py")
    assert done.returncode == 7
    assert "paceline run --private" in done.stderr


def test_help_has_examples_and_every_option(stranger: Paceline) -> None:
    done = stranger("run", "-h", COLUMNS="200")
    assert done.returncode == 0
    for word in ("paceline run --nproc-per-node 2 train.py --lr 0.1", "--env", "--detach", "--private", "--server"):
        assert word in done.stdout
