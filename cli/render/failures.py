"""How the end of a failed rank reads in a sentence."""

from __future__ import annotations

from paceline.cli.api_types import Failure

LAST_LINES = 5


def error_name(failure: Failure) -> str:
    """Return the class of the exception where there was one, else what kind of end it was."""
    return failure.exception or failure.kind


def first_line(failure: Failure) -> str:
    """Return the first line of the failure's message, followed by the line of the user's code where that is known."""
    lines = message_lines(failure)
    first = f"{lines[0]} …" if len(lines) > 1 else failure.message
    return f"{first} ({failure.where})" if failure.where else first


def predicate(failure: Failure) -> str:
    """Return what a rank did that ended without an exception, as the words behind its name: exited with code 3. Empty: there was one."""
    if failure.exception or failure.kind not in ("exit", "signal"):
        return ""
    return f"was {first_line(failure)}" if failure.message.startswith("killed ") else first_line(failure)


def message_lines(failure: Failure) -> list[str]:
    """Return the lines of the failure's message, at least one."""
    return failure.message.splitlines() or [""]


def traceback_lines(failure: Failure) -> list[str]:
    """Return the lines of the traceback, without the frames of libraries where the user's own code is in it. None for a wrong
    configuration, whose message says what to change."""
    if failure.kind == "invalid_input":
        return []
    return (failure.users_traceback or failure.traceback).strip().splitlines()


def last_lines(failure: Failure) -> list[str]:
    """Return the last few lines that the rank printed before its end."""
    return failure.last_lines[-LAST_LINES:]
