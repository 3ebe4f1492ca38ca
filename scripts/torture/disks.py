"""Saves on real file systems that are full, read-only or dying. They take root; elsewhere `why_no_machine` says so."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from paceline.training.errors import CheckpointSaveError
from paceline.training.saving import checkpoint
from paceline.training.saving.checkpoint_directory import open_directory
from scripts.faults.disks import command, fill, small_disk, why_not
from scripts.torture.kills import Struck, look
from scripts.torture.saver import checkpoints_at, state_at

MEBIBYTE = 1 << 20
ROOM_MEBIBYTES = 8  # for five checkpoints of `state_at`
CLONE_NEWNS = 0x20000
FS_IOC_SHUTDOWN = 0x8004587D
WITHOUT_FLUSHING = 2


def why_no_machine() -> str | None:
    return why_not() or ("mkfs.ext4 is not installed" if shutil.which("mkfs.ext4") is None else None)


def mount_privately() -> None:
    """Enter a mount namespace of this process's own: its mounts are invisible to other processes, and end with it."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    command("mount", "--make-rprivate", "/")


class Machine:
    """ext4 with a journal on a file of its own, that can lose its power: what was not synced by then is gone."""

    def __init__(self, folder: Path) -> None:
        self.disk, self._image = folder / "disk", folder / "image"
        self.disk.mkdir(parents=True, exist_ok=True)
        with open(self._image, "wb") as file:
            file.truncate(8 * ROOM_MEBIBYTES * MEBIBYTE)
        command("mkfs.ext4", "-q", str(self._image))

    def switch_on(self) -> None:
        command("mount", "-o", "loop", str(self._image), str(self.disk))

    def cut_power(self) -> None:
        """Make every later call on the file system fail with EIO."""
        descriptor = os.open(self.disk, os.O_RDONLY)
        fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, struct.pack("I", WITHOUT_FLUSHING))
        os.close(descriptor)

    def switch_off(self) -> None:
        command("umount", str(self.disk))


class Disk:
    """Saves on a file system that is taken away and given back. `problems` is what should not have happened."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.checkpoints = directory / "job", checkpoints_at(directory / "job", 1)
        open_directory(self.checkpoints, ())
        self.step = self.told = 0
        self.reasons: list[str] = []
        self.problems: list[str] = []

    def saves(self) -> None:
        self.step += 1
        try:
            checkpoint.save(self.checkpoints, state_at(self.step), {})
            self.told = self.step
        except CheckpointSaveError as error:
            self.problems.append(f"step {self.step} was not saved: {error}")
        self._look()

    def refuses(self, words: str, *, readable: bool = True) -> None:
        """The save fails, says why, and leaves the newest checkpoint as it was."""
        self.step += 1
        try:
            checkpoint.save(self.checkpoints, state_at(self.step), {})
            self.problems.append(f"step {self.step} was saved")
        except CheckpointSaveError as error:
            self.reasons.append(str(error))
            if words not in str(error):
                self.problems.append(f"the reason does not say {words!r}: {error}")
        if readable:
            self._look()

    def _look(self) -> None:
        find = look(self.directory, self.told)
        self.problems += find.problems
        if find.where != "between saves":
            self.problems.append(f"after step {self.step}: {find.where}")


def fill_and_free(folder: Path) -> Disk:
    with small_disk(folder, ROOM_MEBIBYTES) as directory:
        disk = Disk(directory)
        disk.saves()
        filler = fill(directory)
        disk.refuses("No space left on device")
        disk.refuses("MB are free there")
        filler.unlink()
        disk.saves()
    return disk


def fill_in_the_middle(folder: Path) -> Disk:
    """Room for half a checkpoint: it fails somewhere in the tensors."""
    with small_disk(folder, ROOM_MEBIBYTES) as directory:
        disk = Disk(directory)
        disk.saves()
        filler = fill(directory)
        os.truncate(filler, filler.stat().st_size - MEBIBYTE // 2)
        disk.refuses("free there")
        filler.unlink()
        disk.saves()
    return disk


def make_read_only(folder: Path) -> Disk:
    with small_disk(folder, ROOM_MEBIBYTES) as directory:
        disk = Disk(directory)
        disk.saves()
        command("mount", "-o", "remount,ro", str(directory))
        disk.refuses("Read-only file system")
        command("mount", "-o", "remount,rw", str(directory))
        disk.saves()
    return disk


def let_it_die(folder: Path) -> Disk:
    """Let every call fail until the disk is mounted again; then check that everything committed is there."""
    machine = Machine(folder)
    machine.switch_on()
    disk = Disk(machine.disk)
    disk.saves()
    machine.cut_power()
    disk.refuses("Input/output error", readable=False)
    machine.switch_off()
    machine.switch_on()
    disk.saves()
    machine.switch_off()
    return disk


class PowerCuts(Struck):
    """The power goes at a random moment of saver after saver; each finds what its predecessor had told to be committed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.machine = Machine(folder / "machine")
        super().__init__(folder, seed, self.machine.disk / "checkpoints")

    def cut_at_random(self, count: int) -> None:
        self.machine.switch_on()
        for _ in range(count):
            saver = self._saver()
            saver.go()
            self._wait()
            self.machine.cut_power()
            saver.kill()
            saver.end()
            self.machine.switch_off()
            self.machine.switch_on()
            self._after(saver)
        self.machine.switch_off()


SCENES: dict[str, Callable[[Path], Disk]] = {
    "disk full": fill_and_free,
    "disk full in the middle": fill_in_the_middle,
    "read-only": make_read_only,
    "dying disk (EIO)": let_it_die,
}
