"""`paceline models`: registered, named by version or alias, downloaded."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job

CONTENT = b"weights"
JOB = job()["id"]


def version(number: int, *aliases: str, **changes: Any) -> dict[str, Any]:
    return {
        "model": "gpt",
        "number": number,
        "job_id": JOB,
        "job_name": "gpt-long",
        "checkpoint_id": f"C{number}",
        "path": None,
        "step": number * 10,
        "bytes": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "aliases": list(aliases),
        "download": f"/api/v1/checkpoints/C{number}/download",
        "created_at": "2026-11-20T12:00:00Z",
        **changes,
    }


FILE = version(1, checkpoint_id=None, path="rank0/model.pt", step=None, download=f"/api/v1/training/jobs/{JOB}/artifacts/A/content")


def models(coordinator: FakeCoordinator, *versions: dict[str, Any]) -> None:
    document = {"name": "gpt", "versions": list(versions)}
    coordinator.on("GET", "/models/gpt", Answer(200, document))
    coordinator.on("GET", "/models", Answer(200, {"items": [document], "next_cursor": None}))
    coordinator.on("POST", "/models", Answer(201, document))


def test_models_and_versions_are_listed(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    models(coordinator, version(2, "production"), FILE)
    assert paceline("models", "list").stdout.splitlines()[1].split()[:4] == ["gpt", "2", "2", "production=2"]
    shown = paceline("models", "show", "gpt").stdout
    assert "checkpoint of step 20" in shown
    assert "rank0/model.pt" in shown


def test_a_version_is_a_checkpoint_or_a_file(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    models(coordinator, version(2))
    done = paceline("models", "register", "gpt", "--checkpoint", "C2", "--alias", "production", "--alias", "candidate")
    assert done.stdout.strip() == "gpt:2"
    done = paceline("models", "register", "gpt", "--job", JOB, "--path", "rank0/model.pt", "--notes", "x")
    assert done.returncode == 0, done.stderr
    first, second = (request.body for request in coordinator.sent("POST", "/models"))
    assert first == {"name": "gpt", "notes": "", "aliases": ["production", "candidate"], "checkpoint_id": "C2"}
    assert second == {"name": "gpt", "notes": "x", "aliases": [], "job_id": JOB, "path": "rank0/model.pt"}
    for wrong in ([], ["--job", JOB], ["--path", "x"], ["--checkpoint", "C", "--job", JOB, "--path", "x"]):
        assert paceline("models", "register", "gpt", *wrong).returncode == 2


def test_an_alias_is_moved_and_removed(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("PUT", "/models/gpt/aliases/production", Answer(200, {}))
    coordinator.on("DELETE", "/models/gpt/aliases/production", Answer(200, {}))
    assert paceline("models", "alias", "gpt", "production", "2").stdout.strip() == "gpt@production is version 2"
    assert paceline("models", "alias", "gpt", "production", "--remove").returncode == 0
    assert paceline("models", "alias", "gpt", "production").returncode == 2
    (moved,) = coordinator.sent("PUT", "/models/gpt/aliases/production")
    assert moved.body == {"version": 2}


def test_a_model_is_named_by_its_newest_version_a_number_or_an_alias(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    models(coordinator, version(3), version(2, "production"), FILE)
    for number in (2, 3):
        coordinator.on("GET", f"/checkpoints/C{number}/download", Answer(200, CONTENT))
    coordinator.on("GET", f"/training/jobs/{JOB}/artifacts/A/content", Answer(200, CONTENT))
    for reference, expected in (("gpt", 3), ("gpt:2", 2), ("gpt@production", 2), ("gpt:1", 1)):
        done = paceline("models", "download", reference, "--into", "out", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["version"] == expected
    file = paceline.folder / "out" / "gpt-1" / "model.pt"
    assert file.read_bytes() == CONTENT
    file.write_bytes(b"changed here")
    refused = paceline("models", "download", "gpt:1", "--into", "out")
    assert (refused.returncode, "is not that of this version" in refused.stderr, file.read_bytes()) == (1, True, b"changed here")
    assert "--checkpoint is for checkpoints" in paceline("models", "download", "gpt:1", "--checkpoint").stderr
    assert coordinator.sent("GET", "/checkpoints/C3/download")[0].query == {"format": "safetensors"}
    missing = paceline("models", "download", "gpt@staging")
    assert (missing.returncode, "there is no version 'gpt@staging'" in missing.stderr) == (5, True)


def test_only_one_version_is_deleted_and_only_with_yes(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    models(coordinator, version(2))
    coordinator.on("DELETE", "/models/gpt/versions/2", Answer(204, b""))
    assert paceline("models", "delete", "gpt", "--yes").returncode == 2
    assert paceline("models", "delete", "gpt:2").returncode == 2
    assert coordinator.sent("DELETE", "/models/gpt/versions/2") == []
    assert paceline("models", "delete", "gpt:2", "--yes").stdout.strip() == "gpt:2 is deleted"
