"""The few requests that nodes need of a Kubernetes API server, over httpx."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from paceline.cluster.provisioners.kubernetes_settings import KubernetesSettings
from paceline.cluster.provisioners.provisioner import ProvisionerContext, ProvisionerError

REQUEST_SECONDS = 15.0
PAGE = 500
#: How often a list begins anew whose snapshot the server has dropped meanwhile (410).
MOST_LISTS = 3
#: The server ends a watch after so long, and another one begins where it ended. A connection that broke without a word is noticed at the latest then.
WATCH_SECONDS = 60
#: One event of a watch, with its object: etcd keeps none over 1.5 MiB.
MOST_LINE_BYTES = 4 * 2**20
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
IN_CLUSTER = "https://kubernetes.default.svc"


class KubernetesApiError(ProvisionerError):
    """The API server refused a request. `status` is that of its answer."""

    def __init__(self, status: int, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.status = status


class KubernetesUnreachableError(ProvisionerError):
    """No connection to the API server, or one that was lost."""


@dataclass(frozen=True)
class ObjectList:
    """All objects of a kind at one moment. `version` is where a watch goes on from it."""

    items: list[dict[str, Any]]
    version: str


class KubernetesClient:
    """Makes, lists, watches and deletes Jobs, Secrets and pods of one namespace."""

    def __init__(
        self, settings: KubernetesSettings, context: ProvisionerContext, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._settings, self._context, self._transport = settings, context, transport
        self._url = settings.api_server or IN_CLUSTER

    async def create(self, group: str, plural: str, manifest: dict[str, Any]) -> dict[str, Any]:
        """Make an object. Raises KubernetesApiError, with status 409 where one of this name is there."""
        return await self._ask("POST", self._path(group, plural), json=manifest)

    async def read(self, group: str, plural: str, name: str) -> dict[str, Any] | None:
        """The object of this name; None: there is none."""
        try:
            return await self._ask("GET", f"{self._path(group, plural)}/{name}")
        except KubernetesApiError as refused:
            if refused.status == httpx.codes.NOT_FOUND:
                return None
            raise

    async def delete(self, group: str, plural: str, name: str, uid: str) -> None:
        """Delete an object and what it owns, in the background. One that is gone, or whose name another one has now (409), is no error."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            await self._ask("DELETE", f"{self._path(group, plural)}/{name}", json=options)
        except KubernetesApiError as refused:
            if refused.status not in (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT):
                raise

    async def objects(self, group: str, plural: str, selector: str) -> ObjectList:
        """All objects with these labels, page by page; from the start again where the server no longer has the first page's snapshot (410)."""
        for attempt in range(MOST_LISTS):
            try:
                return await self._pages(group, plural, selector)
            except KubernetesApiError as refused:
                if refused.status != httpx.codes.GONE or attempt == MOST_LISTS - 1:
                    raise
        raise AssertionError("a list returns or raises")

    async def _pages(self, group: str, plural: str, selector: str) -> ObjectList:
        found, more = list[dict[str, Any]](), ""
        while True:
            parameters = {"labelSelector": selector, "limit": str(PAGE), **({"continue": more} if more else {})}
            answer = await self._ask("GET", self._path(group, plural), params=parameters)
            found += answer.get("items", [])
            metadata = answer.get("metadata", {})
            more = metadata.get("continue") or ""
            if not more:
                return ObjectList(found, metadata.get("resourceVersion") or "")

    @asynccontextmanager
    async def watch(self, group: str, plural: str, selector: str, version: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """A context with the events since `version` as lines of JSON, until the server ends it after WATCH_SECONDS. Raises KubernetesApiError where the
        server refuses it, and ProvisionerError where the connection is lost, both within the context too."""
        parameters = {"watch": "true", "labelSelector": selector, "resourceVersion": version}
        parameters |= {"allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_SECONDS)}
        path, timeout = self._path(group, plural), httpx.Timeout(REQUEST_SECONDS, read=WATCH_SECONDS + REQUEST_SECONDS)
        try:
            async with self._http() as http, http.stream("GET", path, params=parameters, timeout=timeout) as response:
                if not response.is_success:
                    await response.aread()
                    raise _refusal(response, "GET", f"{path}?watch=true")
                async with aclosing(_lines(response)) as lines:
                    yield lines
        except (httpx.HTTPError, OSError) as error:
            raise self._unreachable(error) from error

    def _path(self, group: str, plural: str) -> str:
        base = "/api/v1" if group == "v1" else f"/apis/{group}"
        return f"{base}/namespaces/{self._settings.namespace}/{plural}"

    async def _ask(self, method: str, path: str, **content: Any) -> dict[str, Any]:
        try:
            async with self._http() as http:
                response = await http.request(method, path, **content)
        except (httpx.HTTPError, OSError) as error:
            raise self._unreachable(error) from error
        if not response.is_success:
            raise _refusal(response, method, path)
        try:
            answer: dict[str, Any] = response.json()
        except ValueError as error:
            remedy = "look at the pool's `api_server`: a proxy in front of it may answer in its place"
            raise ProvisionerError(f"{self._url} answered {method} {path} with what is no JSON: {response.text[:200]!r}", remedy) from error
        return answer

    def _http(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} if (token := self._token()) else {}
        return httpx.AsyncClient(
            base_url=self._url, headers=headers, timeout=REQUEST_SECONDS, verify=self._certificates(), transport=self._transport
        )

    def _unreachable(self, error: Exception) -> KubernetesUnreachableError:
        remedy = "look at the pool's `api_server` and `ca_file`; without them the coordinator itself must run in the cluster"
        return KubernetesUnreachableError(f"{self._url} cannot be reached: {str(error) or type(error).__name__}", remedy)

    def _token(self) -> str | None:
        if self._settings.token_secret is not None:
            found = self._context.secret(self._settings.token_secret)
            if not found:
                raise ProvisionerError(
                    f"token_secret={self._settings.token_secret}: the coordinator has no such environment variable",
                    "start it with that variable set to a token of a service account: `kubectl create token`",
                )
            return found
        file = SERVICE_ACCOUNT / "token"  # read each time: Kubernetes renews it
        return file.read_text().strip() if self._settings.api_server is None and file.exists() else None

    def _certificates(self) -> ssl.SSLContext | bool:
        own = SERVICE_ACCOUNT / "ca.crt"
        file = self._settings.ca_file or (str(own) if self._settings.api_server is None and own.exists() else None)
        return ssl.create_default_context(cafile=file) if file and self._url.startswith("https") else True


REMEDIES = {
    401: "its token is refused: make a new one with `kubectl create token`, and set token_secret's variable to it",
    403: "give the coordinator's service account the role of deploy/kubernetes/provisioner.yaml",
    404: "make the namespace: `kubectl create namespace`",
    422: "the cluster refuses what the pool asks for: correct the field that it names",
}


async def _lines(response: httpx.Response) -> AsyncGenerator[bytes]:
    """The whole lines of an answer that is still coming; what a lost connection leaves of one is none. Raises ProvisionerError for one that is too long."""
    begun = b""
    async for chunk in response.aiter_bytes():
        *whole, begun = (begun + chunk).split(b"\n")
        for line in whole:
            yield line
        if len(begun) > MOST_LINE_BYTES:
            raise ProvisionerError(
                f"an event of a watch is longer than {MOST_LINE_BYTES} bytes", "look at the annotations of the pool's Jobs and pods"
            )


def _refusal(response: httpx.Response, method: str, path: str) -> KubernetesApiError:
    try:
        said = str(response.json().get("message", ""))
    except (ValueError, AttributeError):
        said = ""
    remedy = REMEDIES.get(response.status_code, "try it with kubectl, as the coordinator's service account")
    message = f"Kubernetes answered {response.status_code} to {method} {path}: {said[:500] or response.reason_phrase}"
    return KubernetesApiError(response.status_code, message, remedy)
