"""A Kubernetes API server in memory: Jobs, their pods and Secrets, as far as `kubernetes_client` speaks to one."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Change:
    """What a watch is told of: the kind of object, and the event as a line of JSON."""

    version: int
    plural: str
    line: bytes


class FakeKubernetes(httpx.AsyncBaseTransport):
    """Answers as an API server does. A test changes `objects`, or what is refused."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, dict[str, Any]]] = {"jobs": {}, "pods": {}, "secrets": {}}
        self.made = 0
        self.down = False
        self.refusals: list[tuple[int, str]] = []  # of the next requests
        self.gone_pages = 0  # how many more lists lose their snapshot
        self.page: int | None = None
        self.requests: list[httpx.Request] = []
        self.changes: list[Change] = []
        self.version = 0
        self.changed = asyncio.Event()  # replaced by another one with each change

    def change(self, plural: str, name: str, **fields: Any) -> None:
        """Change an object, and tell the watches."""
        found = self.objects[plural][name]
        found.update(fields)
        self._note(plural, "MODIFIED", found)

    def _note(self, plural: str, type: str, found: dict[str, Any]) -> None:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        line = json.dumps({"type": type, "object": found}).encode() + b"\n"
        self.changes.append(Change(self.version, plural, line))
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def _remove(self, plural: str, name: str) -> None:
        if (found := self.objects[plural].pop(name, None)) is not None:
            self._note(plural, "DELETED", found)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self.down:
            raise httpx.ConnectError("All connection attempts failed", request=request)
        if self.refusals:
            return _status(*self.refusals.pop(0))
        *_, last = parts = request.url.path.strip("/").split("/")
        if request.method == "POST":
            return self._create(last, json.loads(request.content))
        if last in self.objects:
            return self._list(last, request.url.params)
        kind = parts[-2]
        if last not in self.objects[kind]:
            return _status(404, f'{kind} "{last}" not found')
        if request.method == "GET":
            return httpx.Response(200, json=self.objects[kind][last])
        return self._delete(kind, last, json.loads(request.content))

    def _create(self, kind: str, manifest: dict[str, Any]) -> httpx.Response:
        name = manifest["metadata"]["name"]
        if name in self.objects[kind]:
            return _status(409, f'{kind} "{name}" already exists')
        self.made += 1
        manifest["metadata"]["uid"] = f"uid-{self.made}"
        self.objects[kind][name] = manifest
        self._note(kind, "ADDED", manifest)
        if kind == "jobs":
            metadata = {"name": f"{name}-x1", "uid": f"pod-{self.made}", "labels": manifest["metadata"]["labels"]}
            self.objects["pods"][f"{name}-x1"] = pod = {"metadata": metadata, "status": {"phase": "Pending"}}
            self._note("pods", "ADDED", pod)
        return httpx.Response(201, json=manifest)

    def _list(self, kind: str, parameters: httpx.QueryParams) -> httpx.Response:
        key, _, value = parameters["labelSelector"].partition("=")
        found = [each for each in self.objects[kind].values() if each["metadata"].get("labels", {}).get(key) == value]
        start, size = int(parameters.get("continue", "0")), self.page or len(found) or 1
        if start and self.gone_pages:
            self.gone_pages -= 1
            return _status(410, "the provided continue parameter is too old")
        more = {"continue": str(start + size)} if start + size < len(found) else {}
        return httpx.Response(200, json={"items": found[start : start + size], "metadata": more | {"resourceVersion": str(self.version)}})

    def _delete(self, kind: str, name: str, options: dict[str, Any]) -> httpx.Response:
        if options["preconditions"]["uid"] != self.objects[kind][name]["metadata"]["uid"]:
            return _status(409, "the UID in the precondition does not match")
        self._remove(kind, name)
        self._remove("pods", f"{name}-x1")
        self._remove("secrets", name)
        return httpx.Response(200, json={"kind": "Status", "status": "Success"})


def _status(code: int, message: str) -> httpx.Response:
    return httpx.Response(code, json={"kind": "Status", "status": "Failure", "message": message, "code": code})
