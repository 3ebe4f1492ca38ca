"""The Python client: what it sends, what it takes for a spec, and what it raises."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline.client import ApiProblemError, JobEndedError, UsageProblem, WaitTimedOutError, document_of
from paceline.experiment_client import experiment_document_of
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job, problem, serve

ID = job()["id"]
ONE = f"/training/jobs/{ID}"
LISTED = {"items": [job()], "next_cursor": None}


@pytest.fixture
def coordinator() -> Iterator[FakeCoordinator]:
    with serve() as fake:
        yield fake


@pytest.fixture
def client(coordinator: FakeCoordinator) -> Iterator[paceline.Client]:
    with paceline.Client(coordinator.url, "pk_test") as client:
        yield client


def test_it_needs_no_torch() -> None:
    code = "import sys, paceline; paceline.Client('http://127.0.0.1:9', 'k'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_a_spec_is_a_mapping_a_yaml_text_or_a_path(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: a\ntraining: {steps: 3}\n")
    for spec in (
        {"name": "a", "training": {"steps": 3}},
        "name: a\ntraining: {steps: 3}",
        tmp_path / "job.yaml",
        str(tmp_path / "job.yaml"),
    ):
        assert document_of(spec) == {"name": "a", "training": {"steps": 3}}
    assert document_of("{name: a}") == {"name": "a"}


def test_a_spec_from_a_notebook_is_found_from_the_folder_of_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "requirements.txt").write_text("numpy\n")
    monkeypatch.chdir(tmp_path)
    spec = {"name": "a", "script": {"path": "train.py"}, "environment": {"requirements": "requirements.txt"}}
    found = {**spec, "environment": {"requirements": ["numpy"], "working_directory": str(tmp_path)}}
    assert document_of(spec) == found
    assert experiment_document_of({"name": "grid", "job": spec}) == {"name": "grid", "job": found}
    assert spec["environment"] == {"requirements": "requirements.txt"}


def test_a_requirements_file_is_read_with_the_spec(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\n")
    (tmp_path / "job.yaml").write_text("name: a\nenvironment: {requirements: requirements.txt}\n")
    (tmp_path / "grid.yaml").write_text("name: a\njob: {environment: {requirements: requirements.txt}}\n")
    assert document_of(tmp_path / "job.yaml")["environment"] == {"requirements": ["numpy"]}
    assert experiment_document_of(tmp_path / "grid.yaml")["job"]["environment"] == {"requirements": ["numpy"]}


@pytest.mark.parametrize(("spec", "told"), [("nowhere.yaml", "cannot be read"), ("- a\n- b", "holds a list"), ("name: [a\n", "as YAML")])
def test_a_spec_that_is_none_is_refused_here(spec: str, told: str) -> None:
    with pytest.raises(UsageProblem, match=told):
        document_of(spec)


@pytest.mark.parametrize("spec", [3, None, ["name: a"]])
def test_a_spec_of_another_type_is_refused_with_it(spec: Any) -> None:
    with pytest.raises(UsageProblem, match=f"no {type(spec).__name__}$"):
        document_of(spec)


def test_jobs_are_named_by_id_or_name(client: paceline.Client, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/training/jobs", Answer(200, LISTED))
    coordinator.on("PUT", f"{ONE}/pause", Answer(200, job(desired="pause")))
    coordinator.on("PUT", f"{ONE}/resize", Answer(200, job(world_size=3)))
    assert client.pause("gpt").desired == client.pause(ID).desired == "pause"
    assert client.resize(ID, 3).world_size == 3
    assert coordinator.sent("PUT", f"{ONE}/resize")[0].body == {"nodes": 3}
    assert "if-match" not in coordinator.sent("PUT", f"{ONE}/pause")[0].headers


def test_a_job_is_resized_in_slots_as_well(client: paceline.Client, coordinator: FakeCoordinator) -> None:
    coordinator.on("PUT", f"{ONE}/resize", Answer(200, job(world_size=6)))
    assert client.resize(ID, slots=6).world_size == 6
    assert coordinator.sent("PUT", f"{ONE}/resize")[0].body == {"slots": 6}
    for nodes, slots in ((None, None), (1, 6)):
        with pytest.raises(UsageProblem, match="nodes or slots, one of them"):
            client.resize(ID, nodes, slots=slots)


def test_a_submission_is_safe_to_repeat(client: paceline.Client, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", "/training/jobs", Answer(hang_up=True), Answer(201, job()))
    assert client.submit({"name": "gpt"}).id == ID
    first, second = coordinator.sent("POST", "/training/jobs")
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_a_refusal_is_an_exception_with_its_code(client: paceline.Client, coordinator: FakeCoordinator) -> None:
    coordinator.on("DELETE", ONE, problem(409, "job_finished", "job gpt is completed"))
    with pytest.raises(ApiProblemError, match="job gpt is completed") as refused:
        client.cancel(ID)
    assert (refused.value.status, refused.value.code) == (409, "job_finished")


def test_a_wait_has_an_end(client: paceline.Client, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job()))
    with pytest.raises(WaitTimedOutError, match="is still running after 0 s"):
        client.wait(ID, timeout=0)
    assert client.wait(ID, "running", timeout=0).state == "running"


def test_a_wait_for_a_state_that_cannot_come_any_more_raises(client: paceline.Client, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", f"/training/jobs/{ID}", Answer(200, job(state="completed")))
    with pytest.raises(JobEndedError, match=r"has ended \(completed\) and can't be paused any more"):
        client.wait(ID, "paused", timeout=0)


def test_a_number_that_json_has_not_is_refused_in_words(client: paceline.Client) -> None:
    size: dict[str, Any] = {"nodes": float("nan")}  # as a program without types may give it
    with pytest.raises(UsageProblem, match="NaN and infinity are no numbers that can be sent"):
        client.resize(ID, **size)


def test_a_wait_for_what_is_no_state_is_refused_at_once(client: paceline.Client) -> None:
    with pytest.raises(UsageProblem, match="'pausd' is no state of a job"):
        client.wait(ID, "pausd", timeout=0)


def test_points_come_once_and_again_where_steps_are_done_again(client: paceline.Client, coordinator: FakeCoordinator) -> None:
    """The fake coordinator has no streams, as behind a proxy that does not pass them."""

    def told(*curves: tuple[int, list[int]]) -> Answer:
        shared = {"name": "loss", "unit": "", "rank": 0, "bucket_steps": 1}
        each = [
            {**shared, "generation": generation, "steps": steps, "last": [float(s) for s in steps], "times": [0.0] * len(steps)}
            for generation, steps in curves
        ]
        return Answer(200, {"names": ["loss"], "curves": each, "as_of_seq": 1})

    second = job(generation=2)["generations"] + [{"generation": 2, "world_size": 2, "started_at": "2026-11-20T12:01:00Z", "start_step": 1}]
    coordinator.on(
        "GET", ONE, Answer(200, job()), Answer(200, job()), Answer(200, job(generation=2, generations=second, state="completed"))
    )
    coordinator.on("GET", f"/metrics/jobs/{ID}", told((1, [1, 2])), told((1, [2, 3])), told((1, [2, 3]), (2, [2, 3, 4])))
    seen = [(point.generation, point.step) for point in client.follow_metrics(ID, "loss")]
    assert seen == [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 4)]
    assert [request.query["first_step"] for request in coordinator.sent("GET", f"/metrics/jobs/{ID}")] == ["0", "2", "1"]


def test_whatever_the_client_has_can_be_awaited() -> None:
    def public(kind: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}

    assert public(paceline.AsyncClient) == public(paceline.Client)
