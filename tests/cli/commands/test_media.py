"""Images, histograms and tables of a job, on a terminal and as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.commands.media import file_place
from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job

ID = job()["id"]
MEDIA = f"/training/jobs/{ID}/media"
HISTOGRAM = {
    "edges": [0.0, 1.0, 2.0],
    "counts": [1, 3],
    "values": 5,
    "nans": 1,
    "infs": 0,
    "mean": 1.2,
    "std": 0.5,
    "least": 0.0,
    "most": 2.0,
}
TABLE = {"columns": ["a", "b"], "rows": [[1, "x,y"], [None, True]], "total_rows": 30}
IMAGES = [{"number": number, "width": 28, "height": 14, "caption": f"a {number}", "format": "png"} for number in (0, 1)]


def key(name: str, kind: str, *steps: int, ranks: tuple[int, ...] = (0,)) -> dict[str, Any]:
    return {"key": name, "kind": kind, "steps": steps, "ranks": ranks, "bytes": 2048}


def keys(*found: dict[str, Any]) -> Answer:
    return Answer(200, {"job_id": ID, "keys": found})


def at_step(name: str, kind: str, **content: Any) -> Answer:
    one = {"id": "A1", "rank": 0, "images": [], "histogram": None, "table": None, "error": None, **content}
    return Answer(200, {"job_id": ID, "key": name, "kind": kind, "step": 20, "generation": 1, "ranks": [0], "objects": [one]})


def test_without_a_key_it_lists_the_keys(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", MEDIA, keys(key("val/samples", "images", 10, 20, ranks=(0, 1, 2, 3)), key("w", "histogram", 20)))
    done = paceline("media", ID)
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["KEY", "KIND", "STEPS", "NEWEST", "RANKS", "SIZE"],
        ["val/samples", "images", "2", "20", "0-3", "2.0", "KiB"],
        ["w", "histogram", "1", "20", "0", "2.0", "KiB"],
    ]
    assert f"paceline media {ID} val/samples" in done.stderr


def test_a_job_without_any_is_told_how(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", MEDIA, keys())
    assert "paceline.log(step, samples=paceline.Image(array))" in paceline("media", ID).stdout


@pytest.mark.parametrize(
    ("kind", "content", "shown"),
    [
        ("images", {"images": IMAGES}, ["rank 0: 2 images", "28 x 14", "a 1"]),
        ("histogram", {"histogram": HISTOGRAM}, ["rank 0: 5 values, 1 NaN, 0 to 2, mean 1.2, std 0.5"]),
        ("table", {"table": TABLE}, ["rank 0: 30 rows", "x,y", "and 28 more; all stored rows: --into DIR"]),
        ("table", {"error": "the object cannot be read: cut off"}, ["rank 0: the object cannot be read: cut off"]),
    ],
)
def test_a_key_shows_what_was_logged(
    paceline: Paceline, coordinator: FakeCoordinator, kind: str, content: dict[str, Any], shown: list[str]
) -> None:
    coordinator.on("GET", MEDIA, keys(key("k", kind, 20)))
    coordinator.on("GET", f"{MEDIA}/object", at_step("k", kind, **content))
    output = paceline("media", ID, "k").stdout
    assert output.startswith("k at step 20\n")
    for text in shown:
        assert text in output


def test_files_are_downloaded_by_kind(paceline: Paceline, coordinator: FakeCoordinator, tmp_path: Path) -> None:
    coordinator.on("GET", MEDIA, keys(key("../k", "table", 20)))
    coordinator.on("GET", f"{MEDIA}/object", at_step("../k", "table", table=TABLE, histogram=HISTOGRAM, images=IMAGES[:1]))
    coordinator.on("GET", f"{MEDIA}/A1/images/0", Answer(200, {"a": "file"}))
    done = paceline("media", ID, "../k", "--step", "20", "-d", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    stem = tmp_path / "out" / "%2E." / "k-step20-rank0"
    assert done.stdout.split() == [f"{stem}.png", f"{stem}.json", f"{stem}.csv"]
    assert Path(f"{stem}.csv").read_text() == 'a,b\n1,"x,y"\n,True\n'
    assert json.loads(Path(f"{stem}.json").read_text())["counts"] == [1, 3]
    assert Path(f"{stem}.png").read_bytes()


def test_a_step_that_has_none_is_refused_with_those_that_have(paceline: Paceline, coordinator: FakeCoordinator, tmp_path: Path) -> None:
    coordinator.on("GET", MEDIA, keys(key("k", "table", 10, 20)))
    done = paceline("media", ID, "k", "--step", "15", "-d", str(tmp_path))
    assert "nothing is stored under 'k' at step 15" in done.stderr
    assert "it was logged from step 10 to 20" in done.stderr
    assert "--step is about one key" in paceline("media", ID, "--step", "1").stderr


def test_no_two_keys_have_one_path() -> None:
    places = {
        "val/samples": "val/samples",
        "val_samples": "val_samples",
        "val%2Fsamples": "val%252Fsamples",
        "..": "%2E.",
        "": "%",
        "画像 1": "画像 1",
        ".hidden": "%2Ehidden",
        "a:b": "a%3Ab",
        "/x": "%/x",
    }
    assert {key: file_place(key) for key in places} == places
