"""`paceline data`: text to token files, as a user runs it."""

from __future__ import annotations

import functools
import json
import signal
from pathlib import Path

import pytest

from paceline.training.data import token_set
from paceline.training.errors import InvalidInputError
from tests.cli.conftest import TIMEOUT_S, Paceline
from tests.faults import state_of
from tests.training.data.token_sets import texts, write_texts
from tests.waiting import wait_until


def test_text_becomes_token_files_and_json_says_what_they_hold(stranger: Paceline) -> None:
    written = write_texts(stranger.folder / "in")
    done = stranger("data", "tokenize", "in", "--output", "out", "--match", "*.txt", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["documents"], document["vocabulary"], document["shards"]) == (len(written), 257, 1)
    assert document["folder"] == str(stranger.folder / "out")
    assert texts(stranger.folder / "out") == written
    assert "1 of 1 shards" in done.stderr
    assert stranger("data", "verify", "out").stderr == "OK: every byte is as the manifest says.\n"
    again = stranger("data", "verify", "out", "--json")
    assert (again.returncode, json.loads(again.stdout)) == (0, document)


def test_for_people_it_ends_with_what_comes_next(stranger: Paceline) -> None:
    (stranger.folder / "lines.jsonl").write_text('{"body": "one"}\n{"body": "two"}\n')
    done = stranger("data", "tokenize", "lines.jsonl", "--output", "out", "--field", "body")
    assert done.returncode == 0, done.stderr
    assert "tokens      8" in done.stdout
    assert f"data: {{kind: tokens, path: {stranger.folder / 'out'}}}" in done.stderr
    assert "vocab_size: 257" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (("nowhere", "--output", "out"), 2, "input nowhere does not exist"),
        (("in", "--output", "out", "--match", "*.py"), 2, "no file in in matches '*.py'"),
        (("in", "--output", "out", "--tokenizer", "gpt2"), 2, "tokenizer gpt2 is no file"),
        (("in", "--output", "in"), 6, "holds other files"),
        (("in", "--output", "/proc/1/out"), 1, "/proc/1/out"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_an_exit_code(
    stranger: Paceline, arguments: tuple[str, ...], exit_code: int, said: str
) -> None:
    write_texts(stranger.folder / "in", 2)
    done = stranger("data", "tokenize", *arguments)
    assert (done.returncode, done.stdout) == (exit_code, "")
    assert said in done.stderr.splitlines()[-1]


def test_damage_is_found_and_exits_1(stranger: Paceline) -> None:
    write_texts(stranger.folder / "in", 2)
    assert stranger("data", "tokenize", "in", "--output", "out").returncode == 0
    shard = stranger.folder / "out" / "00000.tokens"
    shard.write_bytes(b"\0" + shard.read_bytes()[1:])
    done = stranger("data", "verify", "out")
    assert done.returncode == 1
    assert "00000.tokens does not match the SHA-256" in done.stderr


LINES = 800_000


def write_lines(folder: Path) -> None:
    """Some fourteen shards of a megabyte, each a while of work."""
    (folder / "lines.jsonl").write_text('{"text": "so on"}\n' * LINES)


def has_ended(pid: int) -> bool:
    return state_of(pid) in "XZ"


def children_of(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


def test_a_killed_run_leaves_no_process_and_nothing_that_passes_for_whole(stranger: Paceline) -> None:
    """Killed with many shards to go; the same command finishes it."""
    folder = stranger.folder
    write_lines(folder)
    arguments = ("data", "tokenize", "lines.jsonl", "--output", "out", "--shard-mb", "1", "--workers", "2")
    process = stranger.start(*arguments)
    wait_until(lambda: list((folder / "out").glob("*.tokens")), "the first shard", seconds=TIMEOUT_S)
    workers = children_of(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=TIMEOUT_S)
    assert workers
    for worker in workers:
        wait_until(functools.partial(has_ended, worker), f"the end of {worker}", seconds=TIMEOUT_S)
    with pytest.raises(InvalidInputError, match="is no token set"):
        token_set.read(folder / "out")
    assert stranger(*arguments).returncode == 0
    assert token_set.read(folder / "out").documents == LINES


def test_ctrl_c_exits_130_and_says_how_to_go_on(stranger: Paceline) -> None:
    write_lines(stranger.folder)
    process = stranger.start("data", "tokenize", "lines.jsonl", "--output", "out", "--shard-mb", "1", "--workers", "1")
    wait_until(lambda: list((stranger.folder / "out").glob("*.tokens")), "the first shard", seconds=TIMEOUT_S)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "interrupted; the same command goes on from the shards that are done"
