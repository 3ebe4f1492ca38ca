"""Environments on a node: built once, whole or not at all, one build at a time, ended when cancelled, evicted when nothing uses them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import platform
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.cluster.agent.environments import built, uv
from paceline.cluster.agent.environments.built import BuiltEnvironments
from paceline.cluster.agent.environments.node_package import NODE_PACKAGES
from paceline.cluster.agent.environments.node_python import NodePython
from paceline.cluster.agent.environments.uv import BuildFailedError
from paceline.cluster.agent.removal import remove_tree
from tests.cluster.agent.environments.fake_uv import FakeUv
from tests.processes import is_pid_alive
from tests.waiting import until

NODE = NodePython(
    executable="/usr/bin/python3", version=platform.python_version(), platform="linux", sites=("/agent/packages",),
    packages={"torch": "2.13.0+cpu", "numpy": "2.4.6"}, constraints=("pydantic>=2",),
)  # fmt: skip


class Place:
    def __init__(self, data: Path) -> None:
        self.folder, self.lines, self.used = data / "environments", list[str](), set[str]()
        self.uv, self.built = FakeUv(data), self.fresh()

    def fresh(self, **options: int) -> BuiltEnvironments:
        return BuiltEnvironments(self.folder, None, dict(os.environ), self._in_use, **options)

    def _in_use(self) -> Collection[str]:
        return self.used

    async def build(self, *requirements: str, own_torch: bool = False) -> tuple[str, Path]:
        return await self.built.interpreter(NODE, requirements, own_torch=own_torch, say=self.lines.append)

    def keys(self) -> set[str]:
        return {path.name for path in self.folder.iterdir() if path.is_dir()}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    found = Place(tmp_path)
    monkeypatch.setattr(uv, "find_uv", lambda: str(found.uv.path))
    return found


async def test_ranks_at_once_and_jobs_later_build_it_once(place: Place) -> None:
    found = await asyncio.gather(*(place.build("a==1", "b==2") for _ in range(4)))
    found.append(await place.build("b==2", "a==1"))  # in another order
    assert len({key for key, _ in found}) == 1
    assert place.uv.commands == ["pip compile", "venv", "node", "pip install"]
    assert any("waiting for it" in line for line in place.lines)


async def test_what_the_node_has_is_not_installed_and_is_found_behind_the_rest(place: Place) -> None:
    _, python = await place.build("numpy==2.4.6", "torch==2.13.0+cpu")
    assert place.uv.commands == ["pip compile", "venv", "node"]
    (pth,) = python.parents[1].glob(f"lib/*/site-packages/{NODE_PACKAGES}")
    assert "addsitedir('/agent/packages')" in pth.read_text()


async def test_with_a_torch_of_its_own_nothing_of_the_node_is_in_it(place: Place) -> None:
    _, python = await place.build("torch==2.1.0", own_torch=True)
    assert place.uv.commands == ["pip compile", "venv", "pip install"]
    assert not list(python.parents[1].glob(f"lib/*/site-packages/{NODE_PACKAGES}"))


SAID = r"^No solution found when resolving dependencies: Because broken was not found \(of environment\.requirements: broken==1\)$"


async def test_a_build_that_fails_says_uvs_reason_and_is_tried_anew_by_the_next_job(place: Place) -> None:
    for _ in range(2):
        with pytest.raises(BuildFailedError, match=SAID):
            await place.build("other>=1", "broken==1")
    assert place.uv.commands == ["pip compile"] * 2


async def test_a_cancelled_build_ends_with_all_it_has_started(place: Place) -> None:
    task = asyncio.create_task(place.build("slow==1"))
    await until(lambda: place.uv.pids.exists() and place.uv.pids.read_text().count(" ") == 1, "the build")
    pids = [int(word) for word in place.uv.pids.read_text().split()]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not any(is_pid_alive(pid) for pid in pids), "the end of uv and its child")


async def test_a_build_that_an_agent_has_left_behind_is_waited_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built, "LOCK_POLL_SECONDS", 0.01)
    place.folder.mkdir()
    key = NODE.key(("a==1",), own_torch=False)
    with open(place.folder / f"{key}.lock", "ab") as held:  # noqa: ASYNC230 - as a living uv has it
        fcntl.flock(held, fcntl.LOCK_EX)
        task = asyncio.create_task(place.build("a==1"))
        await until(lambda: any("another process" in line for line in place.lines), "the wait")
        assert place.uv.commands == []
    await task
    assert place.uv.commands == ["pip compile", "venv", "node", "pip install"]


async def test_the_rest_of_a_killed_build_is_built_over(place: Place) -> None:
    key = NODE.key(("a==1",), own_torch=False)
    (place.folder / key / "venv").mkdir(parents=True)
    (place.folder / key / "rest").write_text("x")
    await place.build("a==1")
    assert not (place.folder / key / "rest").exists()


async def test_what_was_used_longest_ago_goes_first_and_never_what_is_in_use(place: Place) -> None:
    keys = [(await place.build(f"a=={number}"))[0] for number in range(3)]
    for age, key in enumerate(reversed(keys)):
        os.utime(place.folder / key / built.READY, (1000.0 - age, 1000.0 - age))
    place.used = {keys[0]}
    place.fresh(most_bytes=1).evict(now=1001.0, keep=keys[2])
    assert place.keys() == {keys[0], keys[2]}


async def test_what_no_job_has_used_for_long_is_removed_unless_it_is_being_built(place: Place) -> None:
    keys = [(await place.build(f"a=={number}"))[0] for number in range(2)]
    for key in keys:
        os.utime(place.folder / key / built.READY, (0.0, 0.0))
    with open(place.folder / f"{keys[1]}.lock", "ab") as held:  # noqa: ASYNC230 - an empty file
        fcntl.flock(held, fcntl.LOCK_EX)
        place.built.evict(now=built.MOST_IDLE_SECONDS + 1.0)
    assert place.keys() == {keys[1]}


@pytest.mark.parametrize(
    "put",
    [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: path.write_bytes(b" " * (built.MOST_READY_BYTES + 1))],
    ids=["pipe", "folder", "device", "large"],
)
async def test_what_a_job_makes_of_its_environments_record_keeps_no_build_waiting_and_is_removed(
    place: Place, put: Callable[[Path], None]
) -> None:
    key, _ = await place.build("a==1")
    (place.folder / key / built.READY).unlink()
    put(place.folder / key / built.READY)
    await place.build("b==2")
    place.built.evict(now=time.time() + 2 * built.MOST_IDLE_SECONDS)
    assert place.keys() == set()


async def test_a_job_that_uses_an_environment_changes_no_file_that_its_record_leads_to(place: Place, tmp_path: Path) -> None:
    key, _ = await place.build("a==1")
    (tmp_path / "elsewhere").touch()
    os.utime(tmp_path / "elsewhere", (1000.0, 1000.0))
    (place.folder / key / built.READY).unlink()
    (place.folder / key / built.READY).symlink_to(tmp_path / "elsewhere")
    await place.build("a==1")
    assert (tmp_path / "elsewhere").stat().st_mtime == 1000.0


async def test_a_link_in_the_place_of_a_file_of_the_build_is_not_followed(place: Place, tmp_path: Path) -> None:
    """Of the wheel that stands for the node's torch: a process of the ranks' user could have the agent empty and open up any file by it."""
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "environment"
    elsewhere.write_text("secret")
    elsewhere.chmod(0o600)
    folder.mkdir()
    (folder / "torch-2.13.0+cpu-py3-none-any.whl").symlink_to(elsewhere)
    with open(tmp_path / "lock", "wb") as held:  # noqa: ASYNC230 - an empty file
        await uv.UvBuild(NODE, folder, dict(os.environ), None, held.fileno(), place.lines.append).run(["a==1"], own_torch=False)
    assert elsewhere.read_text() == "secret"
    assert elsewhere.stat().st_mode & 0o777 == 0o600


async def test_an_environment_that_a_job_takes_while_others_are_removed_stays(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was removed under the job's rank, which then failed for good."""
    requirements = [f"a=={number}" for number in range(2)]
    keys = [(await place.build(requirement))[0] for requirement in requirements]
    for age, key in enumerate(reversed(keys)):
        os.utime(place.folder / key / built.READY, (1000.0 - age, 1000.0 - age))  # the last one is looked at first
    loop = asyncio.get_running_loop()

    def remove_while_a_job_starts(folder: Path) -> None:
        asyncio.run_coroutine_threadsafe(place.build(requirements[0]), loop).result(timeout=10)
        remove_tree(folder)

    monkeypatch.setattr("paceline.cluster.agent.environments.built.remove_tree", remove_while_a_job_starts)
    await asyncio.to_thread(place.built.evict, 1001.0 + built.MOST_IDLE_SECONDS)
    assert place.keys() == {keys[0]}
    assert (place.folder / keys[0] / built.READY).exists()


