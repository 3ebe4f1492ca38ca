"""What is called when a process ends, however it does."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: What the end of the interpreter is to call, and what ends the process.
ENDS = """
import os, sys
from paceline.monitoring.at_end import call_at_end, call_ends, forget_at_end
def broken(): raise ValueError("bad")
def say(word): return lambda: print(word, flush=True)
forgotten = say("forgotten")
for end in (say("first"), forgotten, broken, say("last")):
    call_at_end(end)
forget_at_end(forgotten)
forget_at_end(say("never given"))
"""


@pytest.mark.parametrize("end", ["", "call_ends(); call_ends(); os._exit(0)"], ids=["by its interpreter's end", "without it"])
def test_what_was_given_last_is_called_first_and_what_raises_keeps_no_other_from_it(end: str) -> None:
    done = subprocess.run([sys.executable, "-c", ENDS + end], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["last", "first"]
    assert "ValueError: bad" in done.stderr
