"""The REST API, as every command uses it: one connection, problems as exceptions, creates that are safe to repeat.

A create carries an Idempotency-Key and is sent again when its answer is lost; when no answer comes at all the outcome is unknown, and the
command says so instead of guessing. A change carries the revision it was decided on (If-Match).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from paceline.cli.answers import parsed
from paceline.cli.api_types import Job
from paceline.cli.errors import ApiProblemError, CliError, OutcomeUnknownError, UnreachableError, UsageProblem
from paceline.cli.settings import LOOPBACK, ClientSettings, Setting
from paceline.monitoring.backoff import Backoff

API = "/api/v1"
ANSWER_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
CREATE_ATTEMPTS = 4
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.3, 2.4
PAGE = 200
ULID_LENGTH = 26

#: Of what follows a job: how long a coordinator may be away.
PATIENT_RETRIES, PATIENT_SECONDS = 60, 1.0

Document = Any
Answer = TypeVar("Answer")


class RestClient:
    def __init__(self, settings: ClientSettings, answer_timeout: float = ANSWER_TIMEOUT_S) -> None:
        self.settings = settings
        headers = {"Authorization": f"Bearer {_checked_key(settings.api_key)}"} if settings.key else {}
        timeout = httpx.Timeout(answer_timeout, connect=min(answer_timeout, CONNECT_TIMEOUT_S))
        loopback = urlsplit(settings.url).hostname in LOOPBACK
        tls = urlsplit(settings.url).scheme != "http"  # loading the authorities' certificates costs 30 ms: not where they are not used
        try:
            self._http = httpx.Client(base_url=settings.url, headers=headers, timeout=timeout, trust_env=not loopback, verify=tls)
        except httpx.InvalidURL as error:
            raise UsageProblem(f"server {settings.url!r} is not a URL: {error}", "give one like http://127.0.0.1:8000") from error

    def __enter__(self) -> RestClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.close()

    def get(self, path: str, **parameters: object) -> Document:
        return self._answer(self._send("GET", path, params=_present(parameters)))

    def download(self, path: str, target: Path) -> int:
        """Download into the file `target`. Returns its bytes. A download that breaks off leaves no file."""
        try:
            with self._http.stream("GET", API + path) as response, open(target, "wb") as file:
                if not response.is_success:
                    response.read()
                    self._answer(response)
                for piece in response.iter_bytes():
                    file.write(piece)
        except httpx.TransportError as error:
            target.unlink(missing_ok=True)
            raise self._unreachable(error) from error
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        return target.stat().st_size

    def put(self, path: str, revision: int | None = None, body: Document = None) -> Document:
        return self._change("PUT", path, {}, revision, body)

    def patch(self, path: str, body: Document) -> Document:
        return self._change("PATCH", path, {}, None, body)

    def delete(self, path: str, revision: int | None = None, **parameters: object) -> Document:
        return self._change("DELETE", path, parameters, revision)

    def create(self, path: str, body: Document, **parameters: object) -> Document:
        """Send a POST with an Idempotency-Key: repeated while no answer comes, at most CREATE_ATTEMPTS times."""
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        for attempt in range(CREATE_ATTEMPTS):
            try:
                return self._answer(self._http.post(API + path, json=body, headers=headers, params=_present(parameters)))
            except httpx.ConnectError as error:
                if attempt == 0:
                    raise self._unreachable(error) from error
            except httpx.TransportError:
                pass  # the request may have arrived: the key makes the next attempt harmless
            threading.Event().wait(backoff.next_seconds())
        raise self._unknown("POST", path)

    def ready(self) -> bool:
        try:
            return self._http.get("/readyz", timeout=2.0).status_code == 200
        except httpx.TransportError:
            return False

    def pages(self, path: str, limit: int | None = None, **parameters: object) -> list[Document]:
        """Items of a list, following its cursors up to `limit` items (default: all)."""
        items: list[Document] = []
        cursor: str | None = None
        while limit is None or len(items) < limit:
            page = self.get(path, cursor=cursor, limit=PAGE if limit is None else min(PAGE, limit - len(items)), **parameters)
            items += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        return items

    def job_id(self, reference: str) -> str:
        """The id for an id or a name; of several jobs with one name, the newest."""
        if _is_id(reference):
            return reference
        matches = [job for job in self.pages("/training/jobs", limit=PAGE, q=reference) if job["name"] == reference]
        if not matches:
            raise _not_found("job", reference, "paceline jobs")
        return str(matches[0]["id"])

    def experiment_id(self, reference: str) -> str:
        """The id for an id or a name; of several experiments with one name, the newest."""
        if _is_id(reference):
            return reference
        matches = [each for each in self.pages("/experiments", limit=PAGE, q=reference) if each["name"] == reference]
        if not matches:
            raise _not_found("experiment", reference, "paceline experiment list")
        return str(matches[0]["id"])

    def node_id(self, reference: str) -> str:
        nodes = [node for node in self.pages("/cluster/nodes") if reference in (node["id"], node["name"])]
        if not nodes:
            raise _not_found("node", reference, "paceline nodes")
        return str(nodes[0]["id"])

    def job_document(self, job_id: str) -> Document:
        return self.get(f"/training/jobs/{quote(job_id, safe='')}")

    def job(self, job_id: str) -> Job:
        return parsed(self.job_document(job_id), Job)

    def stream_url(self, path: str) -> str:
        return "ws" + self.settings.url.removeprefix("http") + API + path

    def _change(self, method: str, path: str, parameters: dict[str, object], revision: int | None, body: Document = None) -> Document:
        headers = {"If-Match": f'"{revision}"'} if revision is not None else {}
        return self._answer(self._send(method, path, headers=headers, params=_present(parameters), json=body))

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return self._http.request(method, API + path, **options)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
            raise self._unreachable(error) from error
        except httpx.TransportError as error:
            if method == "GET":
                raise self._unreachable(error) from error
            raise self._unknown(method, path) from error

    def _answer(self, response: httpx.Response) -> Document:
        if response.is_success:
            return response.json() if response.content else None
        try:
            document = response.json()
        except ValueError:
            document = {}
        raise ApiProblemError(response.status_code, document if isinstance(document, dict) else {}, response.text)

    def _unreachable(self, error: Exception) -> UnreachableError:
        server = self.settings.server
        message = f"{self.settings.url} (from {server.source}) does not answer: {str(error) or type(error).__name__}"
        return UnreachableError(
            message,
            "start one with 'paceline up', or name another with --server or PACELINE_SERVER; "
            "one that was started in another folder: paceline login --data FOLDER/.paceline",
        )

    def _unknown(self, method: str, path: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"{method} {path} was sent to {self.settings.url}, but no answer came", "look before you repeat it: 'paceline jobs'"
        )


def patient(ask: Callable[[], Answer], retries: int = PATIENT_RETRIES) -> Answer:
    """Ask a coordinator that may be away for a while, `retries` times a second apart."""
    for _ in range(retries):
        try:
            return ask()
        except UnreachableError:
            threading.Event().wait(PATIENT_SECONDS)
    return ask()


def _checked_key(key: Setting) -> str:
    """The API key, if it can travel in a header. A refusal does not repeat it: it may be a real key with a slip."""
    value = key.value or ""
    for place, character in enumerate(value, start=1):
        if not "!" <= character <= "~":
            what = "a space or line break" if character.isspace() else "a character other than letters, digits and '_'"
            raise UsageProblem(
                f"the API key (from {key.source}) has {what} at place {place} of {len(value)}", "copy it again, without anything around it"
            )
    return value


def _is_id(reference: str) -> bool:
    return len(reference) == ULID_LENGTH and reference.isalnum() and reference.isupper()


def _present(parameters: dict[str, object]) -> dict[str, Any]:
    return {name: _spelled(value) for name, value in parameters.items() if value is not None}


def _spelled(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _not_found(noun: str, reference: str, command: str) -> CliError:
    document = {"code": f"{noun}_not_found", "detail": f"there is no {noun} with the id or name {reference!r}"}
    error = ApiProblemError(404, document, "")
    error.hint = f"'{command}' lists them"
    return error
