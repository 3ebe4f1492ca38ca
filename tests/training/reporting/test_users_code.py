"""Which frames of a traceback are the user's, and how the others are folded."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable

import pytest
import torch

from paceline.location import EXAMPLES, PACKAGE
from paceline.training.reporting.users_code import folded, innermost, is_users


def loss(_: torch.Tensor) -> torch.Tensor:
    raise KeyError("missing_key")


def forward() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return loss(x)

    Model()(torch.zeros(1))


def in_group() -> None:
    try:
        forward()
    except KeyError as error:
        raise ExceptionGroup("two of them", [error, ValueError("the other")]) from None


def text_of(action: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        action()
    return "".join(traceback.format_exception(caught.value))


def test_frames_of_libraries_between_the_users_own_are_counted() -> None:
    text = text_of(forward)
    assert "torch/nn/modules/module.py" in text
    lines = folded(text).splitlines()
    assert [line.strip() for line in lines if "frame" in line] == ["… 2 frames of libraries"]
    assert not any("site-packages" in line or "_call_impl" in line for line in lines)
    assert "return loss(x)" in [line.strip() for line in lines]
    assert lines[-1] == "KeyError: 'missing_key'"
    assert innermost(text).startswith("loss in test_users_code.py:")


def test_the_messages_of_an_exception_group_stay() -> None:
    text = folded(text_of(in_group))
    for message in ("two of them (2 sub-exceptions)", "KeyError: 'missing_key'", "ValueError: the other"):
        assert message in text


def test_a_message_of_several_lines_that_a_library_raised_stays_whole() -> None:
    text = folded(text_of(lambda: torch.nn.Linear(1, 1).load_state_dict({})))
    assert (
        "frames of libraries\nRuntimeError: Error(s) in loading" in text or "frame of libraries\nRuntimeError: Error(s) in loading" in text
    )
    assert "\tMissing key(s) in state_dict" in text


def test_a_traceback_without_a_frame_of_the_users_is_left_to_the_whole_one() -> None:
    def frames_of_json() -> None:
        json.loads("{")

    text = text_of(frames_of_json)
    only_library = "\n".join(line for line in text.splitlines() if "test_users_code" not in line)
    assert folded(only_library) == ""


def test_paceline_is_no_code_of_the_users_however_it_is_reached() -> None:
    """A program in a new interpreter may have it through a link in the rank's folder."""
    linked = "/srv/data/jobs/j/g1/rank0/.package/paceline"
    assert not any(map(is_users, (f"{PACKAGE}/training/task.py", f"{linked}/training/task.py")))
    assert all(map(is_users, (f"{EXAMPLES}/own.py", f"{linked}/examples/own.py", "/home/me/paceline/train.py")))
