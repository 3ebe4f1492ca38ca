"""Tracebacks as rich draws them, by rich itself."""

from __future__ import annotations

import io
import runpy
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.traceback import Traceback

from paceline.cluster.agent.ranks.boxed_tracebacks import unboxed
from paceline.cluster.agent.ranks.tracebacks import uncaught
from paceline.training.reporting.users_code import innermost

#: Broken in two by rich, as the words by which a lost connection is known were.
CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:6259"
PROGRAM = """
def loss(labels):
    count = len(labels)
    raise RuntimeError(MESSAGE)

def main():
    try:
        {}["labels"]
    except KeyError as error:
        loss([1, 2])

main()
"""


def drawn(folder: Path, message: str, width: int, **options: Any) -> list[str]:
    """What rich draws of the exception of a program in `folder`, on a console of `width` columns."""
    file = folder / "train.py"
    file.write_text(PROGRAM)
    out = io.StringIO()
    try:
        runpy.run_path(str(file), {"MESSAGE": message})
    except RuntimeError as error:
        Console(file=out, width=width).print(Traceback.from_exception(type(error), error, error.__traceback__, **options))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("rank", ["", "[rank1]: ", "[default1]:[rank1]: "])
@pytest.mark.parametrize(("width", "options"), [(80, {}), (80, {"show_locals": True}), (52, {}), (200, {"extra_lines": 0})])
@pytest.mark.parametrize("message", ["labels out of range", CLOSED])
def test_an_exception_in_a_box_is_told_as_one_of_pythons(
    tmp_path: Path, rank: str, width: int, options: dict[str, Any], message: str
) -> None:
    """It was told as "exited with code 1; its last line: ..."."""
    lines = ["step 3 loss 0.5", *(f"{rank}{line}" for line in drawn(tmp_path, message, width, **options)), "[W1128 10:00:00.1 x.cpp:15] x"]
    assert uncaught(lines) is None
    found = uncaught(unboxed(lines))
    assert found is not None
    assert (found.exception, found.message) == ("RuntimeError", message)
    assert innermost(found.traceback) == "loss in train.py:4"
    assert unboxed(lines)[0] == lines[0]


def test_other_boxes_and_one_that_does_not_end_stay_as_they_are(tmp_path: Path) -> None:
    lines = ["╭─ Error ─────╮", "│ no such data │", "╰─────────────╯", "step 3"]
    assert unboxed(lines) == lines
    cut = drawn(tmp_path, "labels out of range", 80)[:6]
    assert unboxed(cut) == cut
    assert unboxed([]) == []
