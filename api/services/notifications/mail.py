"""Sends notifications as e-mail over SMTP, in a thread: plain text, one message to all recipients of a channel."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from collections.abc import Sequence
from datetime import datetime
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from paceline.api.services.notifications import messages, outcomes
from paceline.api.services.notifications.messages import Notification, in_one_line
from paceline.api.services.notifications.outcomes import AttemptOutcome
from paceline.api.settings import Settings

OPERATION_SECONDS, TOTAL_SECONDS = 8.0, 20.0
LONGEST_SUBJECT = 180
#: Where mail servers take messages from programs: with TLS from the first byte (RFC 8314), and with STARTTLS (RFC 6409).
TLS_PORT, SUBMISSION_PORT = 465, 587


def sender_of(settings: Settings) -> str:
    return settings.smtp_from or settings.smtp_user or "paceline@localhost"


def port_of(settings: Settings) -> int:
    """The port of the mail server: the one that is set, else the usual one of `smtp_security`."""
    return settings.smtp_port or (TLS_PORT if settings.smtp_security == "tls" else SUBMISSION_PORT)


def compose(settings: Settings, recipients: Sequence[str], message: Notification, delivery_id: str, now: datetime) -> EmailMessage:
    """The mail of a notification. What users have written stands in it without line breaks, so that it cannot add headers."""
    sender = sender_of(settings)
    mail = EmailMessage(policy=SMTP)
    mail["Subject"] = in_one_line(f"[Paceline] {message.title}", LONGEST_SUBJECT)
    mail["From"] = _from(settings)
    mail["To"] = tuple(Address(addr_spec=each) for each in recipients)
    mail["Date"] = format_datetime(now)
    mail["Message-ID"] = f"<{delivery_id}@{sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office answers
    mail.set_content(f"{message.title}\n\n{messages.plain(message)}\n")
    return mail


def _from(settings: Settings) -> Address:
    """The sender as a header has it. Raises ValueError for one that is no address, of which `email` raises many errors."""
    try:
        return Address("Paceline", addr_spec=sender_of(settings))
    except (ValueError, MessageError, IndexError, AttributeError) as error:
        wrong, like = f"PACELINE_SMTP_FROM={settings.smtp_from}", "is no e-mail address such as ops@example.org"
        raise ValueError(
            f"{wrong} {like}" if settings.smtp_from else f"PACELINE_SMTP_USER {like}; set PACELINE_SMTP_FROM to one"
        ) from error


async def send(settings: Settings, recipients: Sequence[str], message: Notification, delivery_id: str, now: datetime) -> AttemptOutcome:
    """Send a mail once. Nothing raises: whatever goes wrong is the outcome."""
    if not settings.smtp_host:
        return outcomes.failed("no mail server is set: PACELINE_SMTP_HOST is empty where the coordinator starts", again=True)
    try:
        mail = compose(settings, recipients, message, delivery_id, now)
        async with asyncio.timeout(TOTAL_SECONDS):
            return await asyncio.to_thread(_deliver, settings, mail, list(recipients))
    except TimeoutError:
        return outcomes.failed(f"the mail server has not taken it within {TOTAL_SECONDS:.0f} s", again=True)
    except (ValueError, UnicodeError) as error:
        return outcomes.failed(in_one_line(f"the mail cannot be written: {error}", 300), again=False)


def _deliver(settings: Settings, mail: EmailMessage, recipients: list[str]) -> AttemptOutcome:
    try:
        with _connected(settings) as server:
            if settings.smtp_user:
                server.login(settings.smtp_user, settings.smtp_password.get_secret_value())
            refused = server.send_message(mail, sender_of(settings), recipients)
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        words = "; ".join(f"{who}: {code} {_text(said)}" for who, (code, said) in error.recipients.items())
        return outcomes.failed(in_one_line(f"refused: {words}", 300), again=any(400 <= code < 500 for code in codes))
    except smtplib.SMTPResponseException as error:
        return outcomes.failed(in_one_line(f"SMTP {error.smtp_code}: {_text(error.smtp_error)}", 300), again=error.smtp_code < 500)
    except smtplib.SMTPNotSupportedError as error:
        return outcomes.failed(in_one_line(f"the mail server cannot do what the settings ask for: {error}", 300), again=False)
    except (smtplib.SMTPException, OSError) as error:
        return outcomes.failed(in_one_line(f"the mail server does not answer: {error or type(error).__name__}", 300), again=True)
    if refused:
        return outcomes.delivered(f"taken, but not for {', '.join(sorted(refused))}")
    return outcomes.delivered(f"taken by {settings.smtp_host}")


def _connected(settings: Settings) -> smtplib.SMTP:
    host, port = settings.smtp_host, port_of(settings)
    if settings.smtp_security == "tls":
        return smtplib.SMTP_SSL(host, port, timeout=OPERATION_SECONDS, context=ssl.create_default_context())
    server = smtplib.SMTP(host, port, timeout=OPERATION_SECONDS)
    if settings.smtp_security == "starttls":
        try:
            server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
    return server


def _text(said: bytes | str) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said
