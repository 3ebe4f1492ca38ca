"""A blob store as Azure's: Azurite, Microsoft's own emulator, over TLS with a container."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import pytest

from paceline.tls.authority import CertificateFiles, ensure_certificate
from tests.ports import HOST, free_port
from tests.waiting import wait_until

AZURITE = os.environ.get("PACELINE_TEST_AZURITE") or shutil.which("azurite-blob")
needs_azurite = pytest.mark.skipif(
    AZURITE is None, reason="NO AZURITE: 'npm install azurite', and set PACELINE_TEST_AZURITE to its azurite-blob"
)
CONTAINER = "container"
#: Azurite's account, and the key that its documentation names.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-08-06"


@dataclass(frozen=True)
class AzureStore:
    """Where it listens, and the file of the authority that signed its certificate."""

    port: int
    authority: Path

    @property
    def options(self) -> dict[str, str]:
        """The options of a job."""
        return {"endpoint": f"https://{HOST}:{self.port}/{ACCOUNT}", "account": ACCOUNT}

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process that uses it."""
        return {"AZURE_STORAGE_ACCOUNT_KEY": KEY, "SSL_CERT_FILE": str(self.authority)}

    def make_container(self) -> None:
        date = format_datetime(datetime.now(UTC), usegmt=True)
        signed = [
            "PUT",
            *[""] * 11,
            f"x-ms-date:{date}",
            f"x-ms-version:{VERSION}",
            f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}",
            "restype:container",
        ]
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), "\n".join(signed).encode(), hashlib.sha256)).decode()
        headers = {"x-ms-date": date, "x-ms-version": VERSION, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
        request = urllib.request.Request(f"{self.options['endpoint']}/{CONTAINER}?restype=container", headers=headers, method="PUT")
        with urllib.request.urlopen(request, timeout=20, context=ssl.create_default_context(cafile=str(self.authority))):
            pass


@contextmanager
def azure_store(folder: Path) -> Iterator[AzureStore]:
    """A context in which a store runs whose data is in `folder`."""
    assert AZURITE is not None
    certificates, port, log = CertificateFiles(folder / "tls"), free_port(), folder / "log"
    ensure_certificate(certificates.folder, [HOST], datetime.now(UTC))
    words = ["--blobHost", HOST, "--blobPort", str(port), "--location", str(folder / "data"), "--skipApiVersionCheck", "--disableTelemetry"]
    words += ["--cert", str(certificates.server), "--key", str(certificates.server_key), "--silent"]
    with log.open("wb") as output, subprocess.Popen([AZURITE, *words], stdout=output, stderr=output) as server:
        try:
            wait_until(lambda: "successfully listens" in log.read_text(), "Azurite listens", seconds=60)
            store = AzureStore(port, certificates.authority)
            store.make_container()
            yield store
        finally:
            server.terminate()
            server.wait(20)
