"""Sending a folder along, getting it back, running it again: what is asked of the coordinator, and what is said when it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, Request, experiment, job, problem
from tests.paceline.bundles.test_listing import make

ID = job()["id"]
ONE = f"/training/jobs/{ID}"
CODE = {
    "bundle": "ab" * 32,
    "folder": "proj",
    "commit": "0123456789abcdef",
    "branch": "main",
    "uncommitted": ["a.py", "b.py", "c.py", "d.py"],
}
SPEC = {"name": "gpt", "script": {"path": "train.py"}, "environment": {"code": CODE}}


STORED = {"state": "ready", "bytes": 123, "unpacked_bytes": 4096, "files": 2, "next_chunk": None}


def takes_bundles(coordinator: FakeCoordinator, chunks: int, *, lose_first: bool = False) -> list[Request]:
    """Have the coordinator take any bundle in so many chunks; it has all of them if there are none. Returns the requests that change something, as
    they come."""
    taken = list[Request]()
    held, lost = 0, lose_first

    def answer(request: Request) -> Answer:
        nonlocal held, lost
        if request.method == "GET":
            return Answer(200, STORED) if not chunks else problem(404, "not_found", "no such bundle")
        taken.append(request)
        if "/chunks/" in request.path:
            if lost:
                lost = False
                return Answer(hang_up=True)
            held += 1
        return Answer(200, {"next_chunk": held if held < chunks else None})

    original = coordinator.answer
    coordinator.answer = lambda request: answer(request) if "/training/bundles/" in request.path else original(request)  # type: ignore[method-assign]
    return taken


def test_a_script_in_a_folder_that_git_ignores_is_sent_as_the_error_says(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    spec = "name: gpt\nscript: {path: jobs/train.py}\n"
    project = make(paceline.folder / "project", **{"jobs/train.py": "x", "job.yaml": spec, ".gitignore": "jobs/\n"})
    coordinator.on("POST", "/training/jobs", Answer(201, job()))
    takes_bundles(coordinator, 1)
    refused = paceline("submit", str(project / "job.yaml"), "--workdir", str(project))
    assert refused.returncode == 2
    assert "jobs/train.py is left out of the bundle" in refused.stderr
    assert "add the lines !jobs/ and !jobs/train.py to .pacelineignore" in refused.stderr
    make(project, **{".pacelineignore": "!jobs/\n!jobs/train.py\n"})
    assert paceline("submit", str(project / "job.yaml"), "--workdir", str(project)).returncode == 0


@pytest.mark.parametrize(
    "path", ["{folder}/sub/train.py", ".//sub//train.py", "sub/../sub/train.py", "{link}/sub/train.py", "~/project/sub/train.py"]
)
def test_a_script_in_the_folder_is_named_as_the_nodes_find_it(
    paceline: Paceline, coordinator: FakeCoordinator, path: str, tmp_path: Path
) -> None:
    project = make(paceline.folder / "project", **{"sub/train.py": "x"})
    (tmp_path / "link").symlink_to(project)
    make(project, **{"job.yaml": f"name: gpt\nscript: {{path: {path.format(folder=project, link=tmp_path / 'link')}}}\n"})
    takes_bundles(coordinator, 1)
    coordinator.on("POST", "/training/jobs", Answer(201, job()))
    done = paceline("submit", str(project / "job.yaml"), "--workdir", str(project), HOME=str(paceline.folder))
    assert done.returncode == 0, done.stderr
    assert coordinator.sent("POST", "/training/jobs")[0].body["script"] == {"path": "sub/train.py"}


def test_a_script_elsewhere_on_the_nodes_may_run_beside_the_folder_that_is_sent(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    project = make(paceline.folder / "project", **{"lib.py": "x", "job.yaml": "name: gpt\nscript: {path: /opt/tools/train.py}\n"})
    takes_bundles(coordinator, 1)
    coordinator.on("POST", "/training/jobs", Answer(201, job()))
    assert paceline("submit", str(project / "job.yaml"), "--workdir", str(project)).returncode == 0
    assert coordinator.sent("POST", "/training/jobs")[0].body["script"] == {"path": "/opt/tools/train.py"}


def test_a_folder_is_sent_and_named_in_the_spec(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    project = make(
        paceline.folder / "project",
        **{"train.py": "x", "job.yaml": "name: gpt\nscript: {path: ./train.py}\n", "a.log": "x", ".gitignore": "*.log\n"},
    )
    taken = takes_bundles(coordinator, 1, lose_first=True)
    coordinator.on("POST", "/training/jobs", Answer(201, job()))
    done = paceline("submit", str(project / "job.yaml"), "--workdir", str(project))
    assert done.returncode == 0, done.stderr
    assert "code: " in done.stderr
    assert "3 files, without a.log; " in done.stderr
    offer = taken[0]
    assert (offer.method, offer.body["files"]) == ("PUT", 3)
    assert [request.path.rpartition("/")[2] for request in taken[1:]] == ["0", "0"]  # the first had no answer
    (sent,) = coordinator.sent("POST", "/training/jobs")
    assert sent.body["environment"] == {"code": {"bundle": offer.path.rpartition("/")[2], "folder": "project"}}


def test_code_that_is_there_is_not_sent(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    project = make(paceline.folder / "project", **{"train.py": "x", "job.yaml": "name: gpt\nscript: {path: train.py}\n"})
    taken = takes_bundles(coordinator, 0)
    coordinator.on("POST", "/training/jobs", Answer(201, job()))
    done = paceline("submit", str(project / "job.yaml"), "--workdir", str(project))
    assert (done.returncode, "stored already, nothing sent" in done.stderr) == (0, True)
    (offer,) = taken  # it keeps the bundle for the job; 123 bytes are what the coordinator has: nothing was packed here
    assert offer.body == {"bytes": 123, "unpacked_bytes": 4096, "files": 2}


def test_a_coordinator_that_never_has_enough_is_given_up(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    project = make(paceline.folder / "project", **{"train.py": "x", "job.yaml": "name: gpt\nscript: {path: train.py}\n"})
    taken = takes_bundles(coordinator, 10**9)
    done = paceline("submit", str(project / "job.yaml"), "--workdir", str(project))
    assert (done.returncode, "again and again; 10 were sent" in done.stderr, len(taken)) == (1, True, 11)
    assert coordinator.sent("POST", "/training/jobs") == []


def test_a_refused_bundle_submits_nothing(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    project = make(paceline.folder / "project", **{"train.py": "x", "job.yaml": "name: gpt\nscript: {path: train.py}\n"})
    answer = coordinator.answer
    coordinator.answer = lambda request: problem(507, "disk_low", "free some") if "bundles" in request.path else answer(request)  # type: ignore[method-assign]
    done = paceline("submit", str(project / "job.yaml"), "--workdir", str(project))
    assert (done.returncode != 0, "free some" in done.stderr, coordinator.sent("POST", "/training/jobs")) == (True, True, [])


def test_a_launch_runs_in_a_folder_that_is_sent_along(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    make(paceline.folder / "project", **{"train.py": "x"})
    takes_bundles(coordinator, 1)
    coordinator.on("GET", "/auth/me", Answer(200, {"user_id": "u"}))
    coordinator.on("POST", "/training/jobs", Answer(201, job()))
    done = paceline("run", "--workdir", "project", "--detach", "train.py", "--lr", "1")
    assert done.returncode == 0, done.stderr
    (sent,) = coordinator.sent("POST", "/training/jobs")
    assert sent.body["script"] == {"path": "train.py", "args": ["--lr", "1"]}
    assert sorted(sent.body["environment"]) == ["code", "variables"]
    refused = paceline("run", "--workdir", "project", "--detach", "other.py")
    assert (refused.returncode, "there is no script other.py" in refused.stderr) == (2, True)


def test_an_experiment_sends_a_folder_once_for_all_of_its_trials(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    text = "name: grid\njob:\n  script: {path: train.py}\ngrid: {priority: [1, 2]}\n"
    project = make(paceline.folder / "project", **{"train.py": "x", "grid.yaml": text})
    taken = takes_bundles(coordinator, 1)
    coordinator.on("POST", "/experiments", Answer(201, experiment()))
    done = paceline("experiment", "run", str(project / "grid.yaml"), "--workdir", str(project), "--no-follow")
    assert done.returncode == 0, done.stderr
    (sent,) = coordinator.sent("POST", "/experiments")
    assert sent.body["job"]["environment"] == {"code": {"bundle": taken[0].path.rpartition("/")[2], "folder": "project"}}


def test_show_tells_where_the_code_came_from(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job(spec=SPEC)))
    done = paceline("show", ID)
    assert "commit      0123456789ab on main, and 4 files that differed: a.py, b.py, c.py ..." in done.stdout


def test_a_job_without_code_says_how_to_send_it(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job(spec={"name": "gpt"})))
    done = paceline("code", ID)
    assert done.returncode == 2
    assert "gpt was submitted without its code" in done.stderr
    assert "paceline submit --workdir FOLDER sends it along" in done.stderr


def test_a_bundle_that_is_not_what_it_should_be_leaves_nothing(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job(spec=SPEC)))
    coordinator.on("GET", f"/training/bundles/{CODE['bundle']}/content", Answer(200, {"not": "an archive"}))
    done = paceline("code", ID, "-d", "out")
    assert done.returncode == 1
    assert "the code cannot be unpacked into out" in done.stderr
    assert [path.name for path in Path(paceline.folder).iterdir() if "out" in path.name] == []


def test_rerun_sends_the_same_spec_with_changes(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job(spec=SPEC)))
    coordinator.on("POST", "/training/jobs", Answer(201, job(name="again")))
    done = paceline("rerun", ID, "--set", "optimizer.lr=1e-4", "--name", "again")
    assert done.returncode == 0, done.stderr
    (sent,) = coordinator.sent("POST", "/training/jobs")
    assert sent.body == SPEC | {"name": "again", "optimizer": {"lr": 1e-4}}
