"""What a job prints acts on nobody's terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from paceline.cli.output import harmless

PRINTS = "from paceline.cli.output import print_line; print_line('a\\x1b[2Jb \\x1b[31mred\\x1b[0m \\x1b]0;title\\x07 \\x9bH tab\\tend')"


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


def test_a_terminal_is_spared_and_a_pipe_gets_every_byte() -> None:
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", PRINTS], stdout=theirs, check=True, timeout=60)
    os.close(theirs)
    assert os.read(ours, 1000).rstrip() == rb"a^[[2Jb " + b"\x1b[31mred\x1b[0m" + rb" ^[]0;title^G \x9bH" + b" tab\tend"
    os.close(ours)
    piped = subprocess.run([sys.executable, "-c", PRINTS], capture_output=True, check=True, timeout=60).stdout
    assert piped.decode().startswith("a\x1b[2Jb ")
