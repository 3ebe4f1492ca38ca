"""What `paceline show` says of one job: what is known, in words that hold for its kind and state."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job

ID = job()["id"]
ONE = f"/training/jobs/{ID}"


def test_failure_has_the_users_part_of_its_traceback(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    shown = {"traceback": "Traceback:\n  trainer.py\n  crashy.py", "users_traceback": "Traceback:\n  … 1 frame of libraries\n  crashy.py"}
    failure = {"kind": "exception", "exception": "KeyError", "rank": 1, "node_name": "b", "message": "'y'", "last_lines": ["loading"]}
    coordinator.on("GET", ONE, Answer(200, job(state="failed", failure=failure | shown)))
    told = paceline("show", ID).stdout
    assert told.index("KeyError") < told.index("… 1 frame of libraries") < told.index("crashy.py") < told.index("loading")
    assert "trainer.py" not in told
    coordinator.on("GET", ONE, Answer(200, job(state="failed", failure=failure | shown | {"kind": "invalid_input"})))
    assert "Traceback" not in paceline("show", ID).stdout


def test_throughput_of_a_model_without_tokens_is_in_samples(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    progress = {"step": 7, "total_steps": 10, "samples_per_second": 688.0, "tokens_per_second": None}
    coordinator.on("GET", ONE, Answer(200, job(progress=progress)))
    assert re.search(r"^throughput +688 samples/s$", paceline("show", ID).stdout, re.M)
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": [job(progress=progress)], "next_cursor": None}))
    assert "688 samples/s" in paceline("jobs").stdout


def test_failure_names_the_exception(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    failure = {"kind": "exception", "exception": "KeyError", "rank": 1, "node_name": "b", "message": "'y'"}
    coordinator.on("GET", ONE, Answer(200, job(state="failed", failure=failure)))
    assert "KeyError: rank 1 on b: 'y'" in paceline("show", ID).stdout


def test_a_rank_that_ended_without_an_exception_is_the_subject_of_its_sentence(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    def told(kind: str, message: str) -> tuple[str, str]:
        failure = {"kind": kind, "rank": 1, "node_name": "b", "message": message}
        coordinator.on("GET", ONE, Answer(200, job(state="failed", failure=failure)))
        coordinator.on("GET", f"{ONE}/logs", Answer(200, {"items": [], "next_after": 0, "complete": True}))
        return paceline("wait", ID).stdout, " ".join(paceline("show", ID).stdout.split())

    ending, shown = told("exit", "exited with code 3")
    assert ending == "gpt failed: rank 1 (b) exited with code 3\n"
    assert "failure rank 1 on b exited with code 3" in shown
    ending, shown = told("signal", "killed by SIGKILL")
    assert ending == "gpt failed: rank 1 (b) was killed by SIGKILL\n"
    assert "failure rank 1 on b was killed by SIGKILL" in shown


def test_show_says_what_is_wanted_and_why_only_where_the_state_does_not(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    def said(**changes: Any) -> str:
        coordinator.on("GET", ONE, Answer(200, job(**changes)))
        lines = paceline("show", ID).stdout.splitlines()
        return next(line.removeprefix("state").strip() for line in lines if line.startswith("state"))

    assert said(state="completed", end_reason="completed") == "completed"
    assert said(state="failed", end_reason="rank_crashed") == "failed, reason: rank_crashed"
    assert said(state="running", desired="pause") == "running, wanted: pause"
    assert said(state="paused", desired="pause", end_reason="paused") == "paused"


def test_ended_job_lacks_nothing_that_may_still_come(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job(state="cancelled", generations=[], restarts=1, world_size=1)))
    shown = paceline("show", ID).stdout
    assert "yet" not in shown
    assert re.search(r"^first step +none$", shown, re.MULTILINE)
    assert re.search(r"^world +1 rank, ddp, generation 1, 1 restart$", shown, re.MULTILINE)


def test_queued_job_has_no_time_to_its_first_step(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job(state="queued", generations=[])))
    assert re.search(r"^first step +none yet$", paceline("show", ID).stdout, re.MULTILINE)


def test_a_scripts_newest_file_stands_for_its_checkpoint(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    def said_of(**progress: Any) -> str:
        coordinator.on("GET", ONE, Answer(200, job(strategy="script", progress={"step": 50, **progress})))
        return next(line for line in paceline("show", ID).stdout.splitlines() if line.startswith("saved"))

    assert said_of() == "saved       no checkpoint was seen below the working directory; the script may have saved elsewhere"
    saved = {"path": "/w/checkpoint-40", "bytes": 12_300_000, "step": 40, "time": "2026-11-20T09:00:00Z"}
    assert "/w/checkpoint-40: step 40 by its name, 11.7 MiB, " in said_of(saved_file=saved)
    assert "/w/checkpoint-40: 11.7 MiB, " in said_of(saved_file=saved | {"step": None})


def test_a_script_without_curves_is_told_the_way_to_some(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    def said_of(**facts: Any) -> list[str]:
        coordinator.on("GET", ONE, Answer(200, job(**{"strategy": "script"} | facts)))
        return [line.split(maxsplit=1)[1] for line in paceline("show", ID).stdout.splitlines() if line.startswith("curves ")]

    way = "curves of a script come from paceline.log(step, loss=...), TensorBoard files and printed lines such as 'step 120 loss 2.31' (docs/scripts.md)"
    assert said_of(state="running", progress={}) == [f"none yet: {way}"]
    assert said_of(state="completed", progress={}) == [f"none: {way}"]
    for has_some in (
        {"progress": {"step": 3, "updated_at": "2026-11-20T09:01:00Z"}},
        {"generations": [], "progress": {}},
        {"strategy": "ddp", "progress": {}},
    ):
        assert said_of(state="running", **has_some) == []


def test_show_says_what_became_of_a_bad_loss_and_which_samples_it_was_of(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    bad = {"step": 61, "what": "the loss of step 61 is NaN", "done": "the update was skipped", "sample_ids": [12, 55], "samples": 16}
    coordinator.on("GET", ONE, Answer(200, job(progress={"step": 70, "loss": 1.5, "bad_loss": bad})))
    shown = paceline("show", ID).stdout
    assert re.search(
        r"^bad loss +the loss of step 61 is NaN: the update was skipped\n +its samples: 12, 55 and 14 more$", shown, re.MULTILINE
    )
    coordinator.on("GET", ONE, Answer(200, job(progress={"step": 70, "loss": 1.5, "not_finite_step": 61, "bad_loss": bad})))
    shown = paceline("show", ID).stdout
    assert re.search(r"^loss +1\.500: not finite since step 61; .* is kept\n +its samples: 12, 55 and 14 more$", shown, re.MULTILINE)


def test_a_script_may_have_left_out_the_step_whose_loss_was_not_finite(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    for loss, shown in ((1.5, r"1\.500: was not finite at step 61"), ("NaN", "NaN: not finite since step 61")):
        coordinator.on("GET", ONE, Answer(200, job(strategy="script", progress={"step": 70, "loss": loss, "not_finite_step": 61})))
        assert re.search(rf"^loss +{shown}$", paceline("show", ID).stdout, re.MULTILINE)


def test_ranks_stand_in_a_mesh_where_it_has_more_than_replicas(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    def header_of(*places: dict[str, int]) -> str:
        ranks = [{"rank": rank, "node_name": "a", "slot": rank, "state": "running", "place": place} for rank, place in enumerate(places)]
        coordinator.on("GET", ONE, Answer(200, job(ranks=ranks)))
        return " ".join(next(line for line in paceline("show", ID).stdout.splitlines() if line.startswith("RANK")).split())

    assert header_of({"replicate": 0}, {"replicate": 1}).startswith("RANK NODE")
    assert header_of({"shard": 0, "tensor": 0}, {"shard": 0, "tensor": 1}).startswith("RANK SHARD TENSOR NODE")


def test_show_says_that_a_job_is_smaller_than_it_should_be_and_why(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    pending = {"code": "no_room_to_grow", "text": "runs with 1 of 2 ranks; 1 more slot wanted; none is free", "next_step": "add a node"}
    parked = {"rank": 1, "node_name": "b", "slot": 0, "state": "parked", "parked": True}
    coordinator.on("GET", ONE, Answer(200, job(actual_world_size=1, pending=pending, ranks=[parked])))
    shown = " ".join(paceline("show", ID).stdout.split())
    assert "runs with 1 of 2 ranks, 1 more parked, ddp, generation 1" in shown
    assert "lacks runs with 1 of 2 ranks; 1 more slot wanted; none is free" in shown
    assert "next step add a node" in shown


@pytest.mark.parametrize(
    ("communication", "words"),
    [
        ({"algorithm": "ring", "compression": "none"}, "summed over a ring, machine by machine"),
        (
            {"algorithm": "hierarchical", "compression": "top_k", "ratio": 0.01},
            "summed within machines, then between them; the largest 0.01 of the elements sent, the rest later",
        ),
        ({"algorithm": "backend", "compression": "power_sgd", "rank": 2}, "matrices sent as factors of rank 2, the rest later"),
    ],
)
def test_show_says_how_gradients_are_summed_where_the_job_asks_for_another_way(
    paceline: Paceline, coordinator: FakeCoordinator, communication: dict[str, Any], words: str
) -> None:
    coordinator.on("GET", ONE, Answer(200, job(spec={"communication": communication})))
    assert re.search(rf"^gradients +{re.escape(words)}$", paceline("show", ID).stdout, re.MULTILINE)


TWO_BY_TWO = ("one", "one", "two", "two")
SHARED = {"algorithm": "hierarchical", "compression": "none"}


@pytest.mark.parametrize(
    ("asked", "device", "hosts", "words"),
    [
        (SHARED, "cpu", TWO_BY_TWO, "summed within machines, then between them"),
        (SHARED, "cpu", ("one", "one", "two"), "summed over a ring, machine by machine: machines have not as many ranks each"),
        (SHARED, "cpu", ("one", "one"), "summed over a ring, machine by machine: all are on one machine"),
        (SHARED, "cpu", ("one", "two"), "summed over a ring, machine by machine: each is on a machine of its own"),
        (SHARED, "cuda", TWO_BY_TWO, "summed by NCCL, which knows the links"),
        (SHARED | {"compression": "bf16"}, "cuda", TWO_BY_TWO, "summed within machines, then between them; sent as bf16"),
        (
            SHARED | {"compression": "bf16"},
            "cuda",
            ("one", "one", "two"),
            "summed over all ranks: machines have not as many ranks each; sent as bf16",
        ),
        ({"algorithm": "ring", "compression": "none"}, "cuda", TWO_BY_TWO, "summed by NCCL, which knows the links"),
    ],
)
def test_show_says_how_gradients_are_summed_where_the_ranks_are(
    paceline: Paceline, coordinator: FakeCoordinator, asked: dict[str, Any], device: str, hosts: tuple[str, ...], words: str
) -> None:
    """Each rank has an agent of its own, of which several may be on one host."""
    ranks = [{"rank": rank, "node_name": f"n{rank}", "node_id": f"id{rank}", "slot": 0, "state": "running"} for rank in range(len(hosts))]
    nodes = [
        {"id": f"id{rank}", "name": f"n{rank}", "state": "online", "device": device, "slots": [], "address": "127.0.0.1", "hostname": host}
        for rank, host in enumerate(hosts)
    ]
    coordinator.on("GET", "/cluster/nodes", Answer(200, {"items": nodes, "next_cursor": None}))
    coordinator.on("GET", ONE, Answer(200, job(spec={"communication": asked}, ranks=ranks, world_size=len(hosts))))
    assert re.search(rf"^gradients +{re.escape(words)}$", paceline("show", ID).stdout, re.MULTILINE)


def test_show_says_what_auto_has_found_out(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    asked = {"communication": {"algorithm": "auto", "compression": "auto"}}
    coordinator.on("GET", ONE, Answer(200, job(spec=asked)))
    undecided = "summed in whichever way is measured to be fastest; compressed where that saves enough"
    assert re.search(rf"^gradients +{undecided}$", paceline("show", ID).stdout, re.MULTILINE)
    found = {
        "step": 25,
        "text": "bf16, by a ring: a step takes 1 s instead of 2 s",
        "links": "measured: 1 Gbit/s and 1 ms between machines",
    }
    found |= {"why": "faster", "name": "bf16", "waited_seconds": 1.0, "options": [], "within": None, "between": None}
    coordinator.on("GET", ONE, Answer(200, job(spec=asked, communication=found)))
    shown = paceline("show", ID).stdout
    assert re.search(r"^gradients +bf16, by a ring: a step takes 1 s instead of 2 s$", shown, re.MULTILINE)
    assert re.search(r"^links +measured: 1 Gbit/s", shown, re.MULTILINE)


def test_show_says_nothing_of_gradients_that_are_summed_as_ever(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job(spec={"communication": {"algorithm": "backend", "compression": "none"}})))
    assert "gradients" not in paceline("show", ID).stdout
