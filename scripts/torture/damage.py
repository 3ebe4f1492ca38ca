"""Ways to spoil a checkpoint on disk, and whether each is noticed before anything of it is loaded."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from paceline.distributed.solo_group import SoloGroup
from paceline.objects.location import Place
from paceline.training import restoring
from paceline.training.errors import CheckpointCorruptError, CheckpointUnreachableError, NoUsableCheckpointError
from paceline.training.reporting.telemetry import Telemetry
from paceline.training.saving import checkpoint
from paceline.training.saving import manifest as manifests
from paceline.training.saving.checkpoint_directory import open_directory
from scripts.torture.saver import checkpoints_at, digest, state_at

OLDER, NEWEST = 10, 20
PAGE_BYTES = 4096

Damage = Callable[[random.Random, Path, Path], None]


def pick(chance: random.Random, folder: Path) -> Path:
    return chance.choice(sorted(folder.iterdir()))


def flip_a_bit(chance: random.Random, newest: Path, older: Path) -> None:
    path = pick(chance, newest)
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def truncate(chance: random.Random, newest: Path, older: Path) -> None:
    path = pick(chance, newest)
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def empty(chance: random.Random, newest: Path, older: Path) -> None:
    pick(chance, newest).write_bytes(b"")


def append(chance: random.Random, newest: Path, older: Path) -> None:
    with open(pick(chance, newest), "ab") as file:
        file.write(chance.randbytes(chance.randrange(1, PAGE_BYTES)))


def blank_a_page(chance: random.Random, newest: Path, older: Path) -> None:
    """Zero a page of a file, as file systems do that lost power before they had written it."""
    path = pick(chance, newest)
    content = bytearray(path.read_bytes())
    start = chance.randrange(0, len(content), PAGE_BYTES)
    content[start : start + PAGE_BYTES] = bytes(len(content[start : start + PAGE_BYTES]))
    path.write_bytes(content)


def delete_a_file(chance: random.Random, newest: Path, older: Path) -> None:
    pick(chance, newest).unlink()


def take_from_an_older_one(chance: random.Random, newest: Path, older: Path) -> None:
    name = pick(chance, newest).name
    shutil.copy(older / name, newest / name)


def swap_two_files(chance: random.Random, newest: Path, older: Path) -> None:
    one, other = chance.sample(sorted(newest.iterdir()), 2)
    contents = one.read_bytes(), other.read_bytes()
    other.write_bytes(contents[0])
    one.write_bytes(contents[1])


def put_an_older_one_in_its_place(chance: random.Random, newest: Path, older: Path) -> None:
    shutil.rmtree(newest)
    shutil.copytree(older, newest)


def make_a_file_a_folder(chance: random.Random, newest: Path, older: Path) -> None:
    path = pick(chance, newest)
    path.unlink()
    path.mkdir()


def make_a_file_a_dead_link(chance: random.Random, newest: Path, older: Path) -> None:
    path = pick(chance, newest)
    path.unlink()
    path.symlink_to("nowhere")


def empty_the_folder(chance: random.Random, newest: Path, older: Path) -> None:
    for path in newest.iterdir():
        path.unlink()


def delete_the_folder(chance: random.Random, newest: Path, older: Path) -> None:
    shutil.rmtree(newest)


DAMAGES: Mapping[Damage, int] = {
    flip_a_bit: 50,
    truncate: 20,
    empty: 4,
    append: 4,
    blank_a_page: 4,
    delete_a_file: 4,
    take_from_an_older_one: 4,
    swap_two_files: 2,
    put_an_older_one_in_its_place: 2,
    make_a_file_a_folder: 2,
    make_a_file_a_dead_link: 2,
    empty_the_folder: 1,
    delete_the_folder: 1,
}


@dataclass
class Said:
    """Stands in for a rank's telemetry while a checkpoint is restored."""

    events: list[tuple[str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def event(self, kind: str, **data: Any) -> None:
        self.events.append((kind, Path(data["directory"]).name))

    def log(self, text: str) -> None:
        self.lines.append(text)


class Spoiler:
    """Two good checkpoints, of which the newer one is spoiled in one way after the other: `damages`, with their shares of the trials."""

    damages: Mapping[Damage, int] = DAMAGES

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance, self.checkpoints = random.Random(seed), checkpoints_at(folder / "checkpoints", 1)
        open_directory(self.checkpoints, ())
        for step in (OLDER, NEWEST):
            checkpoint.save(self.checkpoints, state_at(step), {"loss": 1.0 / step})
        self.older, self.newest = (folder / "checkpoints" / manifests.directory_name(step, 1) for step in (OLDER, NEWEST))
        self._pristine = folder / "pristine"
        shutil.copytree(self.newest, self._pristine)
        self.fresh, self.expected = digest(state_at(0)), digest(state_at(OLDER))
        self.tried: Counter[str] = Counter()
        self.problems: list[str] = []

    def try_each(self, count: int) -> None:
        """Damage at random, each kind by its share and at least once."""
        names, shares = list(self.damages), list(self.damages.values())
        kinds = names + self.chance.choices(names, shares, k=max(0, count - len(names)))
        for damage in kinds[:count]:
            damage(self.chance, self.newest, self.older)
            self.tried[damage.__name__] += 1
            self.problems += [f"{damage.__name__}: {problem}" for problem in self._judge()]
            self._mend()

    def flip_every_bit_of_the_manifest(self) -> int:
        """Try the flip of every bit of the manifest; return how many there are."""
        path = self.newest / manifests.MANIFEST
        content = path.read_bytes()
        for number in range(8 * len(content)):
            flipped = bytearray(content)
            flipped[number // 8] ^= 1 << number % 8
            path.write_bytes(flipped)
            if not is_refused(self.newest):
                self.problems.append(f"bit {number} of the manifest may be either")
        self._mend()
        return 8 * len(content)

    def add_a_stranger(self) -> None:
        """Files that belong to no checkpoint are no damage, and change nothing."""
        for name in ("notes.txt", "__0.metadata", "__1_0.distcp", ".nfs0001"):
            (self.newest / name).write_bytes(self.chance.randbytes(100))
        said, state = self.restore(self.newest)
        if said.events != [("checkpoint_restored", self.newest.name)] or state != digest(state_at(NEWEST)):
            self.problems.append(f"a stranger's file: {said.events}")
        self._mend()

    def _judge(self) -> list[str]:
        problems = []
        said, state = self.restore(self.newest, self.older)
        if said.events != [("checkpoint_damaged", self.newest.name), ("checkpoint_restored", self.older.name)]:
            problems.append(f"it went {said.events}")
        if not any(", trying an older one" in line for line in said.lines):
            problems.append("nothing was reported")
        if state != self.expected:
            problems.append("the state restored is not the older one's")
        if self.restore(self.newest)[1] != self.fresh:
            problems.append("something of it was loaded")
        return problems

    def restore(self, *candidates: Place) -> tuple[Said, str]:
        """Restore from `candidates`; return the lines that were logged, and the digest of the state afterwards."""
        said, state = Said(), state_at(0)
        try:
            restoring.restore(self.checkpoints, candidates, state, cast("Telemetry", said), required=True)
        except (NoUsableCheckpointError, CheckpointUnreachableError):
            said.lines.append("nothing usable")
        return said, digest(state)

    def _mend(self) -> None:
        shutil.rmtree(self.newest, ignore_errors=True)
        shutil.copytree(self._pristine, self.newest)


def is_refused(folder: Path) -> bool:
    try:
        checkpoint.verify(SoloGroup(), folder)
    except CheckpointCorruptError:
        return True
    return False
