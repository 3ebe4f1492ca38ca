"""Checkpoints of two ranks in an object store: kill -9 at random moments, and damaged objects. The store is moto's S3 server in this process."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from paceline.cluster.agent import checkpoints as deletion
from paceline.cluster.protocol import CheckpointToDelete
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.process_group import Group
from paceline.distributed.solo_group import SoloGroup
from paceline.objects.location import Place, parse
from paceline.training import restoring
from paceline.training.errors import CheckpointError
from paceline.training.link import RankPlace
from paceline.training.reporting.telemetry import Telemetry
from paceline.training.saving import checkpoint
from paceline.training.saving.checkpoint_directory import CheckpointDirectory, open_directory
from paceline.training.saving.manifest import CommittedCheckpoint
from paceline.training.saving.object_storage import ObjectStorage
from paceline.training.saving.writers import BackgroundWriter, BlockingWriter
from scripts.torture.damage import DAMAGES, Damage, Said, Spoiler, make_a_file_a_dead_link, make_a_file_a_folder
from scripts.torture.kills import Find, Struck, place
from scripts.torture.saver import KEPT, SPEC, WAIT_SECONDS, Journal, Lifetime, digest, save, state_at, wait_until
from tests.object_store import BUCKET, CREDENTIALS, FaultyStore
from tests.ranks import PROCESSES, StoreThread, make_world

RANKS = 2
#: Ranks are killed in or after one of so many saves. The second one dies later, by as long at most as a request takes.
MOST_SAVES, AFTER_SECONDS = 4, 0.1
#: How long the first save may go on before the kill: nothing has told yet how long one takes.
FIRST_SECONDS = 0.5


@dataclass(frozen=True)
class StoredPlace:
    """Where the ranks of a job save: `folder` has their nodes' staging folders."""

    url: str
    options: Mapping[str, str]
    folder: Path

    def checkpoints(self, generation: int, group: Group | None = None) -> CheckpointDirectory:
        group = group or SoloGroup()
        storage = ObjectStorage(parse(self.url), self.options, self.folder / f"node-{group.rank}", generation, group.rank)
        return CheckpointDirectory(storage, "torture", generation, SPEC, group)

    def delete(self, name: str) -> None:
        """Delete a checkpoint as an agent does."""
        doomed = CheckpointToDelete(id=name, directory=f"{self.url}/{name}", options=dict(self.options))
        deletion.delete(doomed, set(self.options.values()))


def be_a_rank(world: RankPlace, stored: StoredPlace, life: Lifetime, log: Path) -> None:
    """Save steps from `life.first` on, together with the other rank, until killed. Rank 0 waits for `go`, tells what is committed, and keeps the newest few."""
    torch.set_num_threads(1)
    os.dup2(os.open(f"{log}.{world.rank}", os.O_WRONLY), 2)  # the one that is killed later says that its peer is gone
    os.environ.update(CREDENTIALS)
    group, journal, names = join(world, GroupAborter()), Journal(log), list[str]()
    checkpoints = stored.checkpoints(life.generation, group)
    writer = BackgroundWriter(RANKS, print) if life.behind else BlockingWriter()
    open_directory(checkpoints, ())
    if group.rank == 0:
        names = [each.directory.name for each in newest_first(checkpoints)]
        journal.ready = 1
        wait_until(lambda: bool(journal.go), "the order to go")
    for step in range(life.first, life.first + life.saves):
        committed = save(checkpoints, state_at(step), {"loss": 1.0 / step}, writer)
        if group.rank == 0:
            journal.committed = step
            names.insert(0, committed.directory.name)
            while len(names) > KEPT:
                stored.delete(names.pop())


def newest_first(checkpoints: CheckpointDirectory) -> list[CommittedCheckpoint]:
    return sorted(checkpoint.unreported(checkpoints, ()), key=lambda each: (each.manifest.step, each.manifest.generation), reverse=True)


class SavingGang:
    """Two ranks of a generation, each a process on a node of its own, and the journal of rank 0."""

    def __init__(self, port: int, stored: StoredPlace, life: Lifetime) -> None:
        self._log, self._first = stored.folder / f"journal.{life.generation}", life.first
        self.journal = Journal(self._log)
        worlds = [make_world(rank, RANKS, port, Path("/nonexistent"), life.generation) for rank in range(RANKS)]
        self.ranks = [PROCESSES.Process(target=be_a_rank, args=(world, stored, life, self._log), daemon=True) for world in worlds]
        for number, rank in enumerate(self.ranks):
            Path(f"{self._log}.{number}").touch()
            rank.start()
        wait_until(lambda: bool(self.journal.ready) or bool(self.ended()), "the ranks")

    def save(self, count: int) -> float:
        """Let the ranks begin, and wait for so many saves. Returns the seconds that one took, in the mean."""
        began, self.journal.go = time.monotonic(), 1
        wait_until(lambda: self.journal.committed >= self._first + count - 1 or bool(self.ended()), "the saves")
        return (time.monotonic() - began) / max(count, 1)

    def ended(self) -> list[str]:
        """Return, for each rank that has ended by itself, what it has said last."""
        dead = [number for number, rank in enumerate(self.ranks) if not rank.is_alive()]
        said = {number: Path(f"{self._log}.{number}").read_text(errors="replace").strip().splitlines() for number in dead}
        return [f"rank {number} ended by itself: {(lines or ['it said nothing'])[-1]}" for number, lines in said.items()]

    def kill(self, number: int) -> None:
        self.ranks[number].kill()
        self.ranks[number].join(WAIT_SECONDS)


