"""An authority of a coordinator's own, and the certificate that it signs for the names of the machine: `--tls self-signed`.

Four files in one folder, for their owner only: `ca.pem`, `ca.key`, `server.pem` and `server.key`. The authority stays, since agents and the
command line have pinned it; the server's certificate is made anew before it ends, and when the machine gets another name or address.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from paceline.monitoring.files import make_private, write_durably
from paceline.tls.trust import TrustError

AUTHORITY_LIFE = timedelta(days=20 * 365)
SERVER_LIFE = timedelta(days=90)
#: The server's certificate is made anew when it has less than this left.
RENEW_BEFORE = timedelta(days=30)
#: Clocks of agents may be behind.
BACKDATED = timedelta(hours=1)
MOST_NAMES = 100


@dataclass(frozen=True)
class CertificateFiles:
    """The files of a folder that holds an authority and a server's certificate."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def authority_key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def server(self) -> Path:
        return self.folder / "server.pem"

    @property
    def server_key(self) -> Path:
        return self.folder / "server.key"


def ensure_certificate(folder: Path, names: Iterable[str], now: datetime) -> bool:
    """Make what is missing in `folder`, and renew what ends soon or lacks one of `names` (host names and addresses). Returns whether the
    server's certificate is a new one. Raises TrustError for a name that no certificate can have or for files that cannot be read."""
    files = CertificateFiles(folder)
    make_private(folder)
    with _locked(folder):
        if not files.authority.exists() or not files.authority_key.exists():
            _make_authority(files, now)
        if _is_good(files, names, now):
            return False
        _make_server(files, names, now)
        return True


def ends_at(certificate: Path) -> datetime:
    """When the certificate of a file ends. Raises TrustError where it is none."""
    return _read(certificate).not_valid_after_utc


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """A context that holds the folder: two coordinators that start at once make one authority."""
    with open(folder / "lock", "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make_authority(files: CertificateFiles, now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Paceline authority of {now:%Y-%m-%d}")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(name, name, key.public_key(), now, now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_key(files.authority_key, key)
    write_durably(files.authority, _pem(certificate), mode=0o600)


def _make_server(files: CertificateFiles, names: Iterable[str], now: datetime) -> None:
    authority, signer = _read(files.authority), _read_key(files.authority_key)
    if now >= authority.not_valid_after_utc:
        raise TrustError(f"{files.authority} has ended; delete {files.folder} for a new authority, which all agents have to join anew")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Paceline coordinator")]),
            authority.subject,
            key.public_key(),
            now,
            min(now + SERVER_LIFE, authority.not_valid_after_utc),
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_general_names(names)), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    _write_key(files.server_key, key)
    write_durably(files.server, _pem(certificate) + files.authority.read_bytes(), mode=0o600)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
    )


def _is_good(files: CertificateFiles, names: Iterable[str], now: datetime) -> bool:
    """Whether the server's certificate is of this authority and this key, has all names, and does not end soon."""
    if not files.server.exists() or not files.server_key.exists():
        return False
    try:
        certificate, authority = _read(files.server), _read(files.authority)
        certificate.verify_directly_issued_by(authority)
        same_key = certificate.public_key() == _read_key(files.server_key).public_key()
        held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (TrustError, ValueError, TypeError, x509.ExtensionNotFound) as error:
        raise TrustError(f"{files.server} is damaged ({error}); delete it and {files.server_key}, and start again") from error
    except InvalidSignature:  # the authority is another one
        return False
    late = certificate.not_valid_after_utc - now < min(RENEW_BEFORE, authority.not_valid_after_utc - now)
    return same_key and not late and certificate.not_valid_before_utc <= now and set(_general_names(names)) <= set(held)


def _general_names(names: Iterable[str]) -> list[x509.GeneralName]:
    wanted = list(dict.fromkeys(name.strip("[]") for name in names if name))
    if len(wanted) > MOST_NAMES:
        raise TrustError(f"a certificate for {len(wanted)} names was asked for, and {MOST_NAMES} are the most; name fewer hosts")
    return [_general_name(name) for name in wanted]


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name.encode("idna").decode("ascii"))
    except (UnicodeError, ValueError) as error:
        raise TrustError(f"{name!r} cannot be in a certificate ({error}); use a host name or an IP address") from error


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_durably(path, key.private_bytes(*form), mode=0o600)


def _read(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise TrustError(f"{path} is no certificate in PEM: {error}") from error


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise TrustError(f"{path} is no private key in PEM without a password: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TrustError(f"{path} is no key of an elliptic curve, as Paceline makes them; delete its folder's files to have new ones made")
    return key
