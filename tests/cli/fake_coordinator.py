"""A coordinator that answers what a test tells it to, over real HTTP. WebSockets are refused, as by a proxy that does not pass them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

API = "/api/v1"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: Any = None
    hang_up: bool = False  # close the connection without an answer


Handler = Callable[[Request], Answer]


@dataclass
class FakeCoordinator:
    url: str = ""
    handlers: dict[tuple[str, str], Handler] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    #: Answers what has no handler; None: neither has it.
    fallback: Callable[[Request], Answer | None] = lambda request: None

    def on(self, method: str, path: str, *answers: Answer) -> None:
        """Answer with these in turn; the last one for ever."""
        left = list(answers)
        self.handlers[method, API + path] = lambda request: left.pop(0) if len(left) > 1 else left[0]

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        handler = self.handlers.get((request.method, request.path))
        answer = handler(request) if handler else self.fallback(request)
        return answer or problem(404, "not_found", f"{request.path} is not here")

    def sent(self, method: str, path: str) -> list[Request]:
        return [request for request in self.requests if (request.method, request.path) == (method, API + path)]


def problem(status: int, code: str, detail: str, **more: Any) -> Answer:
    return Answer(status, {"type": "about:blank", "title": code, "status": status, "code": code, "detail": detail, **more})


@contextmanager
def serve() -> Iterator[FakeCoordinator]:
    fake = FakeCoordinator()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(fake))
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield fake
    server.shutdown()
    thread.join(timeout=5)
    server.server_close()


def _body(headers: dict[str, str], text: bytes) -> Any:
    """A body as the test sees it: the document that it is, or bytes that say that they are none."""
    if headers.get("content-type") == "application/octet-stream":
        return text
    return json.loads(text) if text else None


def _handler_of(fake: FakeCoordinator) -> type[BaseHTTPRequestHandler]:
    class Door(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            parts = urlsplit(self.path)
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, parts.path, dict(parse_qsl(parts.query)), headers, _body(headers, text))
            answer = fake.answer(request)
            if not answer.hang_up:
                self._reply(answer)

        def _reply(self, answer: Answer) -> None:
            body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        def log_message(self, format: str, *args: Any) -> None:
            """Tests look at `requests` instead."""

    return Door


def job(**changes: Any) -> dict[str, Any]:
    """A job as the API shows it."""
    return {
        "id": "01JD0000000000000000000001",
        "name": "gpt",
        "project": "default",
        "state": "running",
        "desired": "run",
        "end_reason": None,
        "pending": None,
        "progress": {"step": 7, "total_steps": 10, "loss": "NaN", "tokens_per_second": 12345.0},
        "world_size": 2,
        "generation": 1,
        "restarts": 0,
        "strategy": "ddp",
        "created_at": "2026-11-20T12:00:00Z",
        "revision": 3,
        "generations": [
            {"generation": 1, "world_size": 2, "started_at": "2026-11-20T12:00:00.1Z", "first_step_at": "2026-11-20T12:00:00.84Z"}
        ],
        **changes,
    }


def experiment(**changes: Any) -> dict[str, Any]:
    """An experiment as the API shows it; `counts` are of its trials, by state."""
    counts = {"total": 3, "completed": 1, "running": 1, "waiting": 1, **changes.pop("counts", {})}
    states = ("refused", "waiting", "running", "paused", "completed", "failed", "cancelled", "pruned")
    return {
        "id": "01JE0000000000000000000001",
        "name": "ddp-vs-fsdp",
        "project": "default",
        "state": "running",
        "created_at": "2026-11-25T12:00:00Z",
        "axes": ["parallelism.strategy", "world_size"],
        "trials": {**dict.fromkeys(states, 0), **counts},
        "seconds_left": 130.0,
        "slot_hours": 0.02,
        "spec": {"metric": {"name": "loss"}},
        "analyzed_at": None,
        "revision": 1,
        **changes,
    }


def trial(index: int, state: str, **changes: Any) -> dict[str, Any]:
    """A trial as the API shows it, with a job unless it is refused or waits."""
    mine = {"id": f"01JD000000000000000000000{index}", "name": f"ddp-vs-fsdp-{index}", "state": state, "end_reason": None, "step": 40}
    return {
        "index": index,
        "values": {"parallelism.strategy": "ddp", "world_size": 2},
        "repeat": index,
        "baseline": False,
        "state": state,
        "refusal": None,
        "job": None if state in ("refused", "waiting") else {**mine, "total_steps": 40, "loss": 0.5, "samples_per_second": 152.0},
        "metric": None,
        "metric_step": 40,
        **changes,
    }


def analysis(**changes: Any) -> dict[str, Any]:
    """An analysis as the API shows it: one configuration that was measured three times, and one that was refused."""
    measured = {
        "index": 0,
        "label": "ddp, 2 ranks",
        "values": {},
        "world_size": 2,
        "strategy": "ddp",
        "baseline": False,
        "trials": [0, 1, 2],
        "completed": 3,
        "samples_per_second": {"value": 152.0, "low": 148.0, "high": 156.0, "count": 3},
        "efficiency": {"value": 0.93, "low": None, "high": None, "count": 1},
    }
    refused = {
        **measured,
        "index": 1,
        "label": "ddp, 3 ranks",
        "trials": [3],
        "completed": 0,
        "refusal": "no way",
        "samples_per_second": None,
        "efficiency": None,
    }
    sentences = [{"kind": "doubt", "text": "Two ranks say nothing of a network."}, {"kind": "recommendation", "text": "Take ddp."}]
    found = {"trials": 4, "completed": 3, "best": 0, "configurations": [measured, refused], "sentences": sentences, **changes}
    return {"experiment_id": experiment()["id"], "made_at": "2026-11-25T12:05:00Z", "complete": True, "seconds": 0.1, "analysis": found}


def line(seq: int, text: str, **changes: Any) -> dict[str, Any]:
    return {"seq": seq, "rank": 0, "generation": 1, "time": "2026-11-20T12:00:00Z", "level": "info", "text": text, **changes}
