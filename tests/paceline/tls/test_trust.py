"""Fingerprints, tokens that carry them, and which addresses are readable on their way."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from paceline.tls.authority import CertificateFiles, ensure_certificate
from paceline.tls.trust import (
    TrustError,
    context_of,
    fingerprint_of,
    parse_fingerprint,
    require_fingerprint,
    split_token,
    travels_readable,
    with_fingerprint,
)

DIGITS = "0123456789abcdef" * 4
FINGERPRINT = f"sha256:{DIGITS}"


@pytest.mark.parametrize(
    "text",
    [
        FINGERPRINT,
        DIGITS.upper(),
        ":".join(DIGITS[place : place + 2] for place in range(0, 64, 2)),
        "SHA256 Fingerprint=" + ":".join(DIGITS.upper()[place : place + 2] for place in range(0, 64, 2)),
        f" {FINGERPRINT}\n",
    ],
    ids=["ours", "capitals", "colons", "openssl", "copied"],
)
def test_a_fingerprint_is_understood_as_people_copy_it(text: str) -> None:
    assert parse_fingerprint(text) == FINGERPRINT


@pytest.mark.parametrize("text", ["", "sha256:", DIGITS[:-1], DIGITS + "0", "md5:" + DIGITS, "g" * 64])
def test_what_is_no_fingerprint_is_named(text: str) -> None:
    with pytest.raises(TrustError, match="is no SHA-256 fingerprint"):
        parse_fingerprint(text)


def test_a_token_carries_a_fingerprint_there_and_back() -> None:
    token = with_fingerprint("pj_secret-with_signs", FINGERPRINT)
    assert token.startswith("pj_secret-with_signs.")
    assert split_token(token) == ("pj_secret-with_signs", FINGERPRINT)
    assert split_token("pj_of_a_plain_coordinator") == ("pj_of_a_plain_coordinator", None)


@pytest.mark.parametrize("cut", [1, 2, 10, 42])
def test_a_token_that_was_cut_off_is_refused_instead_of_believed(cut: int) -> None:
    with pytest.raises(TrustError, match="cut off or damaged"):
        split_token(with_fingerprint("pj_secret", FINGERPRINT)[:-cut])


def test_another_authority_is_refused_with_both_fingerprints(tmp_path: Path) -> None:
    ensure_certificate(tmp_path, ["localhost"], datetime.now(UTC))
    authority = CertificateFiles(tmp_path).authority.read_text()
    require_fingerprint(authority, fingerprint_of(authority), "https://here")
    with pytest.raises(TrustError, match=f"{fingerprint_of(authority)}, and {FINGERPRINT} was expected"):
        require_fingerprint(authority, FINGERPRINT, "https://here")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----",
    ],
    ids=["empty", "text", "other bytes", "no base64"],
)
def test_what_is_no_certificate_is_believed_by_nothing(text: str) -> None:
    with pytest.raises(TrustError, match="no certificate in PEM"):
        context_of(text)


@pytest.mark.parametrize(
    ("server", "readable"),
    [
        ("http://10.0.0.1:8000", True),
        ("http://train.example", True),
        ("http://localhost.example:8000", True),
        ("http://127.0.0.1:8000", False),
        ("http://127.9.9.9:8000", False),
        ("http://localhost:8000", False),
        ("http://[::1]:8000", False),
        ("https://train.example", False),
    ],
)
def test_keys_travel_readable_over_plain_http_to_another_machine(server: str, readable: bool) -> None:
    assert travels_readable(server) is readable
