"""Nodes that are launched anew by one command: in which order, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.commands.test_nodes import listed, node
from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, problem


def launch(**changes: Any) -> dict[str, Any]:
    fields = {"id": "L2", "name": "a", "pool": "lab", "provider": "ssh", "state": "requested", "wanted": True}
    return fields | {"reason": "", "failure": "", "remedy": "", "handle": None} | changes


def pooled(coordinator: FakeCoordinator, **fields: Any) -> dict[str, Any]:
    """A node of a pool with these fields, which can be removed and launched."""
    pool = {"name": "lab", "provider": {"type": "ssh"}} | fields
    coordinator.on("GET", "/cluster/pools", Answer(200, {"items": [pool], "next_cursor": None}))
    old = node(pool="lab", provider="ssh", handle="ssh://a/1")
    coordinator.on("DELETE", "/cluster/nodes/N1", Answer(202, old | {"state": "draining"}))
    coordinator.on("POST", "/cluster/nodes", Answer(201, {"launches": [launch()]}))
    return old


def page(*items: dict[str, Any]) -> Answer:
    return Answer(200, {"items": list(items), "next_cursor": None})


def test_a_node_is_launched_anew_once_its_pool_has_room_again(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """A host is free only once its provider has ended the old node, which may be after that has left the list."""
    old = pooled(coordinator)
    draining = old | {"state": "draining", "drain_blocked_by": ["J"]}
    new = old | {"id": "N2", "state": "ready", "versions": {"paceline": "0.2.0"}, "handle": "ssh://a/2"}
    coordinator.on("GET", "/cluster/nodes", page(old), page(draining), page(draining), page(), page(), page(new))
    full = problem(409, "pool_full", "0 of the hosts of pool lab have no node yet; 1 were asked for")
    coordinator.on("POST", "/cluster/nodes", full, Answer(201, {"launches": [launch()]}))
    coordinator.on("GET", "/cluster/launches", page(launch(id="L1", handle="ssh://a/1", state="terminating")), page())
    done = paceline("nodes", "upgrade", "--pool", "lab", "--yes")
    assert (done.returncode, done.stdout) == (0, "a is ready, with Paceline 0.2.0\n"), done.stderr
    assert done.stderr.count("waiting for jobs: J") == 1
    assert [each.body for each in coordinator.sent("POST", "/cluster/nodes")] == [{"pool": "lab", "count": 1}] * 2
    asked = [(each.method, each.path.removeprefix("/api/v1")) for each in coordinator.requests]
    removed = asked.index(("DELETE", "/cluster/nodes/N1"))
    assert removed < asked.index(("POST", "/cluster/nodes"))


def test_a_node_that_its_provider_cannot_end_is_told(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    old = pooled(coordinator)
    coordinator.on("GET", "/cluster/nodes", page(old), page())
    coordinator.on("POST", "/cluster/nodes", problem(409, "pool_full", "no room"))
    failed = launch(id="L1", handle="ssh://a/1", failure="it may still run there", remedy="end it by hand")
    coordinator.on("GET", "/cluster/launches", page(failed))
    done = paceline("nodes", "upgrade", "a")
    assert done.returncode != 0
    assert "a was drained, and is not ended: it may still run there" in done.stderr
    assert "end it by hand" in done.stderr


def test_a_node_that_cannot_be_started_again_ends_the_upgrade_with_the_way_out(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    old = pooled(coordinator)
    other = node(id="N0", name="b", pool="lab", provider="ssh")
    coordinator.on("GET", "/cluster/nodes", page(old, other), page(other))
    coordinator.on("GET", "/cluster/launches", page(launch(failure="there is no python3", remedy="give `python`")))
    done = paceline("nodes", "upgrade", "--pool", "lab")
    assert done.returncode != 0
    assert "a could not be started: there is no python3" in done.stderr
    assert "give `python`" in done.stderr
    assert not coordinator.sent("DELETE", "/cluster/nodes/N0"), "the others are left as they are"


@pytest.mark.parametrize(
    ("changes", "pool", "words", "said"),
    [
        ({"provider": "manual", "pool": None}, {}, ["a"], "restart its agent"),
        ({"pool": None}, {}, ["a"], "add it again"),
        ({}, {"autoscale": {"device": "cpu"}}, ["--pool", "lab"], "paceline nodes drain a"),
        ({}, {}, [], "--pool NAME"),
        ({}, {}, ["a", "--pool", "lab"], "--pool NAME"),
        ({"pool": "other"}, {}, ["--pool", "lab"], "paceline nodes add --pool lab"),
    ],
    ids=["by-hand", "no-pool", "autoscaled", "nothing", "both", "empty"],
)
def test_what_cannot_be_launched_anew_is_refused_before_anything_is_drained(
    paceline: Paceline, coordinator: FakeCoordinator, changes: dict[str, Any], pool: dict[str, Any], words: list[str], said: str
) -> None:
    listed(coordinator, pooled(coordinator, **pool) | changes)
    done = paceline("nodes", "upgrade", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert not coordinator.sent("DELETE", "/cluster/nodes/N1")


def test_an_upgrade_at_a_terminal_says_what_is_lost_and_asks(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    listed(coordinator, pooled(coordinator))
    code, shown = paceline.at_terminal("nodes", "upgrade", "a", typed="n\n", until="Go on? [y/N]")
    assert "move away from each, or end first: gpt. Checkpoints on disks of their own are lost." in shown
    assert code == 1
    assert not coordinator.sent("DELETE", "/cluster/nodes/N1")
