"""The frames of exec sessions: what passes, and what is refused with its limit."""

from __future__ import annotations

import json

import pytest

from paceline.cluster.exec_frames import (
    MOST_COMMAND_BYTES,
    MOST_TEXT_BYTES,
    EndOfInput,
    Exited,
    FromClient,
    FromKeeper,
    SendSignal,
    SessionEnded,
    StartCommand,
    Started,
    Taken,
    TerminalSize,
    UnfitFrameError,
    decode_from_client,
    decode_from_keeper,
    decode_start,
    encode,
)


def test_a_start_comes_back_as_it_was_sent() -> None:
    start = StartCommand(rank=3, command=("echo", "ü 🚀", ""), tty=True, rows=50, columns=120, term="xterm")
    assert decode_start(encode(start)) == start
    assert decode_start('{"type":"start"}') == StartCommand()


@pytest.mark.parametrize("message", [EndOfInput(), TerminalSize(rows=1, columns=1000), SendSignal(name="INT"), Taken(bytes=7)])
def test_what_a_client_says_comes_back_as_it_was_sent(message: FromClient) -> None:
    assert decode_from_client(encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        Started(node="a", rank=0, generation=1, command=("sh",)),
        Taken(bytes=1),
        Exited(exit_code=137),
        SessionEnded(code="idle", message="no input"),
    ],
)
def test_what_a_keeper_says_comes_back_as_it_was_sent(message: FromKeeper) -> None:
    assert decode_from_keeper(encode(message)) == message


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"command": ["x"] * 257}, "257 words"),
        ({"command": ["x" * (MOST_COMMAND_BYTES + 1)]}, f"at most 256 words and {MOST_COMMAND_BYTES} bytes"),
        ({"command": ["a\0b"]}, "holds a NUL"),
        ({"rows": 0}, "out of range"),
        ({"columns": 1001}, "out of range"),
        ({"term": "x" * 65}, "out of range"),
        ({"rank": "zero"}, "cannot be read"),
        ({"type": "exited"}, "cannot be read"),
    ],
)
def test_a_start_beyond_the_limits_is_refused(document: dict[str, object], why: str) -> None:
    with pytest.raises(UnfitFrameError, match=why):
        decode_start(json.dumps({"type": "start"} | document))


@pytest.mark.parametrize(
    "text",
    ['{"type":"size","rows":1001,"columns":80}', '{"type":"signal","name":"KILL"}', '{"type":"exited","exit_code":0}', "no JSON", "[]"],
)
def test_a_client_cannot_say_everything(text: str) -> None:
    with pytest.raises(UnfitFrameError):
        decode_from_client(text)


def test_a_long_text_frame_is_refused_unread() -> None:
    with pytest.raises(UnfitFrameError, match=f"at most {MOST_TEXT_BYTES}"):
        decode_from_client(" " * (MOST_TEXT_BYTES + 1))
