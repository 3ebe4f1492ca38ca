"""`paceline artifacts`: listed by folder, downloaded, deleted."""

from __future__ import annotations

import json

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, problem
from tests.cli.left_files import CONTENTS, FILES, ID, left


def test_all_files_are_listed_with_their_names_last(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    left(coordinator)
    lines = paceline("artifacts", ID, "--all").stdout.splitlines()
    assert lines[0].split() == ["SIZE", "AGE", "NAME"]
    assert [line.split(maxsplit=4)[-1] for line in lines[1:]] == [*CONTENTS]
    assert all(line == line.rstrip() for line in lines)


def test_a_folder_is_listed_with_its_folders_first(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    left(coordinator, arriving=2, not_kept=["rank0/bomb is not kept: too large"])
    done = paceline("artifacts", ID)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["NAME", "FILES"], ["rank0/", "2"], ["rank1/", "1"]]
    assert "rank0/bomb is not kept" in done.stderr
    assert "2 files are still arriving" in done.stderr
    assert f"paceline artifacts download {ID}" in done.stderr


def test_all_files_are_listed_through_every_page(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    left(coordinator)
    document = json.loads(paceline("artifacts", ID, "--all", "--json").stdout)
    assert [each["path"] for each in document["items"]] == list(CONTENTS)
    assert "eval/ü b.csv" in paceline("artifacts", "list", ID, "rank0", "--all").stdout


def test_a_job_without_files_says_how_to_leave_some(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    left(coordinator, items=[], folders=[], files=0)
    assert "$PACELINE_ARTIFACTS" in paceline("artifacts", ID).stdout
    done = paceline("artifacts", "download", ID)
    assert done.returncode == 5
    assert "has left no files" in done.stderr


def test_everything_a_folder_and_one_file_are_downloaded(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    left(coordinator)
    done = paceline("artifacts", "download", ID, "--into", "all")
    assert done.returncode == 0, done.stderr
    for path, content in CONTENTS.items():
        assert (paceline.folder / "all" / path).read_bytes() == content
    assert "3 files, 14 B, verified" in done.stderr
    document = json.loads(paceline("artifacts", "download", ID, "rank0/eval/", "-d", "part", "--json").stdout)
    assert document == {"folder": "part", "files": ["part/eval/ü b.csv"], "replaced": []}
    (paceline.folder / "part" / "eval" / "ü b.csv").write_text("changed here")
    again = paceline("artifacts", "download", ID, "rank0/eval/", "-d", "part")
    assert "replaced what was there otherwise: part/eval/ü b.csv" in again.stderr
    assert paceline("artifacts", "download", ID, "rank0/a.txt", "-d", "one").stdout.strip() == "one/a.txt"
    missing = paceline("artifacts", "download", ID, "rank0/b.txt")
    assert (missing.returncode, "there is no file 'rank0/b.txt'" in missing.stderr) == (5, True)


def test_one_file_is_listed_and_a_folder_that_is_not_there_is_told(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    left(coordinator)
    assert paceline("artifacts", ID, "rank0/a.txt").stdout.splitlines()[1].startswith("rank0/a.txt ")
    missing = paceline("artifacts", ID, "rank9")
    assert (missing.returncode, "there is no file 'rank9'" in missing.stderr) == (5, True)


def test_deleting_asks_for_yes_where_there_is_no_terminal(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("DELETE", FILES, Answer(204, b""))
    refused = paceline("artifacts", "delete", ID, "rank0/a.txt")
    assert (refused.returncode, coordinator.requests) == (2, [])
    done = paceline("artifacts", "delete", ID, "rank0/a.txt", "--yes")
    assert (done.returncode, done.stdout.strip()) == (0, "rank0/a.txt is deleted")
    (sent,) = coordinator.sent("DELETE", FILES)
    assert sent.query == {"path": "rank0/a.txt"}


def test_the_refusal_of_a_folder_names_the_list_of_its_files(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("DELETE", FILES, problem(400, "invalid_parameter", "'rank0' is a folder; delete its files one by one"))
    refused = paceline("artifacts", "delete", ID, "rank0", "--yes")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"hint: 'paceline artifacts {ID} rank0 --all' lists the files below a folder" in refused.stderr


def test_a_refusal_of_the_coordinator_is_told(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("DELETE", FILES, problem(403, "not_the_owner", "job gpt belongs to vera"))
    done = paceline("artifacts", "delete", ID, "rank0/a.txt", "--yes")
    assert done.returncode != 0
    assert "belongs to vera" in done.stderr