async def test_an_environment_whose_removal_has_begun_is_built_anew(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built, "LOCK_POLL_SECONDS", 0.01)
    key, _ = await place.build("a==1")
    os.utime(place.folder / key / built.READY, (1000.0, 1000.0))
    loop, taken = asyncio.get_running_loop(), list[Future[tuple[str, Path]]]()

    def remove_while_a_job_starts(folder: Path) -> None:
        if not taken:
            taken.append(asyncio.run_coroutine_threadsafe(place.build("a==1"), loop))
            waits = until(lambda: any("another process" in line for line in place.lines), "the wait for the removal")
            asyncio.run_coroutine_threadsafe(waits, loop).result(timeout=10)
        remove_tree(folder)

    monkeypatch.setattr("paceline.cluster.agent.environments.built.remove_tree", remove_while_a_job_starts)
    await asyncio.to_thread(place.built.evict, 1001.0 + built.MOST_IDLE_SECONDS)
    assert await asyncio.wrap_future(taken[0]) == (key, place.folder / key / "venv" / "bin" / "python")
    assert (place.folder / key / built.READY).exists()


async def test_a_build_beside_one_that_is_removed_meanwhile_is_not_failed_by_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    rest, walk = place.folder / "rest-of-a-build", os.walk
    rest.mkdir(parents=True)

    def walk_with_one_that_is_gone(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
        for below, folders, names in walk(folder):
            yield below, folders, [*names, "gone"] if folder == rest else names

    monkeypatch.setattr(os, "walk", walk_with_one_that_is_gone)
    key, _ = await place.build("a==1")
    assert (place.folder / key / built.READY).exists()


def test_another_interpreter_or_torch_is_another_environment() -> None:
    other = replace(NODE, packages={**NODE.packages, "torch": "2.14.0"})
    assert len({NODE.key(("a",), own_torch=False), NODE.key(("a",), own_torch=True), other.key(("a",), own_torch=False)}) == 3
