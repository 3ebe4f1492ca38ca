"""The REST API, as every command uses it: one connection, problems as exceptions, creates that are safe to repeat.

A create carries an Idempotency-Key and is sent again when its answer is lost; when no answer comes at all the outcome is unknown, and the
command says so instead of guessing. A change carries the revision it was decided on (If-Match).
"""

from __future__ import annotations

import contextlib
import re
import ssl
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import httpx

from paceline.cli.answers import parsed
from paceline.cli.api_types import ApiKey, Job
from paceline.cli.errors import ApiProblemError, NotBelievedError, OutcomeUnknownError, UnreachableError, UsageProblem
from paceline.cli.references import EXPERIMENT, JOB, find_id, is_id, not_found
from paceline.cli.render.usage_words import as_options
from paceline.cli.settings import LOOPBACK, ClientSettings, Setting
from paceline.monitoring.backoff import Backoff
from paceline.tls.trust import TrustError, context_of

API = "/api/v1"
ANSWER_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
ATTEMPTS = 4
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.3, 2.4
PAGE = 200
#: What comes before anything is sent.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol)

Document = Any


class RestClient:
    def __init__(self, settings: ClientSettings, answer_timeout: float = ANSWER_TIMEOUT_S) -> None:
        self.settings = settings
        headers = {"Authorization": f"Bearer {_checked_key(settings.api_key)}"} if settings.key else {}
        timeout = httpx.Timeout(answer_timeout, connect=min(answer_timeout, CONNECT_TIMEOUT_S))
        loopback = urlsplit(settings.url).hostname in LOOPBACK
        #: For an https server with a pinned authority: believe that one alone.
        self.tls = _pinned(settings)
        verify = self.tls or urlsplit(settings.url).scheme != "http"  # loading all authorities costs 30 ms: not where they are not used
        try:
            self._http = httpx.Client(base_url=settings.url, headers=headers, timeout=timeout, trust_env=not loopback, verify=verify)
        except httpx.InvalidURL as error:
            raise UsageProblem(f"server {settings.url!r} is not a URL: {error}", "give one like http://127.0.0.1:8000") from error

    def __enter__(self) -> RestClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.close()

    def get(self, path: str, /, **parameters: object) -> Document:
        try:
            return self._answer(self._send("GET", path, params=_present(parameters)))
        except ApiProblemError as error:
            if error.code == "invalid_parameter":
                error.message, error.detail = (as_options(text, parameters) for text in (error.message, error.detail))
            raise

    def download(self, path: str, target: Path) -> int:
        """Download into the file `target`. Returns its bytes. A download that breaks off leaves no file."""
        self._stream(path, target, lambda response: None)
        return target.stat().st_size

    def _stream(self, path: str, target: Path, begun: Callable[[httpx.Response], None], **options: Any) -> None:
        try:
            with self._http.stream("GET", _address(path), **options) as response, open(target, "wb") as file:
                if not response.is_success:
                    response.read()
                    self._answer(response)
                begun(response)
                for piece in response.iter_bytes():
                    file.write(piece)
        except httpx.TransportError as error:
            target.unlink(missing_ok=True)
            raise self._unreachable(error) from error
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    def download_named(self, path: str, target: Path) -> str:
        """Download into `target`, however long it takes to begin. Returns the name that the coordinator gives it."""
        name = ""

        def note(response: httpx.Response) -> None:
            nonlocal name
            name = _file_name(response.headers.get("content-disposition", ""))

        self._stream(path, target, note, timeout=None)
        return name or target.name

    def continue_download(self, path: str, part: Path, etag: str, parameters: dict[str, str]) -> None:
        """Append to `part` what it lacks of a content; where that is another one by now, it begins anew. What arrives stays if it breaks
        off."""
        start = part.stat().st_size
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-", "If-Range": etag} if start else {})
        try:
            with self._http.stream("GET", _address(path), params=parameters, headers=headers) as response:
                if not response.is_success:
                    response.read()
                    self._answer(response)
                with open(part, "ab" if response.status_code == httpx.codes.PARTIAL_CONTENT else "wb") as file:
                    for piece in response.iter_raw():
                        file.write(piece)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def put(self, path: str, revision: int | None = None, body: Document = None) -> Document:
        return self._change("PUT", path, {}, revision, body)

    def put_bytes(self, path: str, content: bytes) -> Document:
        """Send bytes to where they are harmless a second time: repeated as a create is."""
        return self._repeated("PUT", path, content=content, headers={"Content-Type": "application/octet-stream"})

    def patch(self, path: str, body: Document) -> Document:
        return self._change("PATCH", path, {}, None, body)

    def delete(self, path: str, /, revision: int | None = None, **parameters: object) -> Document:
        return self._change("DELETE", path, parameters, revision)

    def create(self, path: str, body: Document, *, only_new: bool = False, **parameters: object) -> Document:
        """Send a POST with an Idempotency-Key: repeated while no answer comes, at most ATTEMPTS times. `only_new`: where the endpoint would
        change what is there already under this name, the coordinator refuses it as already_exists."""
        headers = {"Idempotency-Key": str(uuid.uuid4())} | ({"If-None-Match": "*"} if only_new else {})
        return self._repeated("POST", path, json=body, headers=headers, params=_present(parameters))

    def _repeated(self, method: str, path: str, **options: Any) -> Document:
        """Send what is harmless a second time, at most ATTEMPTS times: until an answer of the coordinator's own comes.

        Raises UnreachableError where nothing was ever sent, and OutcomeUnknownError where something may have arrived."""
        backoff, may_have_arrived = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS), False
        for attempt in range(ATTEMPTS):
            try:
                with _finite():
                    return self._answer(self._http.request(method, _address(path), **options))
            except NOT_SENT as error:
                if not may_have_arrived:
                    raise self._unreachable(error) from error
            except httpx.TransportError:
                may_have_arrived = True
            except ApiProblemError as error:
                is_last = attempt == ATTEMPTS - 1
                if not error.is_passing or (is_last and error.code):
                    raise
                may_have_arrived = True
            threading.Event().wait(backoff.next_seconds())
        raise self._unknown(method, path)

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
        """The id for a name, an id or its beginning; of several jobs with one name, the newest."""
        return find_id(self, JOB, reference)

    def experiment_id(self, reference: str) -> str:
        """The id for a name, an id or its beginning; of several experiments with one name, the newest."""
        return find_id(self, EXPERIMENT, reference)

    def node(self, reference: str) -> Document:
        """The node with this name or id."""
        known = self.pages("/cluster/nodes")
        nodes = [node for node in known if reference in (node["id"], node["name"])]
        if not nodes:
            raise not_found("node", reference, "paceline nodes", (node["name"] for node in known))
        return nodes[0]

    def node_id(self, reference: str) -> str:
        return str(self.node(reference)["id"])

    def pool_path(self, name: str) -> str:
        """The path of the pool with this name."""
        names = [pool["name"] for pool in self.pages("/cluster/pools")]
        if name not in names:
            raise not_found("pool", name, "paceline pools", names)
        return f"/cluster/pools/{name}"

    def user_id(self, reference: str) -> str:
        if is_id(reference):
            return reference
        matches = self.pages("/users", name=reference)
        if not matches:
            raise not_found("user", reference, "paceline users list", (user["name"] for user in self.pages("/users")))
        return str(matches[0]["id"])

    def key(self, reference: str) -> Document:
        """The key with this id, prefix or name. Raises UsageProblem where several keys of that name are neither revoked nor expired."""
        live = [key for key in self.pages("/keys") if key["revoked_at"] is None or key["id"] == reference]
        matches = [key for key in live if reference in (key["id"], key["prefix"], key["name"])]
        if len(matches) > 1:
            matches = [key for key in matches if not _has_expired(parsed(key, ApiKey))] or matches
        if not matches:
            raise not_found("key", reference, "paceline keys list", (key["name"] for key in live))
        if len(matches) > 1:
            names = " or ".join(f"{key['prefix']} ({key['user_name']})" for key in matches)
            raise UsageProblem(f"several keys are called {reference!r}", f"name one by its prefix: {names}")
        return matches[0]

    def job_document(self, job_id: str) -> Document:
        return self.get(f"/training/jobs/{quote(job_id, safe='')}")

    def job(self, job_id: str) -> Job:
        return parsed(self.job_document(job_id), Job)

    def job_page(self, job_id: str) -> str:
        """The address of a job's page in the dashboard."""
        return f"{self.settings.url}/jobs/{job_id}"

    def experiment_page(self, experiment_id: str) -> str:
        """The address of an experiment's page in the dashboard."""
        return f"{self.settings.url}/experiments/{experiment_id}"

    def stream_url(self, path: str) -> str:
        return "ws" + self.settings.url.removeprefix("http") + API + path

    def _change(self, method: str, path: str, parameters: dict[str, object], revision: int | None, body: Document = None) -> Document:
        headers = {"If-Match": f'"{revision}"'} if revision is not None else {}
        with _finite():
            return self._answer(self._send(method, path, headers=headers, params=_present(parameters), json=body))

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return self._http.request(method, _address(path), **options)
        except NOT_SENT as error:
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
        problem = ApiProblemError(response.status_code, document if isinstance(document, dict) else {}, response.text)
        raise problem.explained_at(str(response.url))

    def _unreachable(self, error: Exception) -> UnreachableError:
        server = self.settings.server
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return NotBelievedError(self.settings.url, str(error), pinned=self.tls is not None)
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


