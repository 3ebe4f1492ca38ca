"""Sends notifications over HTTP: to a webhook, signed, or to Slack and what takes its form."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import json
import math
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from paceline.api.services.notifications import outcomes
from paceline.api.services.notifications.addresses import (
    AllowedTargets,
    HostNotFoundError,
    TargetRefusedError,
    checked_addresses,
    host_of,
    target_of,
)
from paceline.api.services.notifications.messages import in_one_line
from paceline.api.services.notifications.outcomes import AttemptOutcome
from paceline.version import version

CONNECT_SECONDS, TOTAL_SECONDS = 5.0, 10.0
#: How many bytes of an answer's body are read, and how many characters of it are shown.
READ_BYTES, SHOWN_CHARACTERS = 2048, 200
SIGNATURE, DELIVERY, EVENT = "Paceline-Signature", "Paceline-Delivery", "Paceline-Event"
SECRET_PREFIX = "whsec_"


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """The signature header: HMAC-SHA256 over `timestamp.body`, in hex."""
    signed = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={signed}"


async def post(
    address: str, document: dict[str, Any], allowed: AllowedTargets, *, delivery_id: str, event: str, secret: str | None, now: datetime
) -> AttemptOutcome:
    """Send a document once. Nothing raises: whatever goes wrong is the outcome."""
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"Paceline/{version()}",
        "Idempotency-Key": delivery_id,
        DELIVERY: delivery_id,
        EVENT: event,
    }
    if secret:
        headers[SIGNATURE] = signature(secret, int(now.timestamp()), body)
    try:
        async with asyncio.timeout(TOTAL_SECONDS):
            url = target_of(address)
            return await _send(url, await checked_addresses(url, allowed), body, headers, now)
    except TargetRefusedError as error:
        return outcomes.failed(f"refused: {error}", again=False)
    except HostNotFoundError as error:
        return outcomes.failed(str(error), again=True)
    except TimeoutError:
        return outcomes.failed(f"no answer within {TOTAL_SECONDS:.0f} s", again=True)
    except (httpx.HTTPError, OSError) as error:
        return outcomes.failed(in_one_line(f"no answer: {error or type(error).__name__}", 300), again=True)


async def _send(url: httpx.URL, addresses: list[str], body: bytes, headers: dict[str, str], now: datetime) -> AttemptOutcome:
    """Send to the first address that takes a connection. The name is still what the certificate must be for."""
    context = await asyncio.to_thread(_tls_context)
    timeout = httpx.Timeout(TOTAL_SECONDS, connect=CONNECT_SECONDS)
    headers = {**headers, "Host": url.netloc.decode()}
    # Proxies of the environment would resolve the name anew, so none is used.
    async with httpx.AsyncClient(verify=context, trust_env=False, follow_redirects=False, timeout=timeout) as client:
        for address in addresses[:-1]:
            try:
                return await _send_to(client, url, address, body, headers, now)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await _send_to(client, url, addresses[-1], body, headers, now)


async def _send_to(
    client: httpx.AsyncClient, url: httpx.URL, address: str, body: bytes, headers: dict[str, str], now: datetime
) -> AttemptOutcome:
    there = url.copy_with(host=address)
    async with client.stream("POST", there, content=body, headers=headers, extensions={"sni_hostname": host_of(url)}) as response:
        return outcome_of(response.status_code, response.headers, await _beginning(response), now)


async def _beginning(response: httpx.Response) -> str:
    """The first bytes of the answer as text, which may be endless or packed to become so."""
    found = b""
    async for chunk in response.aiter_raw():
        found += chunk
        if len(found) >= READ_BYTES:
            break
    packed = response.headers.get("content-encoding", "identity") != "identity"
    return "" if packed else in_one_line(found[:READ_BYTES].decode(errors="replace"), SHOWN_CHARACTERS)


def outcome_of(status: int, headers: httpx.Headers, said: str, now: datetime) -> AttemptOutcome:
    """2xx is delivered; 408, 429 and 5xx are worth another attempt; everything else ends."""
    answer = f"HTTP {status}{f': {said}' if said else ''}"
    if 200 <= status < 300:
        return outcomes.delivered(answer)
    if 300 <= status < 400:
        return outcomes.failed(f"HTTP {status}: redirects are not followed; give the address that it leads to", again=False)
    again = status in (408, 429) or status >= 500
    return outcomes.failed(answer, again=again, retry_after=retry_after(headers.get("retry-after"), now) if again else None)


def retry_after(text: str | None, now: datetime) -> float | None:
    """Seconds of a Retry-After header: a number, or a date (RFC 9110). None: there is none that can be read."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = parsedate_to_datetime(text)
        except ValueError:
            return None
        seconds = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


@functools.cache
def _tls_context() -> ssl.SSLContext:
    """Made once: reading all certificates takes a while."""
    return httpx.create_ssl_context()
