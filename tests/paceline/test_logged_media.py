"""`paceline.log` with images, histograms and tables, in a job and outside one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

import paceline
from paceline.logged_media import media_in
from paceline.monitoring.artifacts import RankArtifact
from paceline.monitoring.media import unpack
from paceline.monitoring.spool import parse

SCRIPT = """
import numpy as np, paceline, sys
for step in range(3):
    paceline.log(
        step, loss=0.5, one=paceline.Image(np.zeros((4, 5)), caption="c"), many=[paceline.Image(np.zeros((4, 5)))] * 70,
        weights=paceline.Histogram(np.arange(10)), preds=paceline.Table(["a"], [[step]]),
    )
    paceline.log({"nested": {"w": paceline.Histogram([1.0])}, "text": "x", "acc": 0.25}, step=step)
paceline.log(3, big=paceline.Image(np.zeros((1, 1 << 25), np.uint8)))
for number in range(300):
    paceline.log(4, **{f"key{number}": paceline.Histogram([number])})
print("torch" in sys.modules)
"""


def ran(folder: Path | None) -> subprocess.CompletedProcess[str]:
    places = {} if folder is None else {"PACELINE_RANK_FOLDER": str(folder)}
    return subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env={"PATH": ""} | places, timeout=60, check=True)


def test_in_a_job_each_object_is_an_artifact_beside_the_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "job" / "g1" / "rank0"
    folder.mkdir(parents=True)
    done = ran(folder)
    assert done.stdout.splitlines()[0] == "False"
    notes = [msgspec.json.decode(note.read_bytes(), type=RankArtifact) for note in sorted((folder / "artifacts").glob("*.note"))]
    found = [(note.first_step, note.media.key, note.media.kind, note.media.count) for note in notes if note.media and note.first_step < 3]
    assert found == [
        row
        for step in range(3)
        for row in [
            (step, "one", "images", 1),
            (step, "many", "images", 64),
            (step, "weights", "histogram", 10),
            (step, "preds", "table", 1),
            (step, "nested/w", "histogram", 1),
        ]
    ]
    assert len({note.media.key for note in notes if note.media}) == 199, "the image that is too large has the sixth of 200 keys"
    (table,) = [note for note in notes if note.media and note.media.key == "preds" and note.first_step == 2]
    content = unpack((folder / "artifacts" / table.name).read_bytes(), "table").document
    assert content.table is not None
    assert content.table.rows == ((2,),)
    events = [json.loads(record) for record in parse((folder / "events.spool").read_bytes())[0]]
    dropped = {event["data"]["what"]: event["data"] for event in events if event["kind"] == "data_dropped"}
    assert len(dropped) == len(events) == 4, "each kind of loss is told once"
    assert "33554432 x 1 pixels are over the limit" in dropped["images that are too large"]["reason"]
    assert dropped["images of lists"]["count"] == 6
    assert "over 200 distinct keys" in dropped["keys of images, histograms and tables"]["reason"]


def test_outside_a_job_they_are_printed_in_words() -> None:
    first, second = ran(None).stdout.splitlines()[:2]
    assert first == (
        "step 0 loss 0.5 one (image, 5 x 4) many (70 images, 5 x 4) weights (histogram of 10 values from 0 to 9) preds (table of 1 row: a)"
    )
    assert second == "step 0 acc 0.25 nested/w (histogram of 1 value from 1 to 1)"


def test_nothing_of_a_call_is_recorded_where_a_part_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    histogram = paceline.Histogram([1])
    for wrong in (
        {"loss": "low", "h": histogram},
        {"bad\nname": histogram},
        {"h": [histogram]},
        {"images": [paceline.Image(np.zeros((2, 2))), 1]},
    ):
        with pytest.raises((TypeError, ValueError)):
            paceline.log(1, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="step -1"):
        paceline.log(-1, h=histogram)
    assert capsys.readouterr().out == ""


def test_a_table_that_grows_later_is_logged_as_it_was() -> None:
    table = paceline.Table(["a"], [[1]])
    logged = media_in({"t": table})["t"]
    table.add_data(2)
    document = unpack(logged.content(), "table").document.table
    assert document is not None
    assert document.rows == ((1,),)