class StruckInStore(Struck):
    """A job's prefix in a store, in which the ranks of generation after generation are killed, one a moment after the other."""

    def __init__(self, folder: Path, seed: int, store: FaultyStore, rendezvous: StoreThread, *, behind: bool = False) -> None:
        super().__init__(folder, seed, behind=behind)
        folder.mkdir(parents=True)
        self.stored, self._store, self._rendezvous = StoredPlace(f"s3://{BUCKET}/{folder.name}", store.options, folder), store, rendezvous

    def killed_at_random(self, count: int) -> None:
        for _ in range(count):
            self.generation += 1
            self._rendezvous.admit(self.generation)
            gang = SavingGang(self._rendezvous.port, self.stored, Lifetime(self.generation, self.step + 1, 1_000_000, self.behind))
            saves = self.chance.randrange(MOST_SAVES)
            took = gang.save(saves)
            self._wait(took if saves else FIRST_SECONDS)
            ended = gang.ended()
            first = self.chance.randrange(RANKS)
            gang.kill(first)
            self._wait(AFTER_SECONDS)
            gang.kill(1 - first)
            self._look(max(gang.journal.committed, self.step), ended)

    def _look(self, told: int, problems: list[str]) -> None:
        """Judge what the ranks have left, let the next generation clear it, and look for what that leaves."""
        found = newest_first(self.stored.checkpoints(self.generation))
        newest = found[0].manifest.step if found else 0
        debris = sorted(self._folders() - {each.directory.name for each in found})
        for each in found:
            problems += wrong_state(self.stored.checkpoints(self.generation), each)
        if newest < told:
            problems.append(f"step {told} was told, and the newest checkpoint is of step {newest}")
        self.generation += 1
        open_directory(self.stored.checkpoints(self.generation), ())
        left = self._folders() - {each.directory.name for each in found}
        problems += [f"debris is left: {name}" for name in sorted(left)]
        self.finds.append(Find(place(debris, newest, told), tuple(problems)))
        self.step = max(told, newest)

    def _folders(self) -> set[str]:
        return {key.split("/")[1] for key in self._store.names(f"{self.folder.name}/step-")}


def wrong_state(checkpoints: CheckpointDirectory, found: CommittedCheckpoint) -> list[str]:
    """Return what is wrong with a checkpoint that counts as whole: it must come from the store as it was saved."""
    said, state, step = Said(), state_at(0), found.manifest.step
    try:
        restoring.restore(checkpoints, [found.directory], state, cast("Telemetry", said), required=True)
    except CheckpointError as error:
        return [f"{found.directory.name} is unusable: {error}"]
    return [] if digest(state) == digest(state_at(step)) else [f"{found.directory.name} does not hold the state of step {step}"]


class SpoilerInStore(Spoiler):
    """Damages objects: each damage is done to the files of a folder, and what has changed there is put into the store."""

    damages: Mapping[Damage, int] = {
        damage: share for damage, share in DAMAGES.items() if damage not in (make_a_file_a_folder, make_a_file_a_dead_link)
    }

    def __init__(self, folder: Path, seed: int, store: FaultyStore) -> None:
        super().__init__(folder, seed)
        self._stored, self._store = StoredPlace(f"s3://{BUCKET}/damage", store.options, folder), store
        self.checkpoints, self._there = self._stored.checkpoints(1), dict[str, bytes]()
        self._put()

    def restore(self, *candidates: Place) -> tuple[Said, str]:
        self._put()
        shutil.rmtree(self._stored.folder / "node-0", ignore_errors=True)  # files of an earlier try that are right are not fetched again
        place = parse(self._stored.url)
        return super().restore(*(place / each.name for each in candidates))

    def _put(self) -> None:
        """Let the store have the files of both checkpoints, and no others."""
        paths = [path for folder in (self.older, self.newest) if folder.is_dir() for path in folder.iterdir()]
        files = {f"/damage/{path.parent.name}/{path.name}": path.read_bytes() for path in paths}
        for key in self._there.keys() - files.keys():
            self._store.remove(key.removeprefix("/"))
        for key, content in files.items():
            if self._there.get(key) != content:
                self._store.ask("PUT", key, content)
        self._there = files
