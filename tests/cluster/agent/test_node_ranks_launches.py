"""Ranks that are told to end while they are being launched, and an agent that launches none."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from paceline.cluster.agent import node_ranks
from paceline.cluster.agent.card_locks import CardLocks
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.isolation import Isolation
from paceline.cluster.agent.node_ranks import NodeRanks
from paceline.cluster.agent.offer import NodeOffer
from paceline.cluster.agent.ranks.ranks import RankPhase
from paceline.cluster.agent.settings import read_settings
from paceline.cluster.agent.spawner_link import Terminate
from paceline.cluster.protocol import RankKey
from paceline.training.link import RankOrder
from paceline.training.rank_folder import RankFolder
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import training_job, world
from tests.paceline.bundles.test_archive import crafted, entry
from tests.waiting import until


def one_rank(tmp_path: Path, spec: dict[str, Any] | None = None) -> tuple[NodeRanks, RankKey]:
    """(the ranks of a node, the key of the only one, which is being prepared)."""
    folder = AgentFolder(tmp_path)
    folder.create()
    settings = read_settings(["--server", "http://127.0.0.1:9", "--data", str(tmp_path)])
    offer = NodeOffer((), slots=1, locks=CardLocks(tmp_path), sampler=None, gpu_error="no GPU", hides_cards=False)
    ranks = NodeRanks(settings, folder, offer, httpx.AsyncClient(), Isolation(), lambda slot: None, lambda: None)
    place = RankFolder(tmp_path, "job", 1, 0).path
    order = RankOrder(spec=StoredSpec(spec or training_job()), world=world("job"), folder=str(place), agent_socket="/socket")
    return ranks, ranks._table.add(order).key


async def test_a_rank_that_is_cancelled_as_its_launch_completes_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said to have never started, while the spawner forked it: the process kept its card, and nobody had a record of it."""
    ranks, key = one_rank(tmp_path)
    sent = list[object]()
    ranks._table.change(key, phase=RankPhase.ALIVE)
    ranks._launches[key] = launched = asyncio.create_task(asyncio.sleep(0))
    await launched

    def send(message: object, spawner: str) -> bool:
        sent.append(message)
        return True

    monkeypatch.setattr(ranks._spawners, "send", send)
    ranks.terminate(key, 3.0)
    assert sent == [Terminate(key=key, grace_seconds=3.0)]
    assert (ranks.ranks[key].phase, ranks.ranks[key].stopping) == (RankPhase.ALIVE, True)


async def test_a_rank_that_is_to_stop_before_it_has_a_process_did_not_fail(tmp_path: Path) -> None:
    """Its node would be left out of the job's next placement."""
    ranks, key = one_rank(tmp_path)
    ranks._launches[key] = launching = asyncio.create_task(asyncio.sleep(60))
    ranks.terminate(key, 3.0)
    await asyncio.wait([launching])
    ending = ranks.ranks[key].ending
    assert ending is not None
    assert ending.failure is not None
    assert (ending.failure.message, ending.failure.ordered) == ("stopped before it was started", True)


async def test_an_idle_agent_sweeps_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept for a day stayed until the next rank was started or forgotten."""
    monkeypatch.setattr(node_ranks, "SWEEP_SECONDS", 0.02)
    ranks, _ = one_rank(tmp_path)
    old = RankFolder(tmp_path, "old", 1, 0)
    old.path.mkdir(parents=True)
    old.output.write_text("printed")
    os.utime(old.path, (0, 0))
    sweeping = asyncio.create_task(ranks._remove_old_folders())
    await until(lambda: not old.path.exists(), "the removal of what is old")
    sweeping.cancel()
    await asyncio.wait([sweeping])


async def test_code_that_cannot_be_unpacked_ends_the_job_for_good(tmp_path: Path) -> None:
    """The job was started three times more, each time in vain."""
    digest, archive = crafted((entry("folder/" * 450 + "train.py"), b"x"))
    ranks, key = one_rank(tmp_path, {"name": "job", "script": {"path": "train.py"}, "environment": {"code": {"bundle": digest}}})
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles" / f"{digest}.tar.zst").write_bytes(archive.getvalue())
    await ranks._launch(ranks.ranks[key].order, (0,))
    failure = ranks.ranks[key].observed(0.0).failure
    assert failure is not None
    assert (failure.kind, "a path in a bundle may have 3,072" in failure.message) == ("invalid_input", True), failure
