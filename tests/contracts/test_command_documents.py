"""The documents that commands print with `--output json`: programs of users read them, so no field may change its name or its type.

The coordinator answers with an example of each answer's schema. PACELINE_WRITE_CONTRACTS=1 writes the shapes down.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.cli.app import run
from tests.cli.example_commands import TYPED, typed
from tests.cli.fake_coordinator import FakeCoordinator, serve
from tests.cli.schema_answers import TextEverywhere
from tests.contracts.shapes import kept, shape

KEPT = Path(__file__).with_name("command_documents.json")


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeCoordinator]:
    with serve() as coordinator:
        monkeypatch.setenv("PACELINE_SERVER", coordinator.url)
        monkeypatch.setenv("PACELINE_API_KEY", "pk_test")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        TextEverywhere("a text").install(coordinator)
        yield coordinator


def test_what_commands_print_for_programs_is_what_it_was(coordinator: FakeCoordinator, capsys: pytest.CaptureFixture[str]) -> None:
    commands: dict[str, list[str]] = {}
    for words in TYPED:
        run([*typed(words), "--output", "json"])
        if printed := capsys.readouterr().out:
            commands.setdefault(json.dumps(shape(json.loads(printed)), sort_keys=True), []).append(" ".join(words))
    assert sum(map(len, commands.values())) > 80
    now = [{"commands": words, "document": json.loads(document)} for document, words in commands.items()]
    assert kept(KEPT, now) == now
