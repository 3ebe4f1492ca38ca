"""What a job prints acts on nobody's terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from paceline.cli.render.output import harmless, without_escapes

PRINTS = (
    "from paceline.cli.render.output import print_line; print_line('a\\x1b[2Jb \\x1b[31mred\\x1b[0m \\x1b]0;title\\x07 \\x9bH tab\\tend'"
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \t text\n", "plain \t text\n"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[2J", "^[[2J"),
        ("\x1b]0;title\x07", "^[]0;title^G"),
        ("50 %\rdone\x7f", "50 %^Mdone^?"),
        ("\x9b2J", "\\x9b2J"),
        ("\x1b[31", "^[[31"),
        ("a\u202egnp.exe\u2069", "a\\u202egnp.exe\\u2069"),
        ("שלום é 你", "שלום é 你"),
    ],
)
def test_only_colours_reach_a_terminal(text: str, shown: str) -> None:
    assert harmless(text) == shown


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("\x1b[1;31mred\x1b[0m \x1b[38:2::1:2:3mrgb\x1b[m", None),
        ("\x1b]8;;http://evil\x07click\x1b]8;;\x1b\\ here", "click here"),
        ("\x9d8;;http://evil\x9cclick", "click"),
        ("\x1bPq#0\x1b\\image \x1b_note\x07end", "image end"),
        ("\x1b[2J\x1b[?25l\x9bHclear\x1bc\x1b(B", "clear"),
        ("\x1b\x1b]0;title\x07\x1b[\x1b[2Jnested", "nested"),
        ("\x1b]0;never ends", "0;never ends"),
        ("cut \x1b[31", "cut 31"),
        ("plain \t é 你", None),
    ],
)
def test_of_escape_sequences_only_colours_stay_and_those_where_they_are_shown(text: str, kept: str | None) -> None:
    assert without_escapes(text, colours=True) == (text if kept is None else kept)
    plain = without_escapes(text, colours=False)
    assert "\x1b" not in plain
    assert plain == (kept or re.sub(r"\x1b\[[0-9;:]*m", "", text))


def test_a_terminal_and_a_pipe_are_spared_and_colours_stay_only_where_they_were_let_through() -> None:
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", PRINTS + ", colours=True)"], stdout=theirs, check=True, timeout=60)
    os.close(theirs)
    assert os.read(ours, 1000).rstrip() == rb"a^[[2Jb " + b"\x1b[31mred\x1b[0m" + rb" ^[]0;title^G \x9bH" + b" tab\tend"
    os.close(ours)
    piped = subprocess.run([sys.executable, "-c", PRINTS + ")"], capture_output=True, check=True, timeout=60).stdout
    assert piped.decode() == "ab red   tab\tend\n"
