"""`submit` and `plan` find a relative script and folder as a user expects, and name what is not there before anything is sent."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.job_folder import in_its_folder, why_missing
from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job, problem

SCRIPT = {"script": {"path": "train.py"}}
HERE = {"items": [{"name": "n", "hostname": platform.node()}], "next_cursor": None}
ELSEWHERE = {"items": [*HERE["items"], {"name": "m", "hostname": "another"}], "next_cursor": None}


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The folder of the spec's file, and the working directory."""
    beside, here = tmp_path / "configs", tmp_path / "here"
    beside.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    return beside, here


def folder(spec: dict[str, Any], file: str) -> Any:
    return in_its_folder(spec, file).get("environment", {}).get("working_directory")


def test_a_relative_script_is_found_beside_its_spec_first_then_where_the_command_was_typed(places: tuple[Path, Path]) -> None:
    beside, here = places
    (here / "train.py").touch()
    assert folder(SCRIPT, "../configs/job.yaml") == str(here)
    assert folder(SCRIPT, "-") == str(here)
    (beside / "train.py").touch()
    assert folder(SCRIPT, "../configs/job.yaml") == str(beside)
    assert folder(SCRIPT, "-") == str(here)


@pytest.mark.parametrize(
    ("entrypoint", "file"), [("digits:make", "digits.py"), ("own.digits:make", "own/digits.py"), ("own:make", "own/__init__.py")]
)
def test_the_module_of_an_entrypoint_is_found_as_a_script_is(places: tuple[Path, Path], entrypoint: str, file: str) -> None:
    """The example of an entrypoint named a folder that no machine has, and was refused as its README has it."""
    beside, here = places
    spec = {"entrypoint": entrypoint}
    assert in_its_folder(spec, f"{beside}/job.yaml") == spec  # the nodes may have it installed
    for place in (here, beside):
        (place / file).parent.mkdir(exist_ok=True)
        (place / file).touch()
        assert folder(spec, f"{beside}/job.yaml") == str(place)
    assert folder({**spec, "environment": {"working_directory": str(here)}}, f"{beside}/job.yaml") == str(here)
    assert in_its_folder({**spec, "environment": {"code": {"bundle": "ab" * 32}}}, f"{beside}/job.yaml")["environment"].keys() == {"code"}


@pytest.mark.parametrize("entrypoint", [":make", "/etc:make", "\0:make", 3, None])
def test_what_is_no_entrypoint_is_left_for_the_coordinator_to_refuse(places: tuple[Path, Path], entrypoint: object) -> None:
    spec = {"entrypoint": entrypoint}
    assert in_its_folder(spec, f"{places[0]}/job.yaml") == spec


def test_a_relative_folder_and_one_in_the_home_become_absolute(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    beside, here = places
    monkeypatch.setenv("HOME", "/home/ada")
    in_environment = {"variables": {"A": "1"}, "working_directory": "../here"}
    assert in_its_folder({"environment": in_environment}, f"{beside}/job.yaml") == {
        "environment": {"variables": {"A": "1"}, "working_directory": str(here)}
    }
    assert folder({"environment": {"working_directory": "."}}, f"{beside}/job.yaml") == str(beside)
    assert folder({"environment": {"working_directory": "~/project"}}, "-") == "/home/ada/project"
    assert folder({"environment": {"working_directory": "not/there"}}, f"{beside}/job.yaml") == f"{beside}/not/there"


def test_a_script_in_the_home_is_found_there(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(places[0]))
    (places[0] / "train.py").touch()
    for environment in ({}, {"working_directory": "/srv"}):
        spec = in_its_folder({"script": {"path": "~/train.py"}, "environment": environment}, "-")
        assert spec == {"script": {"path": f"{places[0]}/train.py"}, "environment": environment}
        assert why_missing({**spec, "environment": {}}, "-") is None


def test_a_script_in_code_that_was_sent_before_is_looked_for_nowhere_else(places: tuple[Path, Path]) -> None:
    spec = {**SCRIPT, "environment": {"code": {"bundle": "ab" * 32}}}
    assert why_missing(spec, "-") is None
    (places[1] / "train.py").touch()
    assert in_its_folder(spec, "-") == spec


@pytest.mark.parametrize(
    "spec",
    [
        {"script": {"path": "/srv/train.py"}},
        {"script": {"module": "train"}},
        {"script": "train.py"},
        {"script": {"path": 3}, "environment": {"working_directory": "/srv/../srv"}},
        {"environment": [1]},
        {"environment": {"working_directory": 3}},
        {"environment": {"working_directory": "a\0b"}},
        {"name": "x"},
    ],
)
def test_everything_else_stays_as_it_is_for_the_coordinator_to_judge(spec: dict[str, Any], places: tuple[Path, Path]) -> None:
    assert in_its_folder(spec, "job.yaml") == spec


def test_a_relative_script_that_is_in_neither_folder_is_missing_with_near_names(places: tuple[Path, Path]) -> None:
    beside, here = places
    (beside / "trian.py").touch()
    assert in_its_folder(SCRIPT, f"{beside}/job.yaml") == SCRIPT
    missing = why_missing(SCRIPT, f"{beside}/job.yaml")
    assert missing is not None
    assert missing.certain
    assert missing.message == f"script.path: there is no train.py; looked in {beside} and {here}"
    assert missing.hint == f"near it: {beside}/trian.py"


def test_what_is_missing_is_named_with_the_folder_and_near_names(tmp_path: Path) -> None:
    def spec(working_directory: Path | str, path: str = "train.py") -> dict[str, Any]:
        return {"script": {"path": path}, "environment": {"working_directory": str(working_directory)}}

    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "tran.py").touch()

    def told(spec: dict[str, Any]) -> tuple[str, str | None] | None:
        missing = why_missing(spec, "-")
        return None if missing is None else (missing.message, missing.hint)

    assert told(spec(tmp_path / "project")) == (
        f"script.path: there is no train.py, seen from {tmp_path}/project",
        f"{tmp_path}/project has tran.py",
    )
    assert told(spec(tmp_path / "projekt")) == (
        f"environment.working_directory: there is no folder {tmp_path}/projekt",
        f"{tmp_path} has project",
    )
    assert told(spec(tmp_path / "project", "tran.py")) is None
    assert told({"script": {"path": f"{tmp_path}/nothing"}}) == (f"script.path: there is no {tmp_path}/nothing", None)
    assert told({"script": {"command": ["x"]}, "environment": [3]}) is None


