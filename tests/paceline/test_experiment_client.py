"""What the Python client does with experiments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline
from paceline.client import ApiProblemError, UsageProblem, WaitTimedOutError
from paceline.experiment_client import experiment_document_of
from tests.cli.fake_coordinator import Answer, FakeCoordinator, analysis, experiment, problem, serve, trial

ID = experiment()["id"]
ONE = f"/experiments/{ID}"


@pytest.fixture
def coordinator() -> Iterator[FakeCoordinator]:
    with serve() as fake:
        fake.on("GET", "/experiments", Answer(200, {"items": [experiment()], "next_cursor": None}))
        yield fake


@pytest.fixture
def client(coordinator: FakeCoordinator) -> Iterator[paceline.Client]:
    with paceline.Client(coordinator.url, "pk_test") as client:
        yield client


def test_a_spec_is_a_mapping_a_text_or_a_file_whose_job_is_found_from_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    file = tmp_path / "grid.yaml"
    file.write_text("name: a\njob: {script: {path: train.py}}\n")
    assert experiment_document_of(file)["job"]["environment"] == {"working_directory": str(tmp_path)}
    assert experiment_document_of("name: a\njob: {}") == experiment_document_of({"name": "a", "job": {}}) == {"name": "a", "job": {}}
    with pytest.raises(UsageProblem, match="and no int"):
        experiment_document_of(3)  # type: ignore[arg-type]


def test_an_experiment_from_its_plan_to_its_analysis(client: paceline.Client, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", "/experiments/plan", Answer(200, {"trials": 2, "configurations": [{"values": {}, "world_size": 2}]}))
    coordinator.on("POST", "/experiments", Answer(hang_up=True), Answer(201, experiment()))
    coordinator.on("GET", ONE, Answer(200, experiment()), Answer(200, experiment(state="completed")))
    coordinator.on("GET", f"{ONE}/trials", Answer(200, {"items": [trial(0, "completed")], "next_cursor": None}))
    coordinator.on("POST", f"{ONE}/analyze", Answer(200, analysis()))
    assert client.plan_experiment({"name": "a"}).configurations[0].world_size == 2
    assert client.submit_experiment({"name": "a"}).id == ID
    first, second = coordinator.sent("POST", "/experiments")
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert client.wait_for_experiment("ddp-vs-fsdp").state == "completed"
    assert [each.job.name for each in client.trials(ID) if each.job] == ["ddp-vs-fsdp-0"]
    speed = client.analyze(ID).analysis.configurations[0].samples_per_second
    assert speed is not None
    assert (speed.value, speed.low) == (152.0, 148.0)
    assert [each.name for each in client.experiments(status="running")] == ["ddp-vs-fsdp"]


def test_a_wait_has_an_end_and_a_refusal_its_code(client: paceline.Client, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, experiment()))
    coordinator.on("PUT", f"{ONE}/pause", problem(409, "experiment_ended", "it has ended"))
    with pytest.raises(WaitTimedOutError, match="is still running after 0 s"):
        client.wait_for_experiment(ID, timeout=0)
    with pytest.raises(ApiProblemError, match="it has ended"):
        client.pause_experiment(ID)


def test_changes_go_to_the_experiment(client: paceline.Client, coordinator: FakeCoordinator) -> None:
    coordinator.on("PUT", f"{ONE}/resume", Answer(200, experiment()))
    coordinator.on("DELETE", ONE, Answer(200, experiment(state="cancelled")))
    assert client.resume_experiment("ddp-vs-fsdp").state == "running"
    assert client.cancel_experiment("ddp-vs-fsdp").state == "cancelled"


def test_an_export_is_a_file_whose_name_says_its_format(client: paceline.Client, coordinator: FakeCoordinator, tmp_path: Path) -> None:
    coordinator.on("GET", f"{ONE}/export", Answer(200, b"# report"))
    assert client.export_experiment(ID, tmp_path / "report.md").read_text() == "# report"
    with pytest.raises(UsageProblem, match="none is named"):
        client.export_experiment(ID, tmp_path / "step.png")
    client.export_experiment(ID, tmp_path / "map.svg", figure="heatmap", x="world_size", value="metric")
    of_map = {"format": "svg", "figure": "heatmap", "x": "world_size", "value": "metric"}
    assert [request.query for request in coordinator.sent("GET", f"{ONE}/export")] == [{"format": "md"}, of_map]
