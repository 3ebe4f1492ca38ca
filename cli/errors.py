"""Errors that end a command early, each with its exit code and, where there is one, the way out.

CliError
├── UsageProblem             bad input that was found here
│   └── SpecFileError        a text that is no spec
├── NotThereError            what is named is not there, as the coordinator's answers show
├── TakenError               the thing to be made exists already
├── ApiProblemError          the coordinator answered with a problem document
├── UnreachableError         no answer from the coordinator
│   └── NotBelievedError     its certificate is of nobody who is believed here
├── OutcomeUnknownError      a change was sent and no answer came
├── WaitTimedOutError        the awaited state did not come in time
├── JobEndedError            the job has ended, and cannot be in the awaited state any more
├── OutputError              stdout took no more, or a file
├── NoTraceError             ranks have not traced what they were asked for
├── NoGradientsError         ranks have not recorded the gradients that they were asked for
└── StackError               a local process did not start or stop
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from paceline.cli.exits import ExitCode

if TYPE_CHECKING:
    from paceline.training.spec.text import SpecTextError


class CliError(Exception):
    exit_code = ExitCode.ERROR
    #: Whether the command has printed its answer before this error.
    after_answer = False

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def lines(self) -> list[str]:
        return [f"error: {self.message}", *([f"hint: {self.hint}"] if self.hint else [])]

    def document(self) -> dict[str, Any]:
        """The error for programs, as `--json` prints it."""
        known = {"code": self.exit_code.name.lower(), "message": self.message, "hint": self.hint, "exit_code": int(self.exit_code)}
        return {"error": {name: value for name, value in known.items() if value is not None}}


class UsageProblem(CliError):
    exit_code = ExitCode.USAGE


class NotThereError(CliError):
    exit_code = ExitCode.NOT_FOUND


class SpecFileError(UsageProblem):
    """A text that is no spec: all that is wrong with it, and with what is left of it."""

    def __init__(self, message: str, error: SpecTextError) -> None:
        super().__init__(message)
        self.rest, self.lines_of_rest = error.rest, error.lines
        self._places = {each.path for each in error.findings}
        self.fields: list[dict[str, Any]] = [{"line": each.line, "message": each.message} for each in error.findings]

    def add(self, fields: Sequence[dict[str, Any]]) -> None:
        """Add what the coordinator said of the rest, but of values that were left out."""
        self.fields += [each for each in fields if not any(_is_inside(str(each.get("pointer") or ""), place) for place in self._places)]

    def lines(self) -> list[str]:
        if len(self.fields) <= 1:
            return super().lines()
        return [f"error: {self.message.partition(': ')[0]}:", *map(_field_line, self.fields)]

    def document(self) -> dict[str, Any]:
        return {"error": super().document()["error"] | ({"errors": self.fields} if self.fields else {})}


def _is_inside(pointer: str, place: tuple[str, ...]) -> bool:
    """Whether a JSON pointer leads to a place or below it. The whole document is no such place."""
    return bool(place) and f"{pointer}/".startswith(f"/{'/'.join(place)}/")


class TakenError(CliError):
    exit_code = ExitCode.CONFLICT


class UnreachableError(CliError):
    exit_code = ExitCode.UNREACHABLE


class NotBelievedError(UnreachableError):
    """The server's certificate is not of an authority that is believed here, or not for this name, or has ended."""

    def __init__(self, url: str, reason: str, *, pinned: bool) -> None:
        """Say why `url` is not believed, and the way out. `pinned`: its authority was pinned before."""
        hint = "if the coordinator has a new authority, ask who runs it, and " if pinned else "if it has an authority of its own, "
        super().__init__(
            f"{url} shows a certificate that is not believed here: {reason}",
            f"{hint}sign in with 'paceline login --server {url} --api-key KEY', which shows the authority's fingerprint and asks",
        )


class OutcomeUnknownError(CliError):
    exit_code = ExitCode.OUTCOME_UNKNOWN


class WaitTimedOutError(CliError):
    exit_code = ExitCode.TIMED_OUT


class JobEndedError(CliError):
    exit_code = ExitCode.CONFLICT


class OutputError(CliError):
    pass


class NoTraceError(CliError):
    after_answer = True


class NoGradientsError(CliError):
    pass


class NoStackError(CliError):
    after_answer = True


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

#: What a proxy answers where it reaches no coordinator, and a coordinator that cannot answer yet.
_AWAY = frozenset({502, 503, 504})

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
        self.detail = str(detail)
        self.code = str(document.get("code", ""))
        self.type = document.get("type", "")
        self.fields: list[dict[str, Any]] = document.get("errors") or []
        self._subject = ""
        self.exit_code = _BY_STATUS.get(status, ExitCode.ERROR)
        #: The address of the documentation of this code; None where the answer has none.
        self.docs: str | None = None
        if status == 401:
            self.hint = _SIGN_IN

    @property
    def is_passing(self) -> bool:
        """Whether nobody could answer for a while: a proxy that reaches no coordinator, or a coordinator without its database."""
        return self.status in _AWAY and self.code in ("", "busy")

    def document(self) -> dict[str, Any]:
        """The error for programs: the coordinator's own code, and the fields that it refused."""
        error = super().document()["error"] | {"status": self.status, "message": self.detail}
        return {"error": error | ({"code": self.code} if self.code else {}) | ({"errors": self.fields} if self.fields else {})}

    def with_field(self, pointer: str, message: str, hint: str | None) -> ApiProblemError:
        """Add a field that was found to be wrong here. Returns the problem itself."""
        self.fields = [*self.fields, {"pointer": pointer, "message": message, "hint": hint}]
        return self

    def about(self, subject: str) -> ApiProblemError:
        """Say which of several things that a command sends was refused. Returns the problem itself."""
        self._subject = f"{subject}: "
        self.message, self.detail = f"{subject}: {self.message}", f"{subject}: {self.detail}"
        return self

    def explained_at(self, address: str) -> ApiProblemError:
        """Say where the answer to a request to `address` is explained, if its `type` leads to the documentation. Returns the problem."""
        kind = str(self.type)
        self.docs = urljoin(address, kind) if kind.startswith("/docs/") else None
        return self

    def lines(self) -> list[str]:
        """The lines to print: the refusal, then where it is explained."""
        return [*self._refusal(), *([f"docs: {self.docs}"] if self.docs else [])]

    def _refusal(self) -> list[str]:
        """The lines of the refusal, each field once. Where the detail only quotes the first of several, the list stands in its place; a single
        one is not listed again, and its way out is the hint."""
        first, *rest = super().lines()
        message = self.fields[0].get("message", "") if self.fields else ""
        if not message or message not in first:
            return [first, *map(_field_line, self.fields), *rest]
        if len(self.fields) > 1:
            return [f"error: {self._subject}refused for these reasons ({self.status}, {self.code})", *map(_field_line, self.fields), *rest]
        pointer, line, hint = (self.fields[0].get(name) or "" for name in ("pointer", "line", "hint"))
        first = first.replace(f"{pointer}:", f"{pointer} (line {line}):", 1) if pointer and line else first
        return [first, *([f"hint: {hint}"] if hint not in first else []), *rest]


def _field_line(field: dict[str, Any]) -> str:
    hint = f" -> {field['hint']}" if field.get("hint") and field["hint"] not in field.get("message", "") else ""
    if "pointer" not in field:  # of a text, whose line the message names
        return f"  {field['message']}{hint}"
    line = f" (line {field['line']})" if field.get("line") is not None else ""
    return f"  {field.get('pointer') or '(whole document)'}{line}: {field.get('message', '')}{hint}"
