"""A given certificate: whether it fits its key and the name, and who has to be believed for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paceline.tls.authority import SERVER_LIFE, CertificateFiles, ensure_certificate
from paceline.tls.pairs import required_authority, server_context
from paceline.tls.trust import TrustError, fingerprint_of


def files_of(folder: Path, now: datetime | None = None, *names: str) -> CertificateFiles:
    ensure_certificate(folder, names or ("head.lan",), now or datetime.now(UTC))
    return CertificateFiles(folder)


def test_the_last_certificate_of_a_private_chain_has_to_be_pinned(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    authority = required_authority(files.server, files.server_key, "head.lan")
    assert authority is not None
    assert fingerprint_of(authority) == fingerprint_of(files.authority.read_text())


def test_a_certificate_that_stands_alone_is_pinned_itself(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    alone = tmp_path / "alone.pem"
    alone.write_text(files.server.read_text().split("-----END CERTIFICATE-----\n")[0] + "-----END CERTIFICATE-----\n")
    authority = required_authority(alone, files.server_key, "head.lan")
    assert authority is not None
    assert fingerprint_of(authority) == fingerprint_of(alone.read_text())


def test_a_certificate_of_another_name_is_refused_before_anything_starts(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    with pytest.raises(TrustError, match=r"for other\.lan: .*(Hostname mismatch|not valid for)"):
        required_authority(files.server, files.server_key, "other.lan")


def test_a_certificate_that_has_ended_is_refused(tmp_path: Path) -> None:
    files = files_of(tmp_path, datetime.now(UTC) - SERVER_LIFE - timedelta(days=1))
    with pytest.raises(TrustError, match="expired"):
        required_authority(files.server, files.server_key, "head.lan")


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    one, two = files_of(tmp_path / "one"), files_of(tmp_path / "two")
    with pytest.raises(TrustError, match="no pair"):
        server_context(one.server, two.server_key)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    with pytest.raises(TrustError, match=r"nowhere\.key is no file"):
        server_context(files.server, tmp_path / "nowhere.key")
