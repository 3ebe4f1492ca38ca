"""What ends a command early. Each knows its exit code and, where there is one, the way out.

CliError
├── UsageProblem             bad input that was found here
├── TakenError               what should be made is there already
├── ProblemError             the coordinator answered with a problem document
├── UnreachableError         no answer from the coordinator
├── OutcomeUnknownError      a change was sent and no answer came
├── WaitTimedOutError        what was waited for did not happen in time
├── OutputError              stdout took no more, or a file
├── NoTraceError             ranks have not traced what they were asked for
└── StackError               a local process did not start or stop
"""

from __future__ import annotations

from typing import Any

from cli.exits import ExitCode


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
    428: ExitCode.CONFLICT,
}

_SIGN_IN = "sign in with 'paceline login --server URL --api-key KEY', or set PACELINE_API_KEY"


class ProblemError(CliError):
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

    def lines(self) -> list[str]:
        """A single field that the detail has quoted already is not listed again."""
        first, *rest = super().lines()
        listed = self.fields if len(self.fields) > 1 or not all(_quoted(field, first) for field in self.fields) else []
        return [first, *(_field_line(field) for field in listed), *rest]


def _quoted(field: dict[str, Any], text: str) -> bool:
    return field.get("message", "") in text and (field.get("hint") or "") in text


def _field_line(field: dict[str, Any]) -> str:
    hint = f" -> {field['hint']}" if field.get("hint") and field["hint"] not in field.get("message", "") else ""
    return f"  {field.get('pointer') or '(whole document)'}: {field.get('message', '')}{hint}"
