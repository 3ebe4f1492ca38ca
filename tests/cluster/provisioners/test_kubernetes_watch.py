"""Jobs and pods that are watched, of an API server that listens: what is missed, forgotten, cut off and refused."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paceline.cluster.provisioners import kubernetes_client, kubernetes_watch
from paceline.cluster.provisioners.kubernetes import KubernetesProvisioner
from paceline.cluster.provisioners.kubernetes_settings import KubernetesSettings
from paceline.cluster.provisioners.kubernetes_watch import WatchedObjects
from paceline.cluster.provisioners.provisioner import KeptResource, LaunchPhase, ProvisionerContext, ProvisionerError, SeenLaunch
from tests.cluster.provisioners.conformance import ProviderEngine, ProvisionerConformance, request
from tests.cluster.provisioners.kubernetes_server import KubernetesServer
from tests.waiting import POLL_SECONDS, until

POD = "work-bcdfg-x1"
RUNNING = {"phase": "Running"}


class WatchedCluster(ProviderEngine):
    """The provider of an API server that listens. As in the coordinator, it is made anew for each look, and its watches are kept."""

    def __init__(self, server: KubernetesServer) -> None:
        self.server, self.kept = server, dict[str, KeptResource]()

    @property
    def provisioner(self) -> KubernetesProvisioner:  # type: ignore[override]
        context = ProvisionerContext(Path("/nowhere"), lambda _: None, self.kept)
        return KubernetesProvisioner(KubernetesSettings(image="agent:1", api_server=self.server.url), context)

    def started(self) -> int:
        return len(self.server.api.objects["jobs"])

    def break_down(self) -> None:
        self.server.api.down = True
        self.server.cut()

    def visible(self) -> str:
        return json.dumps([self.server.api.objects["jobs"], self.server.api.objects["pods"]])

    async def look(self, handle: str) -> SeenLaunch:
        return (await self.provisioner.poll([handle]))[handle]

    @property
    def are_current(self) -> list[bool]:
        """Of each watch, whether its copy is one."""
        return [watched._is_current for watched in self.kept.values() if isinstance(watched, WatchedObjects)]

    async def watched(self, watches: int = 2) -> None:
        """Wait until both kinds are watched, by so many watches since the test began."""
        await until(lambda: len(self.server.watches) >= watches and self.are_current == [True, True], "a watch of each kind", seconds=20)

    async def seen(self, handle: str, phase: LaunchPhase) -> None:
        """Look until a node is in a phase."""
        async with asyncio.timeout(20):
            while (await self.look(handle)).phase is not phase:  # noqa: ASYNC110 - it is asked, as the coordinator does
                await asyncio.sleep(POLL_SECONDS)


@pytest.fixture
async def engine(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WatchedCluster]:
    monkeypatch.setattr(kubernetes_watch, "SHORTEST_WAIT_SECONDS", 0.05)
    async with KubernetesServer().served() as server:
        cluster = WatchedCluster(server)
        try:
            yield cluster
        finally:
            for each in cluster.kept.values():
                await each.close()
            await until(lambda: not server.open, "the end of the watches' connections")


class TestKubernetesWatched(ProvisionerConformance):
    """Every promise of a provider, with watches."""


async def launched(engine: WatchedCluster) -> str:
    """A node that is pending, and watched."""
    handle = await engine.provisioner.launch(request())
    await engine.look(handle)
    await engine.watched()
    return handle


async def test_looks_ask_nothing_and_see_what_has_changed(engine: WatchedCluster) -> None:
    """Each look asked for all Jobs and all pods."""
    handle = await launched(engine)
    lists, watches = engine.server.lists, list(engine.server.watches)
    for _ in range(20):
        assert (await engine.look(handle)).phase is LaunchPhase.PENDING
    engine.server.api.change("pods", POD, status=RUNNING)
    await engine.seen(handle, LaunchPhase.RUNNING)
    assert (engine.server.lists, engine.server.watches) == (lists, watches)
    assert watches[0].keys() >= {"resourceVersion", "labelSelector", "timeoutSeconds"}
    assert watches[0]["allowWatchBookmarks"] == "true"


async def test_a_node_that_the_watch_has_not_told_yet_has_not_ended(engine: WatchedCluster) -> None:
    """A launch would be given up, and its Job deleted, a moment after it was made."""
    await launched(engine)
    engine.server.is_held = True
    late = await engine.provisioner.launch(request("work-late"))
    assert (await engine.look(late)).phase is LaunchPhase.PENDING


@pytest.mark.parametrize("by_event", [False, True], ids=["status", "event"])
async def test_after_a_version_that_the_server_has_forgotten_all_is_listed_again(engine: WatchedCluster, by_event: bool) -> None:
    handle = await launched(engine)
    engine.server.is_held = True
    engine.server.api.change("pods", POD, status=RUNNING)
    lists, engine.server.forgets_by_event = engine.server.lists, by_event
    engine.server.forgotten = engine.server.api.version
    engine.server.cut()
    await until(lambda: engine.server.lists >= lists + 2, "a list of each kind")
    await engine.watched(4)
    lists = engine.server.lists
    await engine.seen(handle, LaunchPhase.RUNNING)
    assert engine.server.lists == lists


async def test_a_watch_that_was_cut_off_within_a_line_goes_on_before_it(engine: WatchedCluster) -> None:
    handle = await launched(engine)
    engine.server.is_held = True
    engine.server.api.change("pods", POD, status=RUNNING)
    lists, version = engine.server.lists, engine.server.watches[-1]["resourceVersion"]
    engine.server.cut(engine.server.api.changes[-1].line[:40])
    await until(lambda: len(engine.server.watches) >= 4, "a second watch of each kind")
    assert {each["resourceVersion"] for each in engine.server.watches} == {version}
    await engine.watched(4)
    engine.server.is_held = False
    engine.server._wake()
    await engine.seen(handle, LaunchPhase.RUNNING)
    assert engine.server.lists == lists


async def test_a_watch_goes_on_from_its_last_bookmark(engine: WatchedCluster) -> None:
    await launched(engine)
    engine.server.bookmark("pods")
    engine.server.bookmark("jobs")
    newest = str(engine.server.api.version)
    watched = next(each for name, each in engine.kept.items() if name.startswith("jobs"))
    await until(lambda: watched._version == newest, "the bookmark is read")  # type: ignore[attr-defined]
    engine.server.cut()
    await engine.watched(4)
    later = {each["plural"]: each["resourceVersion"] for each in engine.server.watches[2:]}
    assert later == {"jobs": newest, "pods": str(int(newest) - 1)}


async def test_where_watching_is_not_allowed_lists_are_asked_for_and_that_is_said_once(
    engine: WatchedCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kubernetes_watch, "FORBIDDEN_SECONDS", 0.05)
    engine.server.refusal = 403
    caplog.set_level(logging.WARNING, kubernetes_watch.__name__)
    handle = await engine.provisioner.launch(request())
    await engine.look(handle)
    await until(lambda: len(engine.server.watches) >= 6, "three tries of each kind")
    lists = engine.server.lists
    engine.server.api.change("pods", POD, status=RUNNING)
    assert (await engine.look(handle)).phase is LaunchPhase.RUNNING
    assert engine.server.lists >= lists + 2
    said = sorted(record.getMessage() for record in caplog.records)
    assert [each.partition(" are listed at each look")[0] for each in said] == ["jobs", "pods"]
    assert "cannot watch resource" in said[0]
    assert "deploy/kubernetes/provisioner.yaml" in said[0]


async def test_a_role_that_is_mended_is_used(engine: WatchedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_watch, "FORBIDDEN_SECONDS", 0.05)
    engine.server.refusal = 403
    await engine.look(await engine.provisioner.launch(request()))
    await until(lambda: len(engine.server.watches) >= 2, "a try of each kind")
    engine.server.refusal = 0
    await engine.watched(4)


@pytest.mark.parametrize("line", [b"not json\n", b"[]\n", b'{"type": "MODIFIED", "object": {}}\n'], ids=["words", "list", "no-object"])
async def test_what_is_no_event_is_not_believed(engine: WatchedCluster, line: bytes) -> None:
    handle = await launched(engine)
    lists = engine.server.lists
    engine.server.say("pods", line)
    await until(lambda: engine.server.lists > lists, "a list")
    await engine.watched(3)
    assert (await engine.look(handle)).phase is LaunchPhase.PENDING


async def test_an_event_without_an_end_is_not_kept(engine: WatchedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_client, "MOST_LINE_BYTES", 200_000)
    await launched(engine)
    lists = engine.server.lists
    engine.server.say("pods", b"x" * 300_000)
    await until(lambda: engine.server.lists > lists, "a list")


async def test_a_server_that_went_away_is_told_and_watched_again(engine: WatchedCluster) -> None:
    handle = await launched(engine)
    engine.break_down()
    await until(lambda: engine.are_current == [False, False], "both watches know")
    with pytest.raises(ProvisionerError, match="cannot be reached"):
        await engine.look(handle)
    tries = len(engine.server.watches)
    await until(lambda: len(engine.server.watches) > tries, "another try")
    engine.server.api.down = False
    engine.server.api.change("pods", POD, status=RUNNING)
    await engine.watched(tries + 2)
    lists = engine.server.lists
    await engine.seen(handle, LaunchPhase.RUNNING)
    assert engine.server.lists == lists


async def test_a_watch_that_nobody_needs_ends(engine: WatchedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = await launched(engine)
    monkeypatch.setattr(kubernetes_watch, "IDLE_SECONDS", 0.0)
    engine.server.cut()
    await until(lambda: all(each._task.done() for each in engine.kept.values()), "the end of the watches")  # type: ignore[attr-defined]
    assert len(engine.server.watches) == 2
    assert (await engine.look(handle)).phase is LaunchPhase.PENDING
