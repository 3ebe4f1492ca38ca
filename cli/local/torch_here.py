"""Checks whether this Python can train. The command line and the coordinator do without torch."""

from __future__ import annotations

from importlib.util import find_spec

from paceline.cli.errors import StackError
from paceline.extras import pip_install


def require_torch(what: str, instead: str = "") -> None:
    """Raise StackError where torch is not installed. `what` needs it; `instead`: what can be done without it."""
    if find_spec("torch") is None:
        raise StackError(f"{what} needs torch, and this Python has none", f"{pip_install('worker')}{instead}")