def _has_expired(key: ApiKey) -> bool:
    return key.expires_at is not None and key.expires_at <= datetime.now(UTC)


def _pinned(settings: ClientSettings) -> ssl.SSLContext | None:
    if settings.authority.value is None or not settings.url.startswith("https:"):
        return None
    try:
        return context_of(settings.authority.value)
    except TrustError as error:
        raise UsageProblem(
            f"{settings.authority.source}: {error}", "name a certificate in PEM, or sign in again: 'paceline login'"
        ) from error


def _file_name(disposition: str) -> str:
    """The name in a Content-Disposition header, without any folder."""
    found = re.search(r"filename\*=UTF-8''([^;]+)", disposition)
    return PurePosixPath(unquote(found[1])).name if found else ""


def _address(path: str) -> str:
    """The address of an endpoint. Raises UsageProblem for a name in it that no address can have, as a coordinator may tell one."""
    if not path.isprintable():
        raise UsageProblem(f"{path!r} is no address of the coordinator's: a name in it has characters that no address can have")
    return API + path


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


@contextlib.contextmanager
def _finite() -> Iterator[None]:
    """Around what sends JSON, which has no NaN. Raises UsageProblem for it."""
    try:
        yield
    except ValueError as error:
        if "Out of range float" not in str(error):
            raise
        raise UsageProblem("NaN and infinity are no numbers that can be sent", "give a finite number") from error


def _present(parameters: dict[str, object]) -> dict[str, Any]:
    return {name: _spelled(value) for name, value in parameters.items() if value is not None}


def _spelled(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value
