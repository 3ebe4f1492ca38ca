"""The proxy's configuration, as nginx reads it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.compose_rig import nginx_configuration

SECONDS = 60


def test_nginx_accepts_the_configuration(tmp_path: Path) -> None:
    """Whole where nginx knows `resolve`, as that of the compose file does; Debian's of 2023 is older."""
    nginx, openssl = shutil.which("nginx"), shutil.which("openssl")
    if nginx is None or openssl is None:
        pytest.skip("there is no nginx, or no openssl to make it a certificate")
    version = re.search(r"nginx/(\d+)\.(\d+)\.(\d+)", subprocess.run([nginx, "-v"], capture_output=True, text=True, timeout=SECONDS).stderr)
    assert version is not None
    resolves = tuple(map(int, version.groups())) >= (1, 27, 3)
    pair = ["-keyout", str(tmp_path / "server.key"), "-out", str(tmp_path / "server.pem")]
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", *pair],
        check=True,
        capture_output=True,
        timeout=SECONDS,
    )
    own = nginx_configuration(tmp_path, tmp_path, resolves=resolves)
    if not resolves:
        own.write_text(re.sub(r"coordinator-[12]:", "127.0.0.1:", own.read_text()))
    done = subprocess.run([nginx, "-t", "-p", str(tmp_path), "-c", str(own)], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
