"""Files that are kept with the job: copied to the folder that its node uploads."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from pathlib import Path, PurePosixPath

from paceline.distributed.env import artifacts_folder
from paceline.monitoring.artifact_files import UNFINISHED_PREFIX

_reported = False


def log_artifact(path: str | os.PathLike[str], name: str | None = None) -> Path | None:
    """Keep a file, or a folder with all that is in it, with the job.

    It is copied to $PACELINE_ARTIFACTS, so it may be changed or removed afterwards. `name`: its path there, such as `eval/scores.csv`;
    default: its own name. A second one of the same name takes the place of the first. Links within a folder are left out.

    Returns where the copy is. Outside a job nothing is copied, which is told once, and None is returned. Raises FileNotFoundError if there
    is nothing at `path`, ValueError if `name` leads out of the folder, and OSError if it cannot be copied.
    """
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"there is no file or folder {str(source)!r} to keep with the job")
    wanted = _relative(source.resolve().name if name is None else name)
    folder = artifacts_folder()
    if folder is None:
        _tell_once()
        return None
    target = folder / wanted
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.parent / f"{UNFINISHED_PREFIX}{uuid.uuid4().hex}"  # it is not uploaded before all of it is there
    try:
        if source.is_dir():
            _replace_folder(source, target, beside)
        else:
            shutil.copyfile(source, beside)
            os.replace(beside, target)
    finally:
        _remove(beside)
    return target


def _relative(name: str) -> PurePosixPath:
    wanted = PurePosixPath(name)
    if wanted.is_absolute() or not wanted.parts or ".." in wanted.parts or "\0" in name:
        raise ValueError(f"log_artifact(name={name!r}) must be a path within the job's artifacts, such as 'eval/scores.csv'")
    return wanted


def _replace_folder(source: Path, target: Path, beside: Path) -> None:
    """Copy a folder, file by file over what is there of an earlier one."""
    shutil.copytree(source, beside, symlinks=True, ignore=_links)
    for made in sorted(path for path in beside.rglob("*") if path.is_file()):
        place = target / made.relative_to(beside)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(made, place)


def _links(folder: str, names: list[str]) -> list[str]:
    """Name what `copytree` leaves out: links, pipes and devices."""
    return [name for name in names if (path := Path(folder, name)).is_symlink() or not (path.is_file() or path.is_dir())]


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _tell_once() -> None:
    global _reported
    if not _reported:
        _reported = True
        print("paceline.log_artifact keeps nothing outside a job of Paceline", file=sys.stderr, flush=True)
