"""kill -9 in a save: at random times, and before every single call that changes the disk. Errors at each such call as well."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from paceline.distributed.solo_group import SoloGroup
from paceline.training.errors import CheckpointError
from paceline.training.saving import checkpoint
from paceline.training.saving import manifest as manifests
from paceline.training.saving.checkpoint_directory import open_directory
from paceline.training.saving.storage import SIGN
from scripts.torture.saver import KEPT, WAIT_SECONDS, Lifetime, Saver, checkpoints_at, digest, newest_first, state_at, wait_until

#: A few saves long, so that kills fall anywhere in one, and in the deletions between two.
LONGEST_LIFE_SECONDS = 0.2
UNENDING = 1_000_000
#: strace's names of the calls that change a disk, or open what is to be changed.
CHANGING = "openat,creat,write,pwrite64,writev,ftruncate,fsync,fdatasync,rename,renameat,renameat2,mkdir,mkdirat,unlink,unlinkat,rmdir"


@dataclass(frozen=True)
class Find:
    """State that a killed saver has left, and the faults found in it."""

    where: str
    problems: tuple[str, ...]


def look(directory: Path, told: int) -> Find:
    """`told`: the newest step that the saver had said was committed."""
    folders = newest_first(directory)
    newest = step_of(folders[0]) if folders else 0
    problems = [problem for folder in folders if (problem := fault_of(folder)) is not None]
    if newest < told:
        problems.append(f"step {told} was told, and the newest checkpoint is of step {newest}")
    if folders and not problems:
        problems += wrong_state(folders[0])
    debris = [path.name for path in directory.glob("*.tmp")]
    return Find(place(debris, newest, told), tuple(problems))


def place(debris: list[str], newest: int, told: int) -> str:
    """Describe where in its life the saver was struck."""
    if debris:
        return "while deleting" if int(debris[0][5:].split(".")[0]) <= told else "while saving"
    return "published, not told" if newest > told else "between saves"


def step_of(folder: Path) -> int:
    name = manifests.NAME.fullmatch(folder.name)
    assert name is not None, folder
    return int(name["step"])


def fault_of(folder: Path) -> str | None:
    try:
        checkpoint.verify(SoloGroup(), folder)
    except CheckpointError as error:
        return f"unusable: {error}"
    return None


def wrong_state(folder: Path) -> list[str]:
    state, step = state_at(0), step_of(folder)
    checkpoint.load(SoloGroup(), state, folder, manifests.read(folder))
    return [] if digest(state) == digest(state_at(step)) else [f"{folder.name} does not hold the state of step {step}"]


def debris_after_cleaning(directory: Path, generation: int) -> list[str]:
    """Return the names of debris that the next generation leaves in `directory` after it has cleaned up."""
    open_directory(checkpoints_at(directory, generation), ())
    names = {path.name for path in directory.iterdir()} - {SIGN}
    return sorted(name for name in names if manifests.NAME.fullmatch(name) is None or name.endswith(".tmp"))


class Struck:
    """A job's directory in which saver after saver is struck. `behind`: the savers write in the background of other work."""

    def __init__(self, folder: Path, seed: int, directory: Path | None = None, *, behind: bool = False) -> None:
        self.folder, self.directory, self.behind = folder, directory or folder / "checkpoints", behind
        self.chance = random.Random(seed)
        self.generation = self.step = 0
        self.finds: list[Find] = []

    def killed_at_random(self, count: int) -> None:
        """Kill savers after a random time each."""
        for _ in range(count):
            saver = self._saver()
            saver.go()
            self._wait()
            saver.kill()
            self._after(saver)

    def killed_before_calls(self, every: int = 1) -> None:
        """Kill savers during one save and the deletion of the oldest, before each of their system calls or one in so many.

        In the background only the calls of the writing thread count.
        """
        for call, number in self._calls()[self.chance.randrange(every) :: every]:
            saver = self._saver(saves=1)
            with Tracer(saver.journal.thread, f"inject={call}:signal=SIGKILL:when={number}"):
                saver.go()
                self._after(saver)

    def refused_at_calls(self, error: str, every: int = 1) -> None:
        """An error in the place of the kill: that save fails or does not mind, and the very next one works."""
        for call, number in self._calls()[self.chance.randrange(every) :: every]:
            saver, step = self._saver(saves=2), self.step + 1
            with Tracer(saver.journal.thread, f"inject={call}:error={error}:when={number}"):
                saver.go()
                code = self._after(saver)
            self._judge(f"{call} {number} {error}", saver, step, code)

    def _calls(self) -> list[tuple[str, int]]:
        """What an undisturbed save asks of the system, as (call, how often until then)."""
        self._undisturbed(KEPT)
        saver = self._saver(saves=1)
        with Tracer(saver.journal.thread) as tracer:
            saver.go()
            self._after(saver)
        self.finds.clear()
        seen: Counter[str] = Counter()
        for call in tracer.calls:
            seen[call] += 1
        return [(call, number) for call in seen for number in range(1, seen[call] + 1)]

    def _judge(self, what: str, saver: Saver, step: int, code: int) -> None:
        """Judge a save and the one after it. The first of the two may fail."""
        where = "save failed, next one worked" if saver.journal.failed == step else "save did not mind"
        problems = list(self.finds[-1].problems)
        if code != 0 or saver.journal.committed != step + 1:
            problems.append(f"{what}: the next save did not work (exit code {code}, step {step + 1} not committed)")
        self.finds[-1] = Find(where, tuple(problems))

    def _wait(self, most_seconds: float = LONGEST_LIFE_SECONDS) -> None:
        time.sleep(self.chance.uniform(0, most_seconds))

    def _undisturbed(self, saves: int) -> None:
        saver = self._saver(saves)
        saver.go()
        self._after(saver)
        self.finds.clear()

    def _saver(self, saves: int = UNENDING) -> Saver:
        self.generation += 1
        return Saver(self.folder, self.directory, Lifetime(self.generation, self.step + 1, saves, self.behind))

    def _after(self, saver: Saver) -> int:
        code = saver.end()
        told = max(saver.journal.committed, self.step)
        find = look(self.directory, told)
        left = debris_after_cleaning(self.directory, self.generation + 1)
        problems = (*find.problems, *(f"debris is left: {name}" for name in left))
        self.finds.append(Find("not struck" if code == 0 else find.where, problems))
        folders = newest_first(self.directory)
        self.step = max(told, step_of(folders[0]) if folders else 0)
        return code

    @property
    def summary(self) -> Counter[str]:
        return Counter(find.where for find in self.finds)

    @property
    def problems(self) -> list[str]:
        return [f"{find.where}: {problem}" for find in self.finds for problem in find.problems]


class Tracer:
    """strace on one thread of a process; with a rule, it changes what one of the thread's calls does."""

    def __init__(self, thread: int, rule: str | None = None) -> None:
        self._thread, self._log = thread, ""
        self._rule = [] if rule is None else ["-e", rule]

    @property
    def calls(self) -> list[str]:
        return re.findall(r"^(\w+)\(", self._log, re.MULTILINE)

    def __enter__(self) -> Tracer:
        command = ["strace", "-q", "-e", f"trace={CHANGING}", *self._rule, "-p", str(self._thread)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: is_traced(self._thread), "strace")
        return self

    def __exit__(self, *raised: object) -> None:
        _, self._log = self._process.communicate(timeout=WAIT_SECONDS)


def is_traced(thread: int) -> bool:
    found = re.search(r"TracerPid:\t(\d+)", Path(f"/proc/{thread}/status").read_text())
    return found is not None and found[1] != "0"


def why_no_tracer() -> str | None:
    """Return why strace cannot be used here, or None where it works."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    done = subprocess.run(["strace", "-q", "-e", "trace=none", "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"strace may not trace: {done.stderr.strip()}"
