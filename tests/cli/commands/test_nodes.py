"""Nodes, keys, login and settings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, problem


def node(**changes: Any) -> dict[str, Any]:
    slots = [{"index": 0, "job_id": "J", "job_name": "gpt", "rank": 0}, {"index": 1, "job_id": None}]
    return {"id": "N1", "name": "a", "state": "ready", "device": "cpu", "slots": slots, "address": "10.0.0.1", **changes}


def listed(coordinator: FakeCoordinator, *nodes: dict[str, Any]) -> None:
    coordinator.on("GET", "/cluster/nodes", Answer(200, {"items": list(nodes), "next_cursor": None}))


def test_nodes_without_a_verb_lists_them(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    listed(coordinator, node())
    done = paceline("nodes")
    assert "1/2 cpu" in done.stdout
    assert "gpt" in done.stdout
    assert json.loads(paceline("nodes", "--json").stdout) == json.loads(paceline("nodes", "list", "--json").stdout) == [node()]


def test_nodes_tell_the_version_of_their_agents(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    listed(coordinator, node(versions={"paceline": "0.2.0", "torch": "2.13.0"}), node(id="N2", name="b"))
    header, first, second = (line.split() for line in paceline("nodes").stdout.splitlines())
    place = header.index("VERSION") - len(header)
    assert (first[place], second[place]) == ("0.2.0", "-")


def test_why_a_node_offers_no_gpu_stands_below_the_list(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    note = "torch 2.13.0+cpu is a build without CUDA, beside GPU 0 (NVIDIA Test): this node offers CPU slots only"
    listed(coordinator, node(gpu_note=note), node(id="N2", name="b", gpu_note="no GPU"))
    assert paceline("nodes").stderr == f"a: {note}\n"


def test_pools_tell_their_budget_and_the_jobs_that_they_do_not_grow_for(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    budget = {"device": "cuda", "budget_node_hours": 500}
    waiting = [{"job_id": "J1", "job_name": "big\x1b[2J", "reason": "lab has used its budget"}]
    pool = {"name": "lab", "provider": {"type": "ssh"}, "autoscale": budget, "node_hours": 12.34, "withheld": waiting, "withheld_count": 3}
    older = {"name": "plain", "provider": {"type": "manual"}, "node_hours": None}
    coordinator.on("GET", "/cluster/pools", Answer(200, {"items": [pool, older], "next_cursor": None}))
    lines = paceline("pools").stdout.splitlines()
    assert lines[1].split()[-4:] == ["yes", "12.3", "of", "500"]
    assert lines[2].split()[-2:] == ["no", "0.0"]
    assert lines[3] == "no node of lab is launched for big (J1): lab has used its budget"
    assert lines[4] == "nor for 2 more jobs"


def test_of_several_pools_in_a_file_the_refused_one_is_named(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    (paceline.folder / "pools.yaml").write_text(
        "pools: [{name: a, provider: {type: manual}}, {name: b, provider: {type: ssch}, max_nodes: -1}]"
    )
    wrong = [
        {"pointer": "/provider", "message": "provider.type takes ssh"},
        {"pointer": "/max_nodes", "message": "max_nodes must be 1 or more"},
    ]
    coordinator.on("PUT", "/cluster/pools/a", Answer(200, {"name": "a"}))
    coordinator.on("PUT", "/cluster/pools/b", problem(422, "invalid_request", "/provider: provider.type takes ssh", errors=wrong))
    several = paceline("pools", "apply", "pools.yaml").stderr
    assert several.startswith("error: pool b: refused for these reasons (422, invalid_request)"), several
    coordinator.on("PUT", "/cluster/pools/b", problem(422, "invalid_request", "/provider: provider.type takes ssh", errors=wrong[:1]))
    single = paceline("pools", "apply", "pools.yaml").stderr
    assert single.startswith("error: pool b: /provider: provider.type takes ssh"), single


def test_drain_says_what_it_waits_for(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    listed(coordinator, node())
    coordinator.on("DELETE", "/cluster/nodes/N1", Answer(202, node(state="draining", drain_blocked_by=["J"])))
    done = paceline("nodes", "drain", "a")
    assert done.returncode == 0, done.stderr
    assert "waiting for jobs: J" in done.stderr
    assert coordinator.sent("DELETE", "/cluster/nodes/N1")[0].query == {"force": "false"}


@pytest.mark.parametrize(("typed", "removed"), [("y\n", 1), ("n\n", 0)])
def test_remove_at_a_terminal_names_the_jobs_there_and_asks(
    paceline: Paceline, coordinator: FakeCoordinator, typed: str, removed: int
) -> None:
    listed(coordinator, node())
    coordinator.on("DELETE", "/cluster/nodes/N1", Answer(202, node(state="removed")))
    code, shown = paceline.at_terminal("nodes", "remove", "a", "--force", typed=typed, until="Remove? [y/N]")
    assert "a (N1) will be removed: stops the ranks of gpt." in shown
    assert (code, len(coordinator.sent("DELETE", "/cluster/nodes/N1"))) == (1 - removed, removed)


def test_remove_in_a_script_or_with_yes_asks_nothing(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    listed(coordinator, node())
    coordinator.on("DELETE", "/cluster/nodes/N1", Answer(202, node(state="removed")))
    assert paceline("nodes", "remove", "a").returncode == 0
    assert paceline.at_terminal("nodes", "remove", "a", "--yes")[0] == 0


def test_add_says_what_the_new_machine_needs_first(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """It printed a command that cannot work on a machine without Paceline."""
    joins = {"command": "paceline worker --server https://train.example --token T", "expires_at": "2026-11-25T20:00:00Z", "warning": None}
    coordinator.on("POST", "/cluster/nodes", Answer(201, joins))
    told = paceline("nodes", "add").stderr
    assert "needs first: the same version of Paceline with its extra [worker]" in told
    assert "pip install" not in told, "no package index has it"
    coordinator.on("POST", "/cluster/nodes", Answer(201, {**joins, "warning": "loopback"}))
    assert paceline("nodes", "add").stderr == "warning: loopback\n"


def tainted(coordinator: FakeCoordinator, answer: Answer | None = None) -> None:
    """A node that takes changes of its taints."""
    listed(coordinator, node())
    coordinator.on("PATCH", "/cluster/nodes/N1/taints", answer or Answer(200, node(taints={"told": "so"})))


def asked_for(coordinator: FakeCoordinator) -> Any:
    return [sent.body for sent in coordinator.sent("PATCH", "/cluster/nodes/N1/taints")]


def test_taint_and_untaint_ask_for_one_change_that_leaves_other_taints_alone(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    tainted(coordinator)
    done = paceline("nodes", "taint", "a", "dedicated=text", "new")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "a has taints: told=so"
    assert paceline("nodes", "untaint", "a", "dedicated=vision", "new").returncode == 0
    assert asked_for(coordinator) == [{"set": {"dedicated": "text", "new": ""}}, {"remove": ["dedicated=vision", "new"]}]


def test_a_key_with_two_values_is_refused(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    tainted(coordinator)
    done = paceline("nodes", "taint", "a", "zone=near", "zone=far")
    assert done.returncode == 2
    assert "taint zone is given twice, as 'near' and 'far'" in done.stderr
    assert asked_for(coordinator) == []


def test_unknown_node_exits_5(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    listed(coordinator)
    assert paceline("nodes", "cordon", "nobody").returncode == 5


def test_add_prints_the_command_once(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    answer = {"token": "t", "command": "paceline worker --token t", "expires_at": "2026-11-20T13:00:00Z"}
    coordinator.on("POST", "/cluster/nodes", Answer(201, answer))
    assert "paceline worker --token t" in paceline("nodes", "add").stdout


def test_add_does_not_offer_a_loopback_address_to_another_machine(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    answer = {"token": "t", "command": "paceline worker --token t", "expires_at": "2026-11-20T13:00:00Z", "warning": "use up --host"}
    coordinator.on("POST", "/cluster/nodes", Answer(201, answer))
    done = paceline("nodes", "add")
    assert "run on the coordinator's machine" in done.stdout
    assert "run there" not in done.stdout
    assert "warning: use up --host" in done.stderr
    assert json.loads(paceline("nodes", "add", "--json").stdout) == answer


def test_login_stores_a_key_that_works(stranger: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/auth/me", Answer(200, {"user_id": "U", "name": "ada", "role": "admin"}))
    listed(coordinator, node())
    done = stranger("login", "--server", coordinator.url, "--api-key", "pk_new")
    assert done.returncode == 0, done.stderr
    assert stranger("nodes").returncode == 0
    assert coordinator.sent("GET", "/cluster/nodes")[0].headers["authorization"] == "Bearer pk_new"


def test_login_without_a_key_is_a_usage_error(stranger: Paceline) -> None:
    assert stranger("login").returncode == 2


def test_explain_says_where_a_setting_comes_from_and_hides_keys(paceline: Paceline) -> None:
    document = json.loads(paceline("config", "explain", "api_key", "--json", PACELINE_API_KEY="pk_0123456789abcdef").stdout)
    assert document["source"] == "environment PACELINE_API_KEY"
    assert "0123456789abcdef" not in document["value"]
