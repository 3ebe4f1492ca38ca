"""Nothing that a rank, a node or another user has written acts on the terminal or the program that reads a command's output."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from paceline.cli.app import run
from tests.cli.example_commands import TYPED, typed
from tests.cli.fake_coordinator import FakeCoordinator
from tests.cli.schema_answers import TextEverywhere

#: Clears the screen, renames the window, makes a link, rings, goes back over what was said, and turns the direction of writing.
CANARY = "CANARY\x1b[2J\x1b]0;owned\x07\x9b2J\x9d8;;http://evil\x9c\x1b[31m\x08\r\x7f\u202e end"
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
OUR_COLOURS = re.compile(r"\x1b\[(?:\d+)?m")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def signed_in(coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCoordinator:
    monkeypatch.setenv("PACELINE_SERVER", coordinator.url)
    monkeypatch.setenv("PACELINE_API_KEY", "pk_test")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "4000")
    monkeypatch.chdir(tmp_path)
    TextEverywhere(CANARY).install(coordinator)
    return coordinator


def test_the_commands_that_print_what_ranks_have_written_are_among_them() -> None:
    names = {" ".join(words[:2]) if words[0] in ("nodes", "keys", "users", "experiment") else words[0] for words in TYPED}
    assert {"show", "logs", "incidents", "events", "wait", "jobs", "compare", "experiment show", "experiment trials", "audit"} <= names
    assert len(TYPED) > 40


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "yaml"])
@pytest.mark.parametrize("at_terminal", [False, True], ids=["pipe", "terminal"])
def test_no_command_prints_a_control_character_of_what_it_was_told(
    signed_in: FakeCoordinator, monkeypatch: pytest.MonkeyPatch, form: str, at_terminal: bool
) -> None:
    told: set[str] = set()
    for words in map(typed, TYPED):
        out, errors = (Screen(), Screen()) if at_terminal else (io.StringIO(), io.StringIO())
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", out)
            patched.setattr(sys, "stderr", errors)
            run([*words, *([] if form == "table" else ["--output", form])])
        shown = OUR_COLOURS.sub("", out.getvalue()) if at_terminal else out.getvalue()  # those of states, and of a log's own lines
        assert ACTS.search(shown) is None, (words, shown)
        assert ACTS.search(errors.getvalue()) is None, (words, errors.getvalue())
        told |= {" ".join(words)} if "CANARY" in shown + errors.getvalue() else set()
        if form == "json" and shown:
            json.loads(shown)
        if form == "yaml" and shown:
            yaml.safe_load(shown)
    assert {words.split()[0] for words in told} >= {"show", "logs", "incidents", "events", "compare", "experiment", "audit"}
    assert len(told) > 20


def test_a_document_says_the_same_with_its_escapes(signed_in: FakeCoordinator, capsys: pytest.CaptureFixture[str]) -> None:
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        run(["incidents", "gpt", "--output", form])
        assert read(capsys.readouterr().out)[0]["why"] == CANARY
