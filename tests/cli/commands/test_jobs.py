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


def page(*lines: dict[str, object], complete: bool = False, next_after: int | None = None, **more: object) -> Answer:
    last = max([int(str(one["seq"])) for one in lines], default=0)
    return Answer(200, {"items": list(lines), "next_after": next_after or last, "complete": complete, **more})


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
    coordinator.on("GET", LOGS, page(complete=True))
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
    listed = [job(), job(id="OLDER")]
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
    coordinator.on("GET", LOGS, page(complete=True))
    assert paceline("wait", ID).returncode == 10
    done = paceline("wait", ID, "--for", "failed")
    assert (done.returncode, done.stderr) == (0, "")


def test_wait_says_that_the_log_is_still_arriving(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, ended("completed"))
    coordinator.on("GET", LOGS, page(line(5, "step 5"), arriving=True))
    done = paceline("wait", ID)
    assert (done.returncode, done.stderr) == (0, f"note: the end of its log is still arriving. next: paceline logs -f {ID}\n")


def test_a_state_that_no_job_has_is_refused_before_anything_is_asked(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """`--for flying` waited for an hour, and exited 0 where the job had completed."""
    done = paceline("wait", ID, "--for", "running,flying")
    assert (done.returncode, coordinator.requests) == (2, [])
    assert "'flying' is not a state of a job" in done.stderr
    assert "queued" in done.stderr


@pytest.mark.parametrize(("end", "code"), [("completed", 6), ("failed", 10), ("cancelled", 11)])
def test_wait_for_a_state_that_cannot_come_any_more_does_not_exit_0(
    paceline: Paceline, coordinator: FakeCoordinator, end: str, code: int
) -> None:
    coordinator.on("GET", ONE, ended(end))
    coordinator.on("GET", LOGS, page(complete=True))
    done = paceline("wait", ID, "--for", "paused")
    assert (done.returncode, "gpt has ended and can't be paused any more" in done.stderr) == (code, True)


def test_submit_takes_a_name_and_prints_the_page_of_the_job(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", "/training/jobs", Answer(201, job(state="queued", name="long")))
    done = paceline("submit", "-", "--name", "long", stdin=SPEC)
    (request,) = coordinator.sent("POST", "/training/jobs")
    assert request.body["name"] == "long"
    assert f"page   {coordinator.url}/jobs/{ID}\n" in done.stdout


def test_open_prints_the_page_of_a_job_and_show_has_it(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job()))
    url = f"{coordinator.url}/jobs/{ID}"
    assert paceline("open", ID, DISPLAY="", WAYLAND_DISPLAY="").stdout == f"{url}\n"
    assert url in paceline("show", ID).stdout


def test_jobs_of_an_experiment_are_asked_for_by_its_name(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": [job()], "next_cursor": None}))
    assert paceline("jobs", "--experiment", "ddp-vs-fsdp").returncode == 0
    assert coordinator.sent("GET", "/training/jobs")[0].query["experiment"] == "ddp-vs-fsdp"


def test_watch_shows_the_list_again_until_ctrl_c(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on(
        "GET", "/training/jobs", *(Answer(200, {"items": [job(state=state)], "next_cursor": None}) for state in ("queued", "running"))
    )
    code, shown = paceline.at_terminal("jobs", "--watch", until="running", typed="\x03")
    assert code == 130
    assert shown.index("queued") < shown.index("running")
    assert (shown.count("\x1b[H\x1b[2J") >= 2, "^[" in shown) == (True, False), "the screen is cleared, not told how"
    refused = paceline("jobs", "--watch")
    assert (refused.returncode, "draws on a terminal" in refused.stderr) == (2, True)


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
    assert "gpt (01JD0000000000000000000001) continues from C1; it is queued\npage  http://" in done.stdout
    assert coordinator.sent("POST", "/checkpoints/C1/restore")[0].body == {"in_place": True}
    refused = paceline("restore", "C1", "--in-place", "--name", "other")
    assert (refused.returncode, "--name other is of a new job" in refused.stderr) == (2, True)
