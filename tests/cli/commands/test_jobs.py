"""Jobs: submit, list, show, act, wait."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import ROOT, Paceline
from tests.cli.fake_coordinator import API, Answer, FakeCoordinator, Request, job, line, problem

ID = job()["id"]
ONE = f"/training/jobs/{ID}"
LOGS = f"{ONE}/logs"
SPEC = "name: gpt\ntraining: {steps: 10}\n"


def ended(state: str) -> Answer:
    return Answer(200, job(state=state, end_reason=state))


def page(*lines: dict[str, object], complete: bool = False, next_after: int | None = None) -> Answer:
    last = max([int(str(one["seq"])) for one in lines], default=0)
    return Answer(200, {"items": list(lines), "next_after": next_after or last, "complete": complete})


def test_submit_sends_the_changed_spec_once(paceline: Paceline, coordinator: FakeCoordinator, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SPEC)
    coordinator.on("POST", "/training/jobs", Answer(201, job(state="queued")))
    done = paceline("submit", "job.yaml", "--set", "training.steps=20", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["id"] == ID
    (request,) = coordinator.sent("POST", "/training/jobs")
    assert request.body == {"name": "gpt", "training": {"steps": 20}}
    assert request.headers["authorization"] == "Bearer pk_test"


def test_a_time_limit_goes_into_the_spec_as_it_is_typed(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", "/training/jobs", Answer(201, job(state="queued")))
    assert paceline("submit", "-", "--time-limit", "1h30m", stdin=SPEC).returncode == 0
    (request,) = coordinator.sent("POST", "/training/jobs")
    assert request.body == {"name": "gpt", "training": {"steps": 10}, "time_limit": "1h30m"}


def test_followed_job_that_reaches_its_time_limit_names_the_way_on(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", "/training/jobs", Answer(201, job()))
    coordinator.on("GET", LOGS, page(complete=True))
    coordinator.on("GET", ONE, Answer(200, job(state="failed", end_reason="time_limit", progress={"step": 40, "last_checkpoint_step": 40})))
    done = paceline("submit", "-", "--follow", stdin=SPEC)
    assert done.returncode == 10
    assert "failed (time_limit) at step 40; paceline checkpoints gpt, then paceline restore CHECKPOINT" in done.stderr


def test_lost_answer_is_asked_for_again_with_the_same_key(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", "/training/jobs", Answer(hang_up=True), Answer(201, job()))
    assert paceline("submit", "-", stdin=SPEC).returncode == 0
    keys = [request.headers["idempotency-key"] for request in coordinator.sent("POST", "/training/jobs")]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_outcome_is_unknown_when_no_answer_comes_at_all(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", "/training/jobs", Answer(hang_up=True))
    assert paceline("submit", "-", stdin=SPEC).returncode == 12


def test_followed_job_that_completes_exits_0_with_its_whole_log(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", "/training/jobs", Answer(201, job()))
    coordinator.on("GET", LOGS, page(line(1, "step 1")), page(next_after=1), page(line(2, "step 2"), complete=True), page(complete=True))
    coordinator.on("GET", ONE, ended("completed"))
    done = paceline("submit", "-", "--follow", stdin=SPEC)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"step \d", done.stdout) == ["step 1", "step 2"]
    assert [request.query["after"] for request in coordinator.sent("GET", LOGS)] == ["0", "1", "1", "2"]


def test_followed_job_says_once_why_it_waits(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    pending = {"code": "slots_taken", "text": "needs 1 node with 2 free slots", "next_step": "wait for a job to end"}
    waiting = job(state="queued", pending=pending)
    coordinator.on("POST", "/training/jobs", Answer(201, job(state="queued")))
    coordinator.on("GET", LOGS, page(complete=True))
    coordinator.on("GET", ONE, Answer(200, waiting), Answer(200, waiting), ended("completed"))
    done = paceline("submit", "-", "--follow", stdin=SPEC)
    assert done.returncode == 0, done.stderr
    waits = "note: waiting: needs 1 node with 2 free slots (wait for a job to end); Ctrl-C stops following, not the job\n"
    assert done.stderr.count(waits) == 1


def test_followed_job_that_fails_exits_10_and_names_the_cause(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    failure = {"kind": "rank_crashed", "rank": 1, "node_name": "b", "message": "ValueError: no"}
    coordinator.on("POST", "/training/jobs", Answer(201, job()))
    coordinator.on("GET", LOGS, page(complete=True))
    coordinator.on("GET", ONE, Answer(200, job(state="failed", failure=failure)))
    done = paceline("submit", "-", "--follow", stdin=SPEC)
    assert done.returncode == 10
    assert "rank_crashed on rank 1 (b): ValueError: no" in done.stderr


def test_after_a_cancelled_script_no_checkpoints_are_offered(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    def next_step(strategy: str) -> str:
        coordinator.on("GET", ONE, Answer(200, job(strategy=strategy)))
        coordinator.on("DELETE", ONE, Answer(200, job(strategy=strategy, state="stopping")))
        return paceline("cancel", ID).stderr

    assert next_step("script") == ""
    assert next_step("ddp") == f"next: paceline checkpoints {ID}\n"


def test_example_to_submit_is_one_that_is_there(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": [], "next_cursor": None}))
    assert paceline("jobs").stdout == f"no jobs; submit one with 'paceline submit {ROOT / 'examples' / 'gpt_stdlib.yaml'}'\n"


def test_a_message_of_several_lines_is_one_where_one_is_promised_and_whole_in_show(
    paceline: Paceline, coordinator: FakeCoordinator
) -> None:
    message = "shapes differ:\n  weight (2, 3)\nuse strict=False"
    failure = {"kind": "exception", "exception": "RuntimeError", "rank": 1, "node_name": "b", "message": message, "where": "load in a.py:3"}
    coordinator.on("GET", ONE, Answer(200, job(state="failed", failure=failure)))
    assert paceline("wait", ID).stdout == "gpt failed: RuntimeError on rank 1 (b): shapes differ: … (load in a.py:3)\n"
    lines = paceline("show", ID).stdout.splitlines()
    (first,) = [number for number, text in enumerate(lines) if text.startswith("failure")]
    assert lines[first].endswith("RuntimeError: rank 1 on b: shapes differ: … (load in a.py:3)")
    column = lines[first].index("RuntimeError")
    assert lines[first + 1 : first + 3] == [" " * column + "    weight (2, 3)", " " * column + "  use strict=False"]


def test_followed_job_that_is_cancelled_exits_11_with_one_document(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", "/training/jobs", Answer(201, job()))
    coordinator.on("GET", LOGS, page(line(1, "hello"), complete=True), page(complete=True))
    coordinator.on("GET", ONE, ended("cancelled"))
    done = paceline("submit", "-", "--follow", "--json", stdin=SPEC)
    assert done.returncode == 11
    assert json.loads(done.stdout)["state"] == "cancelled"
    assert "hello" in done.stderr


def test_jobs_follows_cursors_up_to_the_limit(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    first = Answer(200, {"items": [job(name="a"), job(name="b")], "next_cursor": "c2"})
    coordinator.on("GET", "/training/jobs", first, Answer(200, {"items": [job(name="c")], "next_cursor": None}))
    done = paceline("jobs", "--status", "running", "--output", "jsonl")
    assert [json.loads(text)["name"] for text in done.stdout.splitlines()] == ["a", "b", "c"]
    queries = [request.query for request in coordinator.sent("GET", "/training/jobs")]
    assert queries[0] == {"limit": "20", "status": "running", "sort": "-created_at"}
    assert (queries[1]["cursor"], queries[1]["limit"]) == ("c2", "18")


@pytest.mark.parametrize(
    ("key", "what"),
    [("pk_\u00e9x", "a character other than letters, digits and '_' at place 4 of 5"), ("pk\nx", "a space or line break at place 3 of 4")],
)
def test_a_key_that_cannot_travel_is_named_without_being_shown(paceline: Paceline, key: str, what: str) -> None:
    """It was `does not answer`, with the key, or a traceback."""
    done = paceline("jobs", "--api-key", key)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"error: the API key (from flag) has {what}"


def test_table_shows_nan_and_units_without_colour(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": [job()], "next_cursor": None}))
    done = paceline("jobs")
    assert "\x1b" not in done.stdout
    assert "7/10" in done.stdout
    assert "NaN" in done.stdout
    assert "12.3 k" in done.stdout


def test_the_list_and_the_job_say_what_stands_still(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """Only `show` told of a hang, and nothing of a silent node."""
    hang = {
        "since": "2026-11-20T12:00:00Z",
        "told_at": "2026-11-20T12:05:00Z",
        "message": "no output for 5 min",
        "differs": [1],
        "ends": False,
    }
    silent = {
        "node_id": "n",
        "node_name": "b",
        "since": "2026-11-20T12:00:00Z",
        "message": "node b (rank 1) has not been heard of for 40 s",
    }
    still = job(hang=hang, silent_nodes=[silent])
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": [still], "next_cursor": None}))
    assert "running (seems to hang, node b is silent)" in paceline("jobs").stdout
    coordinator.on("GET", ONE, Answer(200, still))
    assert re.search(r"silent +node b \(rank 1\) has not been heard of for 40 s", paceline("show", ID).stdout)


def test_output_yaml_is_the_servers_document(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job(unheard_of="kept")))
    assert yaml.safe_load(paceline("show", ID, "-o", "yaml").stdout) == job(unheard_of="kept")


def test_name_means_the_newest_job_of_exactly_that_name(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    listed = [job(name="gpt-2", id="OTHER"), job(), job(id="OLDER")]
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": listed, "next_cursor": None}))
    coordinator.on("GET", ONE, Answer(200, job()))
    done = paceline("show", "gpt")
    assert done.returncode == 0, done.stderr
    assert "0.84 s after submission" in done.stdout


def test_unknown_name_exits_5(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": [], "next_cursor": None}))
    assert paceline("show", "nobody").returncode == 5


def test_pause_carries_the_revision_and_tries_again_when_it_is_stale(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job(revision=3)), Answer(200, job(revision=4)))
    coordinator.on("PUT", f"{ONE}/pause", problem(412, "stale_revision", "it is 4 now"), Answer(200, job(desired="pause")))
    done = paceline("pause", ID)
    assert done.returncode == 0, done.stderr
    assert [request.headers["if-match"] for request in coordinator.sent("PUT", f"{ONE}/pause")] == ['"3"', '"4"']


def test_cancelling_a_finished_job_is_a_conflict(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job()))
    coordinator.on("DELETE", ONE, problem(409, "job_finished", "it completed an hour ago"))
    done = paceline("cancel", ID)
    assert done.returncode == 6
    assert "it completed an hour ago" in done.stderr


def test_wait_for_a_state_that_does_not_come_exits_8(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job(state="queued")))
    assert paceline("wait", ID, "--timeout", "0").returncode == 8


def test_wait_ends_with_the_job(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job()), ended("failed"))
    assert paceline("wait", ID).returncode == 10
    assert paceline("wait", ID, "--for", "failed").returncode == 0


def test_plan_is_asked_and_nothing_is_submitted(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    answer = {
        "plan_hash": "h1",
        "world_size": 2,
        "strategy": "ddp",
        "placement": None,
        "pending": {"code": "full", "text": "2 slots missing"},
    }
    coordinator.on("POST", "/training/plan", Answer(200, answer))
    done = paceline("plan", "-", "--set", "labels.team=my team", stdin=SPEC)
    assert done.returncode == 0, done.stderr
    assert "2 slots missing" in done.stdout
    assert "paceline submit - '--set=labels.team=my team' --plan-hash h1" in done.stderr  # what was planned
    assert not coordinator.sent("POST", "/training/jobs")


def test_plan_of_what_fits_nowhere_does_not_suggest_to_submit_it(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    pending = {"code": "cluster_too_small", "text": "needs 1 node with 9 slots", "next_step": "add nodes"}
    answer = {"plan_hash": "h1", "world_size": 9, "strategy": "ddp", "placement": None, "pending": pending}
    coordinator.on("POST", "/training/plan", Answer(200, answer))
    done = paceline("plan", "-", stdin=SPEC)
    assert (done.returncode, done.stderr) == (0, "")
    assert "add nodes" in done.stdout


def test_plan_tells_memory_by_part(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    memory = {"parameters": 4000, "gradients": 8000, "optimizer": 8000, "activations": 500_000, "buffers": 0, "total": 520_000}
    words = {"moment": "in the backward of the loss", "made_from": "micro-batches of 4 samples in fp32"}
    coordinator.on(
        "POST", "/training/plan", Answer(200, {"plan_hash": "h1", "world_size": 1, "strategy": "single", "memory_per_rank": memory | words})
    )
    done = paceline("plan", "-", stdin=SPEC)
    assert done.returncode == 0, done.stderr
    rows = dict(line.split("  ", 1) for line in done.stdout.splitlines() if "  " in line)
    assert rows["memory"].strip() == "520 kB a rank in the backward of the loss"
    assert rows["of which"].strip() == "activations 500 kB, parameters 4 kB, gradients 8 kB, optimizer 8 kB"
    assert rows["estimated"].strip() == "from micro-batches of 4 samples in fp32"


def test_plan_tells_what_was_chosen_and_what_became_of_the_other_plans(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    option = {"name": "shard 2, micro-batches of 4", "memory_bytes": 3_000_000, "step_seconds": 0.0412}
    larger = {"name": "replicate 2, micro-batches of 4", "memory_bytes": 5_000_000, "step_seconds": 0.03, "why": "needs 4.8 MiB"}
    choice = {"asked": ["parallelism.strategy: auto"], "why": "Shard 2: it fits.", "assumed": "assumed: links", "budget_bytes": 4_000_000}
    choice |= {"chosen": option, "rejected": [larger], "not_told": 3}
    coordinator.on("POST", "/training/plan", Answer(200, {"plan_hash": "h1", "world_size": 2, "strategy": "fsdp", "choice": choice}))
    done = paceline("plan", "-", stdin=SPEC)
    assert done.returncode == 0, done.stderr
    rows = dict(line.split("  ", 1) for line in done.stdout.splitlines() if "  " in line)
    assert (rows["asked for"].strip(), rows["chosen"].strip()) == ("parallelism.strategy: auto", "Shard 2: it fits.")
    table = done.stdout.split("\n\n")[1].splitlines()
    assert [line.split("  ")[0] for line in table] == ["PLAN", option["name"], larger["name"], "and 3 more"]
    assert table[2].endswith("5 MB           0.03 s    needs 4.8 MiB")


def test_plan_tells_what_each_stage_of_a_pipeline_has(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    stages = [{"place": 0, "layers": "the embedding, blocks 0 to 2"}, {"place": 1, "layers": "block 3, the head, the loss"}]
    answer = {"plan_hash": "h1", "world_size": 2, "strategy": "ddp, pipeline 2", "stages": stages}
    coordinator.on("POST", "/training/plan", Answer(200, answer))
    rows = dict(line.split("  ", 1) for line in paceline("plan", "-", stdin=SPEC).stdout.splitlines() if "  " in line)
    assert rows["stage 0"].strip() == "the embedding, blocks 0 to 2 (place 0)"
    assert rows["stage 1"].strip() == "block 3, the head, the loss (place 1)"


def test_tail_then_follow_reads_no_line_twice(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    def logs(request: Request) -> Answer:
        if request.query.get("tail"):
            return page(line(8, "eighth"), line(9, "ninth"))
        return page(line(10, "tenth"), complete=True) if request.query["after"] == "9" else page(complete=True, next_after=10)

    coordinator.handlers["GET", API + LOGS] = logs
    done = paceline("logs", ID, "--tail", "2", "-f", "--rank", "0", "--grep", "th")
    assert [text.split()[-1] for text in done.stdout.splitlines()] == ["eighth", "ninth", "tenth"]
    assert all(request.query["rank"] == "0" and request.query["q"] == "th" for request in coordinator.sent("GET", LOGS))


def test_restore_names_the_new_job(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", "/checkpoints/C1/restore", Answer(201, job(name="again")))
    done = paceline("restore", "C1", "--name", "again")
    assert done.returncode == 0, done.stderr
    assert coordinator.sent("POST", "/checkpoints/C1/restore")[0].body == {"name": "again"}


def test_resize_sends_the_number_of_nodes(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job()))
    coordinator.on("PUT", f"{ONE}/resize", Answer(200, job(world_size=3)))
    done = paceline("resize", ID, "3")
    assert done.returncode == 0, done.stderr
    (request,) = coordinator.sent("PUT", f"{ONE}/resize")
    assert (request.body, request.headers["if-match"]) == ({"nodes": 3}, '"3"')


def test_a_size_that_the_job_cannot_have_exits_6_and_one_that_is_none_exits_2(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job()))
    coordinator.on("PUT", f"{ONE}/resize", problem(409, "cannot_resize", "nodes=9 is more than resources.max_nodes=4; use 4 or fewer"))
    done = paceline("resize", ID, "9")
    assert (done.returncode, "use 4 or fewer" in done.stderr) == (6, True)
    assert paceline("resize", ID, "0").returncode == 2
    assert len(coordinator.sent("PUT", f"{ONE}/resize")) == 1


def test_restore_in_place_sets_the_job_itself_back(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", "/checkpoints/C1/restore", Answer(200, job(state="queued")))
    done = paceline("restore", "C1", "--in-place")
    assert "gpt (01JD0000000000000000000001) continues from C1; it is queued" in done.stdout
    assert coordinator.sent("POST", "/checkpoints/C1/restore")[0].body == {"in_place": True}
    refused = paceline("restore", "C1", "--in-place", "--name", "other")
    assert (refused.returncode, "--name other is of a new job" in refused.stderr) == (2, True)
