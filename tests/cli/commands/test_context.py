"""Several stored coordinators, one of them in use."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator

EMPTY = Answer(200, {"items": [], "next_cursor": None})


@pytest.fixture
def two_contexts(stranger: Paceline, coordinator: FakeCoordinator) -> Paceline:
    """A user who has stored the coordinator as `prod`, which is current, and one that does not answer as `default`."""
    coordinator.on("GET", "/auth/me", Answer(200, {"user_id": "u", "name": "ada", "role": "member"}))
    coordinator.on("GET", "/training/jobs", EMPTY)
    folder = stranger.folder / "home" / ".config" / "paceline"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "credentials.json").write_text(json.dumps({"server": "http://127.0.0.1:9", "api_key": "pk_gone"}))
    (folder / "credentials.json").chmod(0o600)
    done = stranger("login", "--server", coordinator.url, "--api-key", "pk_prod", "--store-as", "prod")
    assert done.returncode == 0, done.stderr
    return stranger


def test_login_stores_a_context_beside_the_others_and_uses_it(two_contexts: Paceline, coordinator: FakeCoordinator) -> None:
    assert two_contexts("jobs").returncode == 0
    assert coordinator.requests[-1].headers["authorization"] == "Bearer pk_prod"
    listed = json.loads(two_contexts("context", "list", "--json").stdout)
    assert [(each["name"], each["current"]) for each in listed] == [("default", False), ("prod", True)]


def test_use_switches_and_remove_forgets(two_contexts: Paceline, coordinator: FakeCoordinator) -> None:
    assert two_contexts("context", "use", "default").returncode == 0
    assert two_contexts("jobs").returncode == 7
    assert two_contexts("jobs", "--context", "prod").returncode == 0
    assert two_contexts("jobs", PACELINE_CONTEXT="prod").returncode == 0
    assert two_contexts("context", "remove", "prod").returncode == 0
    refused = two_contexts("context", "use", "prod")
    assert (refused.returncode, "stored: default" in refused.stderr) == (2, True)


def test_removing_the_current_context_leaves_the_default_one(two_contexts: Paceline) -> None:
    assert two_contexts("context", "remove", "prod").returncode == 0
    assert json.loads(two_contexts("context", "list", "--json").stdout) == [
        {"name": "default", "server": "http://127.0.0.1:9", "current": True}
    ]


def test_a_context_and_a_server_cannot_both_be_named(two_contexts: Paceline) -> None:
    done = two_contexts("jobs", "--context", "prod", "--server", "http://127.0.0.1:9")
    assert (done.returncode, "both name a coordinator" in done.stderr) == (2, True)


@pytest.mark.parametrize("name", ["../../etc", "a b", ""])
def test_what_is_no_name_of_a_context_is_refused(two_contexts: Paceline, name: str) -> None:
    assert two_contexts("context", "use", name).returncode == 2


def test_the_key_of_the_environment_is_not_sent_to_a_named_context(two_contexts: Paceline, coordinator: FakeCoordinator) -> None:
    assert two_contexts("jobs", "--context", "prod", PACELINE_API_KEY="pk_other").returncode == 0
    assert coordinator.requests[-1].headers["authorization"] == "Bearer pk_prod"


def test_what_stands_before_the_context_is_told(two_contexts: Paceline) -> None:
    told = two_contexts("context", "use", "prod", PACELINE_SERVER="http://127.0.0.1:9").stderr
    assert "commands go to http://127.0.0.1:9 (from environment PACELINE_SERVER) unless --context is given" in told


def test_config_explain_lists_all_settings_and_where_they_come_from(two_contexts: Paceline, coordinator: FakeCoordinator) -> None:
    rows = {line.split()[0]: line for line in two_contexts("config", "explain").stdout.splitlines()[1:]}
    assert rows.keys() == {"server", "context", "api_key"}
    assert coordinator.url in rows["server"]
    assert "prod" in rows["context"]
    assert "pk_prod" in rows["api_key"]


@pytest.mark.parametrize(("shell", "removed", "current"), [("staging", "staging", "prod"), ("staging", "prod", "default")])
def test_removing_a_context_changes_the_current_one_only_where_it_is_that(
    two_contexts: Paceline, coordinator: FakeCoordinator, shell: str, removed: str, current: str
) -> None:
    """The shell's own context counted as the current one: commands of all other shells went to another coordinator."""
    stored = two_contexts("login", "--server", coordinator.url, "--api-key", "pk_staging", "--store-as", "staging")
    assert stored.returncode == 0, stored.stderr
    assert two_contexts("context", "use", "prod").returncode == 0
    done = two_contexts("context", "remove", removed, PACELINE_CONTEXT=shell)
    assert done.returncode == 0, done.stderr
    listed = json.loads(two_contexts("context", "list", "--json").stdout)
    assert [each["name"] for each in listed if each["current"]] == [current]
