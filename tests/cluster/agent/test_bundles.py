"""The code of jobs on a node: fetched once, put into the job's folder whole or not at all, evicted by size."""

from __future__ import annotations

import asyncio
import errno
import io
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from paceline.bundles.archive import pack, unpack
from paceline.bundles.listing import list_files
from paceline.cluster.agent import bundles
from paceline.cluster.agent.bundles import CodeNotFetchedError, CodeRefusedError, JobCode
from paceline.cluster.agent.upload.transfer import PROBLEM_TYPE
from paceline.training.link import RankOrder
from paceline.training.rank_folder import RankFolder
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import world
from tests.paceline.bundles.test_archive import crafted, entry
from tests.paceline.bundles.test_listing import make

Answer = Callable[[httpx.Request], httpx.Response]


class Node:
    """A node's folder, and the coordinator that it asks for code: `archives` by digest, or other answers first."""

    def __init__(self, data: Path) -> None:
        self.data, self.archives = data, dict[str, bytes]()
        self.answers, self.asked = list[httpx.Response | Exception](), list[str]()
        self.http = httpx.AsyncClient(transport=httpx.MockTransport(self._answer), base_url="http://coordinator")
        (data / "jobs").mkdir(parents=True)
        self.code = self.fresh()

    def fresh(self, **options: Any) -> JobCode:
        return JobCode(self.http, self.data / "bundles", None, **options)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path.rpartition("/")[2])
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        data = self.archives.get(self.asked[-1])
        return httpx.Response(404, headers={"content-type": PROBLEM_TYPE}) if data is None else httpx.Response(200, content=data)

    def bundle(self, folder: Path, **files: str) -> str:
        into = io.BytesIO()
        packed = pack(list_files(make(folder, **files)), into)
        self.archives[packed.digest] = into.getvalue()
        return packed.digest

    def order(self, digest: str | None, job: str = "job", rank: int = 0) -> RankOrder:
        spec = {"name": "job", "script": {"path": "train.py"}, "environment": {"code": {"bundle": digest}} if digest else {}}
        folder = RankFolder(self.data, job, 1, rank)
        folder.path.mkdir(parents=True, exist_ok=True)
        return RankOrder(spec=StoredSpec(spec), world=world(job, rank, 4), folder=str(folder.path), agent_socket="")

    def work(self, job: str = "job") -> Path:
        return self.data / "jobs" / job / "work"

    def kept(self) -> list[str]:
        return sorted(path.name for path in (self.data / "bundles").iterdir())


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(bundles, "FIRST_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(bundles, "LONGEST_RETRY_SECONDS", 0.002)
    return Node(tmp_path / "agent")


async def test_ranks_at_once_and_jobs_later_fetch_it_once(node: Node, tmp_path: Path) -> None:
    digest = node.bundle(tmp_path / "code", **{"train.py": "x", "pkg/a.py": "y"})
    await asyncio.gather(*(node.code.place(node.order(digest, rank=rank)) for rank in range(4)))
    await node.code.place(node.order(digest, "another"))
    await node.fresh().place(node.order(digest, "after-a-restart"))
    assert node.asked == [digest]
    for job in ("job", "another", "after-a-restart"):
        assert (node.work(job) / "pkg" / "a.py").read_text() == "y"
    assert node.kept() == [f"{digest}.tar.zst"]


async def test_what_a_script_wrote_stays(node: Node, tmp_path: Path) -> None:
    digest = node.bundle(tmp_path / "code", **{"train.py": "x"})
    await node.code.place(node.order(digest))
    (node.work() / "model.pt").write_text("weights")
    (node.work() / "train.py").write_text("patched")
    await node.fresh().place(node.order(digest))
    assert ((node.work() / "model.pt").read_text(), (node.work() / "train.py").read_text()) == ("weights", "patched")


async def test_a_job_without_code_asks_nothing(node: Node) -> None:
    await node.code.place(node.order(None))
    assert (node.asked, node.work().exists()) == ([], False)


async def test_a_coordinator_that_is_away_for_a_while(node: Node, tmp_path: Path) -> None:
    digest = node.bundle(tmp_path / "code", **{"train.py": "x"})
    cut = node.archives[digest][:-20]
    node.answers = [
        httpx.ConnectError("refused"),
        httpx.Response(503),
        httpx.Response(404, text="a proxy that finds no coordinator behind it"),
        httpx.Response(200, content=cut),
        httpx.Response(200, content=b"<html>"),
    ]
    await node.code.place(node.order(digest))
    assert (len(node.asked), (node.work() / "train.py").exists()) == (6, True)
    assert node.kept() == [f"{digest}.tar.zst"]


async def test_code_that_takes_longer_than_its_patience_arrives_as_long_as_bytes_come(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "FETCH_SECONDS", 100.0)
    digest = node.bundle(tmp_path / "code", **{"train.py": "x"})
    data, loop, ahead = node.archives[digest], asyncio.get_running_loop(), 0.0
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + ahead)  # a machine that stands still for a moment passes no second of this test

    async def slowly() -> AsyncIterator[bytes]:
        nonlocal ahead
        for start in range(0, len(data), len(data) // 3):
            yield data[start : start + len(data) // 3]
            ahead += 40.0
            for _ in range(3):  # turns of the event loop, in which a deadline that has passed is noticed
                await asyncio.sleep(0)

    node.answers = [httpx.Response(200, content=slowly())]
    await node.code.place(node.order(digest))
    assert (node.work() / "train.py").exists()
    assert node.asked == [digest]


async def test_why_it_was_not_fetched(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "FETCH_SECONDS", 1.5)
    other = node.bundle(tmp_path / "other", **{"train.py": "other"})
    digest = node.bundle(tmp_path / "code", **{"train.py": "x"})
    node.archives[digest] = node.archives[other]
    with pytest.raises(CodeNotFetchedError, match=f"was not fetched within 1.5 s: what came has the digest {other[:12]}"):
        await node.code.place(node.order(digest))
    with pytest.raises(CodeRefusedError, match=r"does not have the job's code .* any more; submit the job anew"):
        await node.code.place(node.order("0" * 64, "unknown"))
    assert (node.kept(), node.work().exists(), node.work("unknown").exists()) == ([], False, False)


async def test_an_archive_that_the_disk_has_changed_is_fetched_anew(node: Node, tmp_path: Path) -> None:
    digest = node.bundle(tmp_path / "code", **{"train.py": "x"})
    await node.code.place(node.order(digest))
    (node.data / "bundles" / f"{digest}.tar.zst").write_bytes(b"rotten")
    with pytest.raises(CodeNotFetchedError, match="cannot be unpacked on this node"):
        await node.code.place(node.order(digest, "second"))
    assert not node.work("second").exists()
    await node.code.place(node.order(digest, "second"))
    assert (node.work("second") / "train.py").exists()
    assert len(node.asked) == 2


@pytest.mark.parametrize("name", ["folder/" * 450 + "x.py", "n" * 256, "train.py/below"], ids=["path", "name", "place"])
async def test_code_that_cannot_be_unpacked_is_refused_for_good(node: Node, name: str) -> None:
    """A job was started three times more, each time in vain."""
    digest, data = crafted((entry("train.py"), b"x"), (entry(name), b"y"))
    node.archives[digest] = data.getvalue()
    with pytest.raises(CodeRefusedError, match=r"cannot be unpacked on this node: .*; change it, and submit the job anew"):
        await node.code.place(node.order(digest))
    assert (node.kept(), node.work().exists()) == ([f"{digest}.tar.zst"], False)


async def test_code_whose_names_are_too_long_below_this_nodes_folder_is_refused_for_good(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    monkeypatch.setattr(bundles, "unpack", fail)
    with pytest.raises(CodeRefusedError, match="File name too long"):
        await node.code.place(node.order(node.bundle(tmp_path / "code", **{"train.py": "x"})))


async def test_a_full_disk_is_no_fault_of_the_code(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(bundles, "unpack", fail)
    with pytest.raises(CodeNotFetchedError, match="No space left") as told:
        await node.code.place(node.order(node.bundle(tmp_path / "code", **{"train.py": "x"})))
    assert not isinstance(told.value, CodeRefusedError)


async def test_what_an_earlier_agent_did_not_finish_is_cleared(node: Node, tmp_path: Path) -> None:
    digest = node.bundle(tmp_path / "code", **{"train.py": "x"})
    await node.code.place(node.order(digest))
    make(node.data / "bundles" / "unfinished-1", **{"pkg/a.py": "half"})
    (node.data / "bundles" / "unfinished-2").write_bytes(b"half")
    node.fresh().clear()
    assert node.kept() == [f"{digest}.tar.zst"]


async def test_the_archives_used_longest_ago_go_first(node: Node, tmp_path: Path) -> None:
    digests = [node.bundle(tmp_path / name, **{"train.py": name}) for name in ("a", "b", "c")]
    size = max(len(data) for data in node.archives.values())
    small = node.fresh(cache_bytes=2 * size)
    for number, digest in enumerate(digests[:2]):
        await small.place(node.order(digest, f"job-{number}"))
        os.utime(node.data / "bundles" / f"{digest}.tar.zst", (number, number))
    await small.place(node.order(digests[0], "again"))  # used again, so the other one is older
    await small.place(node.order(digests[2], "third"))
    assert node.kept() == sorted(f"{digest}.tar.zst" for digest in (digests[0], digests[2]))


async def test_an_archive_that_another_launch_deletes_at_the_same_time_fails_no_rank(node: Node, tmp_path: Path) -> None:
    digest = node.bundle(tmp_path / "code", **{"train.py": "x"})
    (node.data / "bundles").mkdir()
    (node.data / "bundles" / "listed-and-gone.tar.zst").symlink_to(tmp_path / "nowhere")
    await node.fresh(cache_bytes=1).place(node.order(digest))
    assert (node.work() / "train.py").exists()


async def test_an_archive_that_another_launch_deletes_before_it_is_unpacked_fails_no_rank(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, unpack_open = node.bundle(tmp_path / "a", **{"train.py": "x"}), node.code._unpack
    for job in ("first", "second"):  # fetched, and found

        async def unpack_evicted(*arguments: Any) -> None:
            (node.data / "bundles" / f"{digest}{bundles.ARCHIVE}").unlink()
            await unpack_open(*arguments)
            (node.data / "bundles" / f"{digest}{bundles.ARCHIVE}").write_bytes(node.archives[digest])

        monkeypatch.setattr(node.code, "_unpack", unpack_evicted)
        await node.code.place(node.order(digest, job))
        assert (node.data / "jobs" / job / "work" / "train.py").read_text() == "x"


async def test_a_launch_that_is_called_off_leaves_nothing_half_done(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = node.bundle(tmp_path / "code", **{"train.py": "x"})
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(*arguments: Any) -> int:
        loop.call_soon_threadsafe(began.set)
        return unpack(*arguments)

    monkeypatch.setattr(bundles, "unpack", slow)
    task = asyncio.create_task(node.code.place(node.order(digest)))
    await began.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await node.code.place(node.order(digest, "next"))
    assert (node.work("next") / "train.py").exists()
    assert not node.work().exists() or (node.work() / "train.py").exists()
