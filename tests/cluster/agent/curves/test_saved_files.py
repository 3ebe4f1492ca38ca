"""Which files of a script are checkpoints, which of them is the newest, and when it is told of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.cluster.agent.curves import saved_files
from paceline.cluster.agent.curves.saved_files import AT_REST_SECONDS, REPORT_SECONDS, SavedFiles, ScriptCheckpoint, is_saved_file, step_in

STARTED = 1_000_000.0


def write(path: Path, at: float, size: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (at, at))
    return path


def found(root: Path, *paths: Path) -> SavedFiles:
    saved = SavedFiles([str(root)], STARTED)
    for path in paths:
        saved.note(str(path))
    return saved


def test_a_file_counts_once_it_has_not_changed_for_a_while(tmp_path: Path) -> None:
    path = write(tmp_path / "snapshot.pt", STARTED + 1)
    saved = found(tmp_path, path)
    assert saved.news(STARTED + 1 + AT_REST_SECONDS - 1) is None
    assert saved.news(STARTED + 100) == ScriptCheckpoint(str(path), 10, None, STARTED + 1)
    assert saved.news(STARTED + 200) is None, "it is told once"


def test_a_trainer_of_ours_tells_of_its_checkpoints_itself(tmp_path: Path) -> None:
    own = [write(tmp_path / name / "__0_0.distcp", STARTED + 9) for name in ("step-40.g1", "step-40.g1.tmp")]
    index = write(tmp_path / "step-40.g1" / ".metadata", STARTED + 9)
    other = write(tmp_path / "step_3.pt", STARTED + 1)
    told = found(tmp_path, *own, index, other).news(STARTED + 100)
    assert told is not None
    assert told.path == str(other)


def test_a_file_that_is_written_again_in_place_is_told_again(tmp_path: Path) -> None:
    path = write(tmp_path / "snapshot.pt", STARTED + 1)
    saved = found(tmp_path, path)
    assert saved.news(STARTED + 100) is not None
    write(path, STARTED + 150, size=20)
    assert saved.news(STARTED + 200) == ScriptCheckpoint(str(path), 20, None, STARTED + 150)


def test_of_many_saves_one_a_minute_is_told_and_at_the_end_the_last(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pt"
    saved = found(tmp_path, write(path, STARTED))
    times = []
    for second in range(10, 300, 10):
        write(path, STARTED + second - AT_REST_SECONDS)
        told = saved.news(STARTED + second)
        times += [told.time] if told else []
    assert len(times) == 1 + (290 - 10) // REPORT_SECONDS
    write(path, STARTED + 299)
    last = saved.news(STARTED + 300, ended=True)
    assert last is not None
    assert last.time == STARTED + 299


def test_files_from_before_the_start_are_what_the_script_begins_with(tmp_path: Path) -> None:
    assert found(tmp_path, write(tmp_path / "pretrained.safetensors", STARTED - 1)).news(STARTED + 100) is None


def test_the_files_of_a_checkpoints_folder_are_one_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "checkpoint-40"
    names = ("model.safetensors", "optimizer.pt", "rng_state_0.pth", "pytorch_model.bin")
    saved = found(tmp_path, *(write(folder / name, STARTED + number) for number, name in enumerate(names)))
    assert saved.news(STARTED + 100) == ScriptCheckpoint(str(folder), 40, 40, STARTED + 3)


def test_a_distributed_checkpoint_counts_once_its_index_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "dcp" / "latest"
    saved = found(tmp_path, write(folder / "__0_0.distcp", STARTED), write(folder / "__1_0.distcp", STARTED))
    assert saved.news(STARTED + 100) is None
    saved.note(str(write(folder / ".metadata", STARTED + 2)))
    assert saved.news(STARTED + 200) == ScriptCheckpoint(str(folder), 30, None, STARTED + 2)


def test_where_the_newest_was_deleted_the_one_before_it_is_the_newest(tmp_path: Path) -> None:
    older, newer = write(tmp_path / "step_1.pt", STARTED + 1), write(tmp_path / "step_2.pt", STARTED + 2)
    saved = found(tmp_path, older, newer)
    assert (saved.news(STARTED + 100) or older) == ScriptCheckpoint(str(newer), 10, 2, STARTED + 2)
    newer.unlink()
    assert saved.news(STARTED + 200) == ScriptCheckpoint(str(older), 10, 1, STARTED + 1)


def test_of_too_many_files_the_newest_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_files, "MAX_FILES", 3)
    paths = [write(tmp_path / f"step_{number}.pt", STARTED + number) for number in range(10)]
    saved = found(tmp_path, *paths)
    assert (saved.news(STARTED + 100) or paths[0]) == ScriptCheckpoint(str(paths[-1]), 10, 9, STARTED + 9)
    assert len(saved._written) == 3


@pytest.mark.parametrize("name", ["model.pt", "a.pth", "epoch=0-step=10.ckpt", "model.safetensors", ".metadata", "__0_0.distcp"])
def test_names_of_checkpoints(name: str) -> None:
    assert is_saved_file(name)


@pytest.mark.parametrize("name", ["train.py", "loss.png", "events.out.tfevents.1.host.1.0", "model.pt.tmp", "script"])
def test_names_of_other_files(name: str) -> None:
    assert not is_saved_file(name)


def test_data_in_binary_files_is_no_checkpoint(tmp_path: Path) -> None:
    assert found(tmp_path, write(tmp_path / "train.bin", STARTED + 1)).news(STARTED + 100) is None


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-40", 40),
        ("checkpoint_3", None),  # Accelerate counts its saves
        ("step_40", 40),
        ("global_step1200", 1200),
        ("epoch=0-step=10.ckpt", 10),
        ("iter_0001000", 1000),
        ("epoch_3", None),
        ("snapshot.pt", None),
        ("resnet50.pth", None),
    ],
)
def test_the_step_is_the_one_in_the_name_or_not_known(name: str, step: int | None) -> None:
    assert step_in(name) == step
