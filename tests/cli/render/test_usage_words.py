"""What was typed wrong, in words of the command line."""

from __future__ import annotations

import pytest

from paceline.cli.render.usage_words import as_options
from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import FakeCoordinator, problem


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("jobs", "--limit", "many"), "Invalid value for '--limit' / '-n': it takes a whole number"),
        (("jobs", "--limit", "0"), "it must be at least 1"),
        (("stacks", "gpt", "--wait", "soon"), "it takes a number"),
        (("wait", "gpt", "--timeout", "soon"), "'soon' is not a length of time; write seconds, or 90s, 10m, 1h30m, 2d"),
        (("jobs", "--output", "xml"), "'-o': 'xml' is not one of 'table', 'json', 'jsonl', 'yaml'."),
    ],
)
def test_a_value_that_does_not_fit_is_told_in_plain_words(stranger: Paceline, typed: tuple[str, ...], words: str) -> None:
    """It was `Input should be a valid integer, unable to parse string as an integer`."""
    done = stranger(*typed)
    assert done.returncode == 2
    assert words in done.stderr.splitlines()[0]


def test_the_options_name_of_a_refused_parameter_is_told(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """It was `rank='x' ... write rank=0,1`."""
    said = "status=flying is no state of a job; use queued"
    coordinator.on("GET", "/training/jobs", problem(400, "invalid_parameter", said))
    assert paceline("jobs", "--status", "flying").stderr.startswith("error: --status flying is no state of a job; use queued")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("rank='x': 'x' is not a whole number; write rank=0,1", "--rank 'x': 'x' is not a whole number; write --rank 0,1"),
        ("sort: takes name; got 'foo'", "--sort: takes name; got 'foo'"),
        ("first_step=-1 is below 0", "--first-step -1 is below 0"),
        ("the world has no rank 3", "the world has no rank 3"),
    ],
)
def test_parameters_read_as_options(message: str, words: str) -> None:
    assert as_options(message, ["rank", "sort", "first_step"]) == words


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        (("up", "--slots", "2"), "--slots-per-agent"),
        (("up", "--slot=2"), "--slots-per-agent"),
        (("up", "--agent", "2"), "--agents"),
        (("up", "--insecure"), "--insecure-public"),
        (("submit", "job.yaml", "--dir", "."), "--workdir"),
        (("logs", "gpt", "--ranks", "2"), "--rank"),
    ],
)
def test_an_option_that_is_not_there_names_the_one_that_was_meant(stranger: Paceline, typed: tuple[str, ...], near: str) -> None:
    """Of `up --slots` it was `--port, --ports, --tls`."""
    assert stranger(*typed).stderr.splitlines()[0].endswith(f"(Possible options: {near})")


def test_nothing_is_named_where_nothing_is_near(stranger: Paceline) -> None:
    assert stranger("up", "--xyzzy").stderr.startswith("error: No such option: --xyzzy\n")
