"""Errors that end a command early, each with its exit code and, where there is one, the way out.

CliError
├── UsageProblem             bad input that was found here
├── TakenError               the thing to be made exists already
├── ApiProblemError          the coordinator answered with a problem document
├── UnreachableError         no answer from the coordinator
├── OutcomeUnknownError      a change was sent and no answer came
├── WaitTimedOutError        the awaited state did not come in time
├── OutputError              stdout took no more, or a file
├── NoTraceError             ranks have not traced what they were asked for
└── StackError               a local process did not start or stop
"""

from __future__ import annotations

from typing import Any

from paceline.cli.exits import ExitCode


class CliError(Exception):
    exit_code = ExitCode.ERROR

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def lines(self) -> list[str]:
        return [f"error: {self.message}", *([f"hint: {self.hint}"] if self.hint else [])]


class UsageProblem(CliError):
    exit_code = ExitCode.USAGE


class TakenError(CliError):
    exit_code = ExitCode.CONFLICT


class UnreachableError(CliError):
    exit_code = ExitCode.UNREACHABLE


class OutcomeUnknownError(CliError):
    exit_code = ExitCode.OUTCOME_UNKNOWN


class WaitTimedOutError(CliError):
    exit_code = ExitCode.TIMED_OUT


class OutputError(CliError):
    pass


class NoTraceError(CliError):
    pass


class StackError(CliError):
    pass


_BY_STATUS = {
    400: ExitCode.USAGE,
    401: ExitCode.NOT_ALLOWED,
    403: ExitCode.NOT_ALLOWED,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.CONFLICT,
    410: ExitCode.NOT_FOUND,
    412: ExitCode.CONFLICT,
    413: ExitCode.USAGE,
    422: ExitCode.USAGE,
}

_SIGN_IN = (
    "sign in with 'paceline login --server URL --api-key KEY', or set PACELINE_API_KEY; KEY is what 'paceline keys create NAME' prints where you are"
    " signed in, or an admin gives you; for a stack of yours on this machine: paceline login --data FOLDER, with the data folder that 'paceline up' prints"
)


class ApiProblemError(CliError):
    """An RFC 9457 problem; a plain answer of a proxy in between is shown as it came."""

    def __init__(self, status: int, document: dict[str, Any], body: str) -> None:
        detail = document.get("detail") or document.get("title") or body[:500].strip() or "no explanation"
        super().__init__(f"{detail} ({status}{', ' + document['code'] if 'code' in document else ''})")
        self.status = status
        self.code = str(document.get("code", ""))
        self.fields: list[dict[str, Any]] = document.get("errors") or []
        self.exit_code = _BY_STATUS.get(status, ExitCode.ERROR)
        if status == 401:
            self.hint = _SIGN_IN

    def with_field(self, pointer: str, message: str, hint: str | None) -> ApiProblemError:
        """Add a field that was found to be wrong here. Returns the problem itself."""
        self.fields = [*self.fields, {"pointer": pointer, "message": message, "hint": hint}]
        return self

    def lines(self) -> list[str]:
        """The lines to print, each field once. Where the detail only quotes the first of several, the list stands in its place; a single
        one is not listed again, and its way out is the hint."""
        first, *rest = super().lines()
        message = self.fields[0].get("message", "") if self.fields else ""
        if not message or message not in first:
            return [first, *map(_field_line, self.fields), *rest]
        if len(self.fields) > 1:
            return [f"error: refused for these reasons ({self.status}, {self.code})", *map(_field_line, self.fields), *rest]
        hint = self.fields[0].get("hint") or ""
        return [first, *([f"hint: {hint}"] if hint not in first else []), *rest]


def _field_line(field: dict[str, Any]) -> str:
    hint = f" -> {field['hint']}" if field.get("hint") and field["hint"] not in field.get("message", "") else ""
    return f"  {field.get('pointer') or '(whole document)'}: {field.get('message', '')}{hint}"
