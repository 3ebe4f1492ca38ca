"""What a job's history looks like on a terminal."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job

ID = job()["id"]
ONE = f"/training/jobs/{ID}"
OTHER = "01JD0000000000000000000002"

CULPRIT = {
    "kind": "signal",
    "signal": "SIGKILL",
    "rank": 1,
    "node_name": "b",
    "message": "killed by SIGKILL",
    "last_lines": ["step 7", "the last line"],
    "victims": [{"kind": "peer_lost", "rank": 0, "node_name": "a", "message": "Connection closed by peer"}],
}
INCIDENT: dict[str, Any] = {
    "id": "01JD00000000000000000000AA",
    "outcome": "recovered",
    "what": "rank 1 on b was killed by SIGKILL",
    "why": "rank 1: killed by SIGKILL; rank 0 of 2 continues as generation 2",
    "done": "rank 0 continued as generation 2 from step 7; no step was lost",
    "step": 7,
    "steps_lost": 0,
    "seconds_lost": 0.04,
    "fault_at": "2026-11-20T12:00:05Z",
    "age_seconds": 0.31,
    "outage_seconds": 0.31,
    "old_size": 2,
    "new_size": 1,
    "culprit": CULPRIT,
    "phases": [{"name": "detect", "seconds": 0.011}, {"name": "first_step", "seconds": 0.299, "under_way": False}],
}
GOODPUT = {
    "text": "90.0% of the 20 s since the job got its slots went into useful training (7 steps)",
    "goodput": 0.9,
    "wall_seconds": 20.0,
    "parts": [
        {"cause": "stepping", "seconds": 18.0, "share": 0.9},
        {"cause": "starting", "seconds": 0.55, "share": 0.0275},
        {"cause": "evaluating_and_saving", "seconds": 1.4, "share": 0.07},
        {"cause": "incident", "seconds": 0.05, "share": 0.0025},
    ],
}


PERFORMANCE = {
    "steps": 50,
    "step_seconds": 0.25,
    "exposed_communication": 0.125,
    "overlapped_communication": 0.03,
    "traffic": [
        {"axis": "pipeline", "rank": 1, "bytes_per_step": 1.5e6, "bytes_per_second": 6e6},
        {"axis": "world", "rank": 0, "bytes_per_step": 240.0},
    ],
    "uncounted": ["tensor"],
    "bubble": {"measured": 0.15, "formula": 0.111, "text": "1f1b, 8 micro-batches through 2 stages on 2 ranks"},
    "mfu": {
        "text": "not available: no peak FLOP/s is published for this CPU",
        "formula": "6N per sample, N=1,000",
        "flops_per_second": 768_000.0,
    },
    "peak_memory": [{"rank": 0, "bytes": 4e8}, {"rank": 1, "bytes": 5e8}],
}


def hurt(**changes: Any) -> dict[str, Any]:
    generations = [
        {"generation": 1, "world_size": 2, "started_at": "2026-11-20T12:00:00.1Z"},
        {"generation": 2, "world_size": 1, "started_at": "2026-11-20T12:00:05.1Z"},
    ]
    return job(generation=2, generations=generations, started_at="2026-11-20T12:00:00.1Z", **changes)


def test_show_tells_apart_what_the_other_ranks_have_to_do_with_a_failure(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    own = {**CULPRIT, "kind": "exception", "exception": "KeyError", "message": "'lr'", "where": "main in train.py:7", "signal": None}
    others = [
        {**own, "rank": 0, "share": "same"},
        {**own, "rank": 2, "share": "also", "message": "'wd'"},
        {**own, "rank": 3, "share": "victim"},
    ]
    coordinator.on("GET", ONE, Answer(200, hurt(state="failed", end_reason="rank_crashed", failure={**own, "victims": others})))
    for part, answer in (("goodput", GOODPUT), ("performance", PERFORMANCE), ("incidents", [])):
        coordinator.on("GET", f"{ONE}/{part}", Answer(200, answer))
    lines = [" ".join(line.split()) for line in paceline("show", ID).stdout.splitlines()]
    about = lines.index("failure KeyError: rank 1 on b: 'lr' (main in train.py:7)")
    assert lines[about + 3 : about + 6] == [
        "the same on rank 0 on b",
        "also KeyError: rank 2 on b: 'wd' (main in train.py:7)",
        "failed as a result: rank 3 on b",
    ]


def test_show_tells_the_truth_about_a_failure_first(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, hurt(state="failed", end_reason="rank_crashed", failure=CULPRIT)))
    coordinator.on("GET", f"{ONE}/goodput", Answer(200, GOODPUT))
    coordinator.on("GET", f"{ONE}/performance", Answer(200, PERFORMANCE))
    coordinator.on("GET", f"{ONE}/incidents", Answer(200, [INCIDENT]))
    done = paceline("show", ID)
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    about = lines.index("failure rank 1 on b was killed by SIGKILL")
    assert lines[about + 1 : about + 4] == ["step 7", "the last line", "failed as a result: rank 0 on a"]
    assert about < next(number for number, line in enumerate(lines) if line.startswith("loss"))
    assert "world ran with 1 of 2 ranks, ddp, generation 2, 0 restarts" in lines
    assert "goodput 90.0% of the 20 s since the job got its slots went into useful training (7 steps)" in lines
    assert "the rest: evaluating and saving 1.4 s (7%), starting 0.6 s (3%)" in lines
    assert "MFU not available: no peak FLOP/s is published for this CPU" in lines
    assert "model FLOP/s 768 kFLOP/s, forward and backward, on all ranks" in lines
    sending = lines.index("exposed comm. 12.5% of a step of 0.250 s waits for other ranks; 3.0% more passes while rank 0 computes")
    assert lines[sending + 1 : sending + 4] == [
        "sent pipeline: 1.4 MiB a step from rank 1, 5.7 MiB/s",
        "world: 240 B a step from rank 0",
        "tensor: not counted, torch itself sends along it",
    ]
    assert "bubble 15.0% of a step, 11.1% by the formula: 1f1b, 8 micro-batches through 2 stages on 2 ranks" in lines
    assert "peak memory 476.8 MiB, rank 1" in lines
    row = next(line for line in lines if "recovered" in line)
    for part in ("0.31 s", "0 steps, 0.0 s", INCIDENT["what"], INCIDENT["done"]):
        assert part in row


def test_show_says_that_exposed_communication_is_not_known(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    parts = [{"name": "backward_seconds", "seconds": 0.25, "share": 1.0}]
    coordinator.on("GET", ONE, Answer(200, hurt()))
    for part, answer in (("goodput", GOODPUT), ("incidents", [])):
        coordinator.on("GET", f"{ONE}/{part}", Answer(200, answer))
    coordinator.on("GET", f"{ONE}/performance", Answer(200, PERFORMANCE | {"exposed_communication": None, "parts": parts}))
    assert "not known: with fsdp and tensor parallelism on GPUs" in paceline("show", ID).stdout


def test_show_says_what_the_newest_save_cost(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    newest = {"id": "C", "step": 6, "state": "committed", "bytes": 1, "best": True, "latest": True, "pinned": False}
    newest |= {"created_at": "2026-11-20T12:00:05Z", "stall_seconds": 0.0123, "write_seconds": 0.41, "slowdown": 1.068}
    coordinator.on("GET", ONE, Answer(200, job(progress={"step": 7, "total_steps": 10, "last_checkpoint_step": 6})))
    coordinator.on("GET", f"/checkpoints/jobs/{ID}", Answer(200, {"items": [newest], "next_cursor": None}))
    done = paceline("show", ID)
    assert done.returncode == 0, done.stderr
    assert "step 6: training waited 0.012 s, written in 0.410 s, steps meanwhile x 1.07" in done.stdout


def test_show_of_a_healthy_job_asks_for_no_incidents(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job()))
    done = paceline("show", ID)
    assert done.returncode == 0, done.stderr
    assert "2 ranks, ddp, generation 1" in done.stdout
    assert not coordinator.sent("GET", f"{ONE}/incidents")


def test_incidents_are_told_with_their_phases(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", f"{ONE}/incidents", Answer(200, [INCIDENT]))
    done = paceline("incidents", ID)
    assert done.returncode == 0, done.stderr
    assert "at step 7, 2 -> 1 rank: rank 1 on b was killed by SIGKILL" in done.stdout
    assert "detect 0.011 s, first step 0.299 s" in done.stdout
    assert "the last line" in done.stdout
    assert json.loads(paceline("incidents", ID, "--json").stdout) == [INCIDENT]


def test_repeated_steps_of_a_script_that_does_not_tell_them_are_unknown(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    unknown = INCIDENT | {"steps_lost": None, "seconds_lost": None, "done": "all ranks restarted as generation 2"}
    coordinator.on("GET", f"{ONE}/incidents", Answer(200, [unknown]))
    assert "recovered  0.31 s  unknown  rank 1 on b" in paceline("incidents", ID).stdout
    coordinator.on("GET", f"{ONE}/incidents", Answer(200, [unknown | {"outcome": "open"}]))
    assert "unknown" not in paceline("incidents", ID).stdout


def test_incidents_show_the_users_part_of_a_traceback(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    raised = CULPRIT | {
        "kind": "exception",
        "traceback": "  trainer.py\n  mine.py",
        "users_traceback": "  … 1 frame of libraries\n  mine.py",
    }
    coordinator.on("GET", f"{ONE}/incidents", Answer(200, [INCIDENT | {"culprit": raised}]))
    shown = paceline("incidents", ID).stdout
    assert shown.index("… 1 frame of libraries") < shown.index("mine.py") < shown.index("the last line")
    assert "trainer.py" not in shown


def test_an_open_incident_says_so_far(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    open_one = INCIDENT | {
        "outcome": "open",
        "outage_seconds": None,
        "steps_lost": None,
        "phases": [{"name": "place", "seconds": 4.0, "under_way": True}],
    }
    coordinator.on("GET", f"{ONE}/incidents", Answer(200, [open_one]))
    assert "place 4.000 s so far" in paceline("incidents", ID).stdout


def audit(*ranges: tuple[int, int, int], cursor: str | None = None, **changes: Any) -> Answer:
    listed = [
        {
            "generation": generation,
            "first_step": first,
            "last_step": last,
            "first_sample": (first - 1) * 8,
            "samples": (last - first + 1) * 8,
        }
        for generation, first, last in ranges
    ]
    whole = {"text": "exactly once: 20 steps", "exactly_once": True, "findings": []}
    return Answer(200, {**whole, "ranges": listed, "next_cursor": cursor, **changes})


def test_samples_lists_every_page(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", f"{ONE}/samples", audit((1, 1, 10), cursor="more"), audit((2, 11, 20)))
    done = paceline("samples", ID)
    assert done.returncode == 0, done.stderr
    assert "exactly once: 20 steps" in done.stdout
    assert "1 to 10" in done.stdout
    assert "80 to 159" in done.stdout
    assert [request.query.get("cursor") for request in coordinator.sent("GET", f"{ONE}/samples")] == [None, "more"]


def test_samples_that_were_used_twice_make_it_fail(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on(
        "GET",
        f"{ONE}/samples",
        audit((1, 1, 2), exactly_once=False, text="not exactly once", findings=["places 8 to 15 were used more than once"]),
    )
    done = paceline("samples", ID, "--step", "2")
    assert done.returncode == 1
    assert "places 8 to 15 were used more than once" in done.stdout
    assert coordinator.sent("GET", f"{ONE}/samples")[0].query["step"] == "2"


def test_compare_quotes_the_verdict_and_fails_like_cmp(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    metric = {"name": "loss", "compared": 500, "equal": 500, "largest_relative_difference": 0.0}
    differs = {"text": "training.seed: 1 and 2; may change the numbers", "changes_numbers": True}
    same = {"text": "same run, to the last bit: 500 of 500 steps equal", "same_run": True, "metrics": [metric]}
    other = {"text": "equal until step 136, then differs", "same_run": False, "spec_differences": [differs]}
    coordinator.on("GET", "/training/compare", Answer(200, {"items": [same]}), Answer(200, {"items": [same, other]}))
    done = paceline("compare", ID, OTHER)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("same run, to the last bit: 500 of 500 steps equal\n")
    assert coordinator.sent("GET", "/training/compare")[0].query["jobs"] == f"{ID},{OTHER}"
    done = paceline("compare", ID, OTHER, ID)
    assert done.returncode == 1
    assert differs["text"] in done.stdout  # type: ignore[operator]


def test_compare_lists_the_files_by_which_the_code_differs(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """It showed two digests."""
    before, after = "a" * 64, "b" * 64
    differs = {"path": "environment.code.bundle", "values": [f'"{before}"', f'"{after}"'], "text": "bundle", "changes_numbers": True}
    other = {"text": "differs", "same_run": False, "spec_differences": [differs]}
    coordinator.on("GET", "/training/compare", Answer(200, {"items": [other]}))
    changes = {"since": before, "added": ["new.py"], "removed": ["old.py"], "changed": [f"{n:03}.py" for n in range(60)], "count": 62}
    coordinator.on("GET", f"/training/bundles/{after}/changes", Answer(200, changes))
    done = paceline("compare", ID, OTHER)
    assert done.returncode == 1, done.stderr
    assert coordinator.sent("GET", f"/training/bundles/{after}/changes")[0].query["since"] == before
    assert "  + new.py\n  - old.py\n  ~ 000.py\n" in done.stdout
    assert done.stdout.endswith("  ~ 037.py\n  and 22 more files\n")
    told = paceline("compare", ID, OTHER, "--json")
    assert json.loads(told.stdout) == {"items": [other | {"code_changes": changes}]}, "programs were told two digests"
    coordinator.on("GET", f"/training/bundles/{after}/changes", Answer(404, {"detail": "bundle a is not here", "code": "not_found"}))
    told = paceline("compare", ID, OTHER, "--json")
    assert "which files of their code differ is not known: bundle a is not here" in told.stderr
    assert json.loads(told.stdout)["items"][0]["code_changes"] is None


def test_two_names_of_one_job_are_refused_in_words_of_the_command(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """It was `name 2 to 8, as jobs=ID,ID`."""
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": [job()], "next_cursor": None}))
    done = paceline("compare", "gpt", job()["id"])
    assert (done.returncode, "compare takes two or more" in done.stderr) == (2, True)
