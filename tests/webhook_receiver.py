"""A receiver of webhooks over real HTTP, for tests: it answers as it is told, and keeps what it got."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b"ok"
    headers: dict[str, str] = field(default_factory=dict)
    #: The answer comes only when the test lets it, or never.
    stalls: bool = False


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass
class WebhookReceiver:
    port: int = 0
    #: Used one after the other; then it is always 200.
    answers: list[Answer] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/T0KEN"

    @property
    def titles(self) -> list[str]:
        return [each.document["title"] for each in self.received]

    def take(self, received: Received) -> Answer:
        with self._lock:
            self.received.append(received)
            return self.answers.pop(0) if self.answers else Answer()


@contextmanager
def serve() -> Iterator[WebhookReceiver]:
    receiver = WebhookReceiver()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _door_of(receiver))
    server.daemon_threads = True
    receiver.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield receiver
    receiver.released.set()
    server.shutdown()
    thread.join(timeout=5)
    server.server_close()


def _door_of(receiver: WebhookReceiver) -> type[BaseHTTPRequestHandler]:
    class ReceiverDoor(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = receiver.take(Received(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            if answer.stalls and not receiver.released.wait(timeout=30):
                return
            try:
                self.send_response(answer.status)
                for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)
            except OSError:
                self.close_connection = True  # the client has gone

        do_GET = do_POST

        def log_message(self, format: str, *args: Any) -> None:
            """Tests look at what arrived."""

    return ReceiverDoor
