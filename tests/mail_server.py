"""An SMTP server over real sockets, for tests: it takes mail, refuses it or stalls, as it is told. RFC 5321 as far as smtplib speaks it."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage


@dataclass(frozen=True)
class ReceivedMail:
    sender: str
    recipients: list[str]
    raw: bytes

    @property
    def message(self) -> EmailMessage:
        return message_from_bytes(self.raw, policy=policy.default)


@dataclass
class MailServer:
    port: int = 0
    #: Replies to RCPT, by address; others are taken.
    refuses: dict[str, str] = field(default_factory=dict)
    #: Reply to the end of DATA.
    verdict: str = "250 queued"
    #: It closes the connection at the first word.
    hangs_up: bool = False
    received: list[ReceivedMail] = field(default_factory=list)


@contextmanager
def serve() -> Iterator[MailServer]:
    mail = MailServer()
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _door_of(mail))
    server.daemon_threads = True
    mail.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield mail
    server.shutdown()
    thread.join(timeout=5)
    server.server_close()


def _door_of(mail: MailServer) -> type[socketserver.StreamRequestHandler]:
    class MailDoor(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 test")
            if mail.hangs_up:
                return
            sender, recipients = "", list[str]()
            while line := self.rfile.readline().decode().strip():
                verb = line.split(" ")[0].split(":")[0].upper()
                if verb in ("EHLO", "HELO", "NOOP", "RSET"):
                    self._say("250 test")
                elif verb == "MAIL":
                    sender = line.partition("<")[2].partition(">")[0]
                    self._say("250 ok")
                elif verb == "RCPT":
                    who = line.partition("<")[2].partition(">")[0]
                    self._say(mail.refuses.get(who, "250 ok"))
                    recipients += [who] if who not in mail.refuses else []
                elif verb == "DATA":
                    self._say("354 go on")
                    mail.received.append(ReceivedMail(sender, recipients, self._data()))
                    if not mail.verdict.startswith("2"):
                        mail.received.pop()
                    self._say(mail.verdict)
                elif verb == "QUIT":
                    self._say("221 bye")
                    return
                else:
                    self._say("502 not known")

        def _data(self) -> bytes:
            lines = list[bytes]()
            while (line := self.rfile.readline()) != b".\r\n":
                lines.append(line[1:] if line.startswith(b"..") else line)
            return b"".join(lines)

        def _say(self, reply: str) -> None:
            self.wfile.write(f"{reply}\r\n".encode())

    return MailDoor
