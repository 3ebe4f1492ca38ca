"""Exit codes: part of the interface, for scripts to branch on."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    DONE = 0
    ERROR = 1
    USAGE = 2
    NOT_ALLOWED = 4
    NOT_FOUND = 5
    CONFLICT = 6
    UNREACHABLE = 7
    TIMED_OUT = 8
    JOB_FAILED = 10
    JOB_CANCELLED = 11
    OUTCOME_UNKNOWN = 12
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.ERROR: "error",
    ExitCode.USAGE: "usage, or input that was refused",
    ExitCode.NOT_ALLOWED: "not signed in, or not allowed",
    ExitCode.NOT_FOUND: "not found",
    ExitCode.CONFLICT: "conflict with the present state",
    ExitCode.UNREACHABLE: "the coordinator cannot be reached",
    ExitCode.TIMED_OUT: "a wait timed out",
    ExitCode.JOB_FAILED: "the followed job failed",
    ExitCode.JOB_CANCELLED: "the followed job was cancelled",
    ExitCode.OUTCOME_UNKNOWN: "sent, but the outcome is unknown",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C (a followed job goes on; one that 'run' launched is cancelled)",
}


def epilog() -> str:
    """The end of `paceline --help`."""
    return "Exit codes: " + "; ".join(f"{code.value} {meaning}" for code, meaning in MEANINGS.items()) + "."


def for_job_state(state: str) -> ExitCode:
    """The exit code of a command that followed a job to `state`."""
    return {"failed": ExitCode.JOB_FAILED, "cancelled": ExitCode.JOB_CANCELLED}.get(state, ExitCode.DONE)
