"""A real S3 server in this process (moto's), and a proxy before it that fails, stalls, forgets and damages what passes through."""

from __future__ import annotations

import contextlib
import http.client
import logging
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from moto.server import ThreadedMotoServer

BUCKET = "bucket"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
HOLD_SECONDS = 60.0
SLOW_SECONDS = 0.3
#: The server reads who asks, and checks no signature.
SIGNED = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


@dataclass(frozen=True)
class Request:
    """A request as it passes the proxy; `number` counts from 1."""

    number: int
    method: str
    path: str

    def is_for(self, method: str, part: str) -> bool:
        return self.method == method and part in self.path


#: What a fault answers for a request that it concerns: "fail" (503), "forbid" (403), "forget" (200, and nothing is done), "damage" (another byte in the answer),
#: "drop" (the connection ends before the store is asked), "hold" (until `release`), "slow" (a moment before each MiB of the answer); None lets it pass.
Fault = Callable[[Request], str | None]


@dataclass
class FaultyStore:
    """The proxy: `fault` decides over each request, `after` is called when one has been done and not yet answered."""

    target: str
    fault: Fault = lambda _: None
    after: Callable[[Request], None] = lambda _: None
    seen: list[Request] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""

    def calm(self) -> None:
        """Let everything pass from now on, and forget what was seen."""
        self.fault, self.after = (lambda _: None), (lambda _: None)
        self.seen.clear()
        self.released.set()

    def note(self, method: str, path: str) -> Request:
        with self._lock:
            self.seen.append(Request(len(self.seen) + 1, method, path))
            return self.seen[-1]

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": self.url}

    def names(self, prefix: str = "") -> list[str]:
        """The names of the objects in the bucket, from the server itself."""
        return re.findall(r"<Key>([^<]*)</Key>", self.ask("GET", f"?list-type=2&prefix={prefix}").decode())

    def remove(self, key: str) -> None:
        """Delete an object behind everybody's back."""
        self.ask("DELETE", f"/{key}")

    def flip_a_bit(self, key: str) -> None:
        content = bytearray(self.ask("GET", f"/{key}"))
        content[len(content) // 2] ^= 1
        self.ask("PUT", f"/{key}", bytes(content))

    def ask(self, method: str, what: str = "", content: bytes | None = None) -> bytes:
        """Ask the server itself; `what` follows the bucket's name."""
        request = urllib.request.Request(
            f"{self.target}/{BUCKET}{what}", content, {"Authorization": SIGNED, "Content-Type": "application/octet-stream"}, method=method
        )
        with urllib.request.urlopen(request, timeout=HOLD_SECONDS) as answer:
            return bytes(answer.read())


@contextlib.contextmanager
def object_store() -> Iterator[FaultyStore]:
    """A server with the bucket BUCKET, and the proxy before it."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    store = FaultyStore(f"http://{host}:{port}")
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), _handler(store, host, port))
    proxy.daemon_threads = True
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    store.url = f"http://127.0.0.1:{proxy.server_address[1]}"
    try:
        store.ask("PUT")
        yield store
    finally:
        store.released.set()
        proxy.shutdown()
        proxy.server_close()
        server.stop()


def _say_nothing(*_: Any) -> None:
    """The test looks at `seen`."""


def _forward(handler: BaseHTTPRequestHandler, host: str, port: int, body: bytes) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=HOLD_SECONDS)
    headers = {name: value for name, value in handler.headers.items() if name.lower() not in ("host", "connection")}
    connection.request(handler.command, handler.path, body, headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), content


def _handler(store: FaultyStore, host: str, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            with contextlib.suppress(ConnectionError, TimeoutError):
                super().handle_one_request()

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = store.note(self.command, self.path)
            fault = store.fault(request)
            if fault == "hold":
                store.held.set()
                store.released.wait(HOLD_SECONDS)
            if fault == "drop":
                self.close_connection = True
                return
            if fault in ("fail", "forget", "forbid"):
                status = {"fail": 503, "forget": 200, "forbid": 403}[fault]
                self._answer(status, {"ETag": '"0"'} if fault == "forget" else {}, b"")
                return
            status, headers, content = _forward(self, host, port, body)
            store.after(request)
            if fault == "damage" and content:
                content = content[:-1] + bytes([content[-1] ^ 1])
            self._answer(status, headers, content, SLOW_SECONDS if fault == "slow" else 0.0)

        do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

        def _answer(self, status: int, headers: dict[str, str], content: bytes, wait_seconds: float = 0.0) -> None:
            self.send_response(status)
            skipped = ("content-length", "connection", "transfer-encoding", "server", "date")
            for name, value in headers.items():
                if name.lower() not in skipped:
                    self.send_header(name, value)
            length = headers.get("Content-Length") or headers.get("content-length") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            for start in range(0, len(content) if self.command != "HEAD" else 0, 1 << 20):
                store.released.wait(wait_seconds)
                self.wfile.write(content[start : start + (1 << 20)])

        log_message = _say_nothing  # type: ignore[assignment]

    return Handler