def submitted(paceline: Paceline, coordinator: FakeCoordinator, nodes: dict[str, Any]) -> Any:
    missing = {"script": {"path": "train.py"}, "environment": {"working_directory": str(paceline.folder)}}
    coordinator.on(
        "POST", "/training/jobs", Answer(201, job(state="queued", warnings=["it has training, which is a name of Paceline's own"]))
    )
    coordinator.on("GET", "/cluster/nodes", Answer(200, nodes))
    return paceline("submit", "-", stdin=str(missing))


def test_a_missing_script_is_an_error_where_all_nodes_are_on_this_machine(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    (paceline.folder / "trein.py").touch()
    done = submitted(paceline, coordinator, HERE)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: script.path: there is no train.py, seen from {paceline.folder}",
        f"hint: {paceline.folder} has trein.py",
    ]
    assert not coordinator.sent("POST", "/training/jobs")


def test_a_missing_script_does_not_hide_what_else_is_wrong(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """A typing error in the name of a field was told only once the script was there."""
    typo = {"pointer": "/resorces", "message": "`resorces` is not a field of a job spec", "hint": None}
    coordinator.on("POST", "/training/plan", problem(422, "invalid_spec", f"/resorces: {typo['message']}", errors=[typo]))
    done = paceline("submit", "-", stdin="{name: a, script: {path: train.py}, resorces: {nodes: 2}}")
    assert done.returncode == 2
    assert done.stderr.splitlines()[:3] == [
        "error: refused for these reasons (422, invalid_spec)",
        f"  /resorces (line 1): {typo['message']}",
        f"  /script/path (line 1): there is no train.py; looked in {paceline.folder}"
        " -> a script that only the nodes have: set environment.working_directory to its folder there",
    ]
    assert not coordinator.sent("POST", "/training/jobs")


@pytest.mark.parametrize("nodes", [ELSEWHERE, {"items": [], "next_cursor": None}], ids=["another machine", "none"])
def test_it_is_a_warning_where_nodes_may_have_other_folders(
    paceline: Paceline, coordinator: FakeCoordinator, nodes: dict[str, Any]
) -> None:
    done = submitted(paceline, coordinator, nodes)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert lines[0] == f"warning: script.path: there is no train.py, seen from {paceline.folder}, on this machine; every node needs it"
    assert lines[1] == "warning: it has training, which is a name of Paceline's own"  # of the coordinator


def test_plan_sends_what_submit_will_send(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    (paceline.folder / "train.py").touch()
    (paceline.folder / "job.yaml").write_text("{name: a, script: {path: train.py}}")
    assert paceline("plan", "job.yaml").returncode == 5  # the fake coordinator has no plan
    (request,) = coordinator.sent("POST", "/training/plan")
    assert request.body["environment"] == {"working_directory": str(paceline.folder)}
