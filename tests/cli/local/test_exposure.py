"""What `up --host` takes, and what it refuses with a way out."""

from __future__ import annotations

import ipaddress
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paceline.cli.errors import CliError, UsageProblem
from paceline.cli.local import exposure
from paceline.cli.local.exposure import Exposure, addresses, own_address, remember, remembered, requested_exposure
from paceline.cli.local.layout import Layout
from paceline.tls.authority import CertificateFiles, ensure_certificate
from paceline.tls.trust import fingerprint_of

OWN = "192.0.2.5"


@pytest.fixture
def one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposure, "addresses", lambda: [OWN])


def test_nothing_asked_for_is_loopback_only() -> None:
    assert requested_exposure(None, None, insecure=False) is None


def test_plain_http_needs_to_be_said(one_address: None) -> None:
    with pytest.raises(
        UsageProblem, match=r"--host 192.0.2.5 answers other machines over plain http: keys, .* would travel readable"
    ) as refused:
        requested_exposure(OWN, None, insecure=False)
    assert "--insecure-public" in str(refused.value.hint)
    assert f"--public-url https://{OWN}" in str(refused.value.hint)
    assert requested_exposure(OWN, None, insecure=True) == Exposure(OWN, OWN)


@pytest.mark.parametrize(
    ("host", "url", "insecure", "words"),
    [
        (OWN, "https://train.example", True, "for TLS in front, --insecure-public for none"),
        (OWN, "http://train.example", False, "--public-url http://train.example is not an https address"),
        (None, "https://train.example", False, "there is no --host"),
        (None, None, True, "there is no --host"),
        ("127.0.0.1", None, True, "127.0.0.1 is no address under which other machines reach this one"),
        ("localhost", None, True, r"localhost \(127.0.0.1\) is no address"),
        ("198.51.100.7", None, True, "198.51.100.7: no network interface of this machine has this address"),
        ("no-such-name.invalid", None, True, "no-such-name.invalid has no IPv4 address here"),
    ],
)
def test_what_cannot_work_is_refused(one_address: None, host: str | None, url: str | None, insecure: bool, words: str) -> None:
    with pytest.raises(UsageProblem, match=words) as refused:
        requested_exposure(host, url, insecure)
    assert refused.value.hint


def test_every_address_is_listened_on_and_the_main_one_is_told(one_address: None, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = requested_exposure("0.0.0.0", None, insecure=False, tls="self-signed")
    assert opened is not None
    assert (opened.listens_on, opened.public_url(8000)) == (("127.0.0.1", OWN), f"https://{OWN}:8000")
    assert opened.arguments == ["--tls", "self-signed"]
    assert opened.environment(8000)["PACELINE_INSECURE_PUBLIC"] == "false"
    monkeypatch.setattr(exposure, "addresses", list)
    with pytest.raises(UsageProblem, match="no network besides loopback"):
        requested_exposure("0.0.0.0", None, insecure=False, tls="self-signed")


@pytest.mark.parametrize(
    ("tls", "key", "options", "words"),
    [
        ("cert.pem", None, {}, "--tls cert.pem lacks its key"),
        ("self-signed", "key.pem", {}, "key.pem stands alone"),
        (None, "key.pem", {}, "key.pem stands alone"),
        ("no-cert.pem", "no-key.pem", {}, "no-cert.pem is no file"),
        ("self-signed", None, {"insecure": True}, "--tls is for TLS here"),
        ("self-signed", None, {"public_url": "https://train.example"}, "--tls is for TLS here"),
        ("self-signed", None, {"host": None}, "there is no --host"),
    ],
)
def test_tls_that_cannot_work_is_refused(
    one_address: None, tls: str | None, key: str | None, options: dict[str, object], words: str
) -> None:
    asked = {"host": OWN, "public_url": None, "insecure": False} | options
    with pytest.raises(UsageProblem, match=words) as refused:
        requested_exposure(**asked, tls=tls, tls_key=Path(key) if key else None)  # type: ignore[arg-type]
    assert refused.value.hint


def test_a_given_certificate_is_looked_at_before_anything_starts(one_address: None, tmp_path: Path) -> None:
    ensure_certificate(tmp_path, [OWN], datetime.now(UTC))
    files = CertificateFiles(tmp_path)
    opened = requested_exposure(OWN, None, insecure=False, tls=str(files.server), tls_key=files.server_key)
    assert opened is not None
    assert fingerprint_of(opened.authority) == fingerprint_of(files.authority.read_text())
    with pytest.raises(UsageProblem, match=r"no client could believe .* for other\.lan"):
        exposure._with_tls("other.lan", OWN, str(files.server), files.server_key)


def test_refusals_name_the_addresses_that_there_are(one_address: None) -> None:
    with pytest.raises(UsageProblem) as refused:
        own_address("127.0.0.1")
    assert refused.value.hint == f"name an address of this machine with --host: {OWN}"


def test_addresses_are_this_machines_and_not_loopback() -> None:
    for address in addresses():
        assert not ipaddress.ip_address(address).is_loopback
        with socket.socket() as probe:
            probe.bind((address, 0))


def test_plain_http_listens_on_loopback_and_one_address_and_no_other() -> None:
    plain = Exposure("head.lan", OWN)
    assert plain.listens_on == ("127.0.0.1", OWN)
    assert plain.environment(8000) == {
        "PACELINE_ALLOWED_HOSTS": f"head.lan,{OWN}",
        "PACELINE_PUBLIC_URL": "http://head.lan:8000",
        "PACELINE_INSECURE_PUBLIC": "true",
    }
    assert "192.0.2.5 port 8000, plain http: keys travel readable" in plain.description(8000)


def test_behind_tls_only_loopback_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_ALLOWED_HOSTS", "old.example, train.example")
    behind = Exposure(OWN, OWN, "https://train.example")
    assert behind.listens_on == ("127.0.0.1",)
    assert behind.environment(8000) == {
        "PACELINE_ALLOWED_HOSTS": f"old.example,train.example,{OWN}",
        "PACELINE_PUBLIC_URL": "https://train.example",
        "PACELINE_INSECURE_PUBLIC": "false",
    }


def test_it_is_remembered_until_down(tmp_path: Path) -> None:
    layout = Layout.at(tmp_path)
    layout.create()
    assert remembered(layout) is None
    remember(layout, Exposure("head.lan", OWN))
    assert remembered(layout) == Exposure("head.lan", OWN)
    layout.exposure.write_text("{")
    with pytest.raises(CliError, match="is damaged"):
        remembered(layout)
    remember(layout, None)
    assert remembered(layout) is None
