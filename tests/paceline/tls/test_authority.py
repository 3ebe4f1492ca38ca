"""A coordinator's own authority: made once, its server's certificate made anew in time, everything for its owner only."""

from __future__ import annotations

import ipaddress
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from paceline.tls.authority import RENEW_BEFORE, SERVER_LIFE, CertificateFiles, ends_at, ensure_certificate
from paceline.tls.trust import TrustError, fingerprint_of

NAMES = ["head.lan", "10.0.0.1"]
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def made(folder: Path) -> CertificateFiles:
    assert ensure_certificate(folder, NAMES, NOW)
    return CertificateFiles(folder)


def test_all_files_are_for_their_owner_only(tmp_path: Path) -> None:
    made(tmp_path / "tls")
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()}
    assert modes == dict.fromkeys(("ca.pem", "ca.key", "server.pem", "server.key", "lock"), 0o600)


def test_the_certificate_has_the_names_and_is_of_the_authority(tmp_path: Path) -> None:
    files = made(tmp_path)
    server, authority = (x509.load_pem_x509_certificate(path.read_bytes()) for path in (files.server, files.authority))
    server.verify_directly_issued_by(authority)
    held = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert held.get_values_for_type(x509.DNSName) == ["head.lan"]
    assert held.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.0.0.1")]
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0


def test_it_is_renewed_in_time_and_its_authority_stays(tmp_path: Path) -> None:
    files = made(tmp_path)
    pinned, first = fingerprint_of(files.authority.read_text()), files.server.read_bytes()
    just_before = NOW + SERVER_LIFE - RENEW_BEFORE - timedelta(hours=1)
    assert not ensure_certificate(tmp_path, NAMES, just_before)
    assert files.server.read_bytes() == first
    assert ensure_certificate(tmp_path, NAMES, just_before + timedelta(hours=2))
    assert ends_at(files.server) > NOW + SERVER_LIFE
    assert fingerprint_of(files.authority.read_text()) == pinned


def test_a_new_address_of_the_machine_gets_a_certificate_and_a_lost_one_does_not(tmp_path: Path) -> None:
    made(tmp_path)
    assert not ensure_certificate(tmp_path, NAMES[:1], NOW)
    assert ensure_certificate(tmp_path, [*NAMES, "10.0.0.2"], NOW)
    assert not ensure_certificate(tmp_path, [*NAMES, "10.0.0.2"], NOW)


def test_a_key_that_was_written_without_its_certificate_is_replaced_with_it(tmp_path: Path) -> None:
    """Killed between the two files."""
    files, other = made(tmp_path / "one"), made(tmp_path / "two")
    files.server_key.write_bytes(other.server_key.read_bytes())
    assert ensure_certificate(files.folder, NAMES, NOW)
    assert not ensure_certificate(files.folder, NAMES, NOW)


def test_a_certificate_of_another_authority_is_replaced(tmp_path: Path) -> None:
    files, other = made(tmp_path / "one"), made(tmp_path / "two")
    for own, foreign in ((files.server, other.server), (files.server_key, other.server_key)):
        own.write_bytes(foreign.read_bytes())
    assert ensure_certificate(files.folder, NAMES, NOW)


def test_a_certificate_never_outlives_its_authority(tmp_path: Path) -> None:
    files = made(tmp_path)
    end = ends_at(files.authority)
    assert ensure_certificate(tmp_path, NAMES, end - timedelta(days=5))
    assert ends_at(files.server) == end
    assert not ensure_certificate(tmp_path, NAMES, end - timedelta(days=5)), "renewing gains nothing any more"
    files.server.unlink()
    with pytest.raises(TrustError, match="has ended"):
        ensure_certificate(tmp_path, NAMES, end)


@pytest.mark.parametrize("name", ["a" * 64 + ".example", "two..dots"])
def test_a_name_that_no_certificate_can_have_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(TrustError, match="cannot be in a certificate"):
        ensure_certificate(tmp_path, [name], NOW)


def test_files_that_cannot_be_read_are_named_with_the_way_out(tmp_path: Path) -> None:
    files = made(tmp_path)
    files.server.write_text("nothing")
    with pytest.raises(TrustError, match=r"server\.pem is damaged .* delete it"):
        ensure_certificate(tmp_path, NAMES, NOW)
    files.authority_key.write_text("nothing")
    files.server.unlink()
    with pytest.raises(TrustError, match=r"ca\.key is no private key"):
        ensure_certificate(tmp_path, NAMES, NOW)
