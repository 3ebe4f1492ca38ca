"""Near names of names that do not exist, in the message of a failure."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch

from paceline.training.reporting.failures import describe, describe_script


def _name() -> None:
    learning_rate = 1.0
    print(learning_rat + learning_rate)  # type: ignore[name-defined]  # noqa: F821


def _attribute() -> None:
    print(torch.nn.Linaer(1, 1))  # type: ignore[attr-defined]


class _NoNames:
    def __dir__(self) -> list[str]:
        raise RuntimeError("no names")


def _without_names() -> None:
    print(_NoNames().weight)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (_name, "name 'learning_rat' is not defined. Did you mean: 'learning_rate'?"),
        (_attribute, "module 'torch.nn' has no attribute 'Linaer'. Did you mean: 'Linear'?"),
    ],
    ids=["name", "attribute"],
)
def test_what_python_offers_for_a_misspelled_name_is_kept(wrong: Callable[[], None], message: str) -> None:
    """A traceback ends with it, but `str` of the exception does not."""
    with pytest.raises((NameError, AttributeError)) as raised:
        wrong()
    for report in (describe(raised.value, 0, 1, world_size=4), describe_script(raised.value, 0, world_size=4)):
        assert report.message.endswith(message)
        assert report.message.count("Did you mean") == 1


def test_a_module_that_lacks_a_name_says_what_python_says_of_it() -> None:
    with pytest.raises(ImportError) as raised:
        from paceline.training.errors import TrainingEror  # type: ignore[attr-defined]  # noqa: F401
    told = describe(raised.value, 0, 1, world_size=4).message
    assert told.startswith("cannot import name 'TrainingEror' from 'paceline.training.errors'")
    assert told.endswith("Did you mean: 'TrainingError'?") == (sys.version_info >= (3, 12))  # 3.11 has no near names for it


def test_an_error_of_a_name_without_an_offer_keeps_its_message() -> None:
    with pytest.raises(AttributeError) as raised:
        _without_names()
    for error in (raised.value, AttributeError("no such thing"), NameError(), ImportError("libx.so: cannot open")):
        assert "Did you" not in describe(error, 0, 1, world_size=4).message
