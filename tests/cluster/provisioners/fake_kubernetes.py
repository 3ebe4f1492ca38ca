"""A Kubernetes API server in memory: Jobs, their pods and Secrets, as far as `kubernetes_client` speaks to one."""

from __future__ import annotations

import json
from typing import Any

import httpx


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
        if kind == "jobs":
            metadata = {"name": f"{name}-x1", "labels": manifest["metadata"]["labels"]}
            self.objects["pods"][f"{name}-x1"] = {"metadata": metadata, "status": {"phase": "Pending"}}
        return httpx.Response(201, json=manifest)

    def _list(self, kind: str, parameters: httpx.QueryParams) -> httpx.Response:
        key, _, value = parameters["labelSelector"].partition("=")
        found = [each for each in self.objects[kind].values() if each["metadata"].get("labels", {}).get(key) == value]
        start, size = int(parameters.get("continue", "0")), self.page or len(found) or 1
        if start and self.gone_pages:
            self.gone_pages -= 1
            return _status(410, "the provided continue parameter is too old")
        more = {"continue": str(start + size)} if start + size < len(found) else {}
        return httpx.Response(200, json={"items": found[start : start + size], "metadata": more})

    def _delete(self, kind: str, name: str, options: dict[str, Any]) -> httpx.Response:
        if options["preconditions"]["uid"] != self.objects[kind][name]["metadata"]["uid"]:
            return _status(409, "the UID in the precondition does not match")
        del self.objects[kind][name]
        self.objects["pods"].pop(f"{name}-x1", None)
        self.objects["secrets"].pop(name, None)
        return httpx.Response(200, json={"kind": "Status", "status": "Success"})


def _status(code: int, message: str) -> httpx.Response:
    return httpx.Response(code, json={"kind": "Status", "status": "Failure", "message": message, "code": code})
