"""What the coordinator sees of a job's folder is told at once, to those who may run code on the nodes; a file system that hangs holds up nothing."""

from __future__ import annotations

import platform
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.core.folder_looks import MOST_LOOKS, FolderLooks, look_at
from paceline.training.spec.job import JobSpec
from tests import factories
from tests.conftest import Connect
from tests.loop_watchdog import watched
from tests.waiting import until

JOBS, PLAN = "/api/v1/training/jobs", "/api/v1/training/plan"


def script(folder: Path | None, **program: Any) -> JobSpec:
    environment = {"working_directory": str(folder)} if folder else {}
    parts = {"model": None, "data": None, "training": None, "script": program, "environment": environment}
    return factories.job_spec(**parts)


def entrypoint(folder: Path) -> JobSpec:
    return factories.job_spec(model=None, data=None, entrypoint="mine:make", environment={"working_directory": str(folder)})


def clashing(folder: Path) -> Path:
    (folder / "paceline.py").write_text("")
    (folder / "train.py").write_text("")
    return folder


def test_a_script_that_is_not_in_a_folder_that_is_here_is_told_of(tmp_path: Path) -> None:
    missing = f"script.path=train.py is not there, seen from {tmp_path}, on the coordinator's machine; every node needs it"
    assert look_at(script(tmp_path, path="train.py"), False) == [missing]
    assert look_at(script(None, path=f"{tmp_path}/x.py"), False) == [
        f"script.path={tmp_path}/x.py is not there on the coordinator's machine; every node needs it"
    ]
    (tmp_path / "train.py").write_text("")
    assert look_at(script(tmp_path, path="train.py"), False) == []


def test_a_folder_that_is_not_here_may_be_on_the_nodes_unless_they_are_all_here(tmp_path: Path) -> None:
    gone = script(tmp_path / "gone", path="train.py")
    assert look_at(gone, False) == []
    assert look_at(gone, True) == [f"environment.working_directory={tmp_path}/gone is not there, on the machine that all nodes are on"]
    assert look_at(script(None, path=f"{tmp_path}/gone/x.py"), False) == []
    assert look_at(script(None, path=f"{tmp_path}/gone/x.py"), True) != []


def test_a_relative_script_without_a_folder_is_nowhere(tmp_path: Path) -> None:
    assert look_at(script(None, path="train.py"), False) == [
        "script.path=train.py is relative, and the ranks start in an empty folder of their own: set environment.working_directory"
    ]


def test_names_of_ours_are_told_of_beside_the_script_not_where_it_runs(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    clashing(tmp_path / "src")
    (tmp_path / "train.py").write_text("")
    assert look_at(script(tmp_path, path="train.py"), False) == []
    assert "src/paceline.py has Paceline's name" in look_at(script(tmp_path, path="src/train.py"), False)[0]
    assert "the script imports yours" in look_at(script(tmp_path / "src", module="train"), False)[0]
    assert "an entrypoint imports Paceline's" in look_at(entrypoint(tmp_path / "src"), False)[0]
    assert look_at(script(tmp_path / "src", command="bash run.sh"), False) == []


def test_what_may_not_be_looked_at_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator may be another user than the ranks are."""

    def refused(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("paceline.api.core.folder_looks.os.stat", refused)
    assert look_at(script(tmp_path, path="train.py"), True) == []


async def test_a_file_system_that_hangs_holds_up_no_request() -> None:
    released, stuck = threading.Event(), script(Path("/hangs"), path="train.py")
    begun: list[JobSpec] = []

    def hang(spec: JobSpec, all_here: bool) -> list[str]:
        begun.append(spec)
        released.wait(30)
        return ["too late"]

    looks = FolderLooks(limit_seconds=0.05, look=hang)
    with watched() as loop:
        for _ in range(MOST_LOOKS):
            (warning,) = await looks.warnings(stuck, [])
            assert "did not answer within 0.05 s" in warning
        assert await looks.warnings(stuck, []) == []
    loop.assert_free()
    await until(lambda: len(begun) >= MOST_LOOKS, "the start of the threads")
    assert len(begun) == MOST_LOOKS  # and of no more
    released.set()


async def test_a_submission_and_a_plan_tell_a_member_and_not_a_viewer(
    client: httpx.AsyncClient, connect: Connect, services: Services, tmp_path: Path
) -> None:
    services.folders.limit_seconds = 60.0  # a busy machine may be late with a thread
    async with services.write() as session:
        await factories.create_node(session, inventory={"hostname": platform.node()})
        _, key = await factories.create_user(session, name="vera", role="viewer")
    spec = script(clashing(tmp_path), path="train.py").model_dump(mode="json")
    planned = (await client.post(PLAN, json=spec)).json()["warnings"]
    assert any("paceline.py has Paceline's name" in each for each in planned)
    headers = {"Idempotency-Key": "once"}
    first, second = [await client.post(JOBS, json=spec, headers=headers) for _ in range(2)]
    assert first.status_code == 201, first.text
    assert first.json()["warnings"] == second.json()["warnings"]
    assert "paceline.py has Paceline's name" in first.json()["warnings"][0]
    gone = script(tmp_path / "gone", path="train.py").model_dump(mode="json")
    assert "on the machine that all nodes are on" in (await client.post(JOBS, json=gone | {"name": "gone"})).json()["warnings"][0]
    async with connect(key) as viewer:
        told = (await viewer.post(PLAN, json=spec)).json()["warnings"]
    assert not any("Paceline's name" in each for each in told)
