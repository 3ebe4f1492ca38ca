"""An SSH server of a test's own, of Debian's OpenSSH, on a loopback address with a home of its own."""

from __future__ import annotations

import getpass
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.waiting import wait_until

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
needs_sshd = pytest.mark.skipif(not Path(SSHD).exists(), reason="NO SSHD: Debian's package openssh-server is not installed")


@dataclass(frozen=True)
class SshServer:
    """Where it listens, what it shows, and the key that it lets in."""

    address: str
    port: int
    fingerprint: str
    key_file: Path
    home: Path

    @property
    def host(self) -> dict[str, object]:
        """The host as a pool lists it."""
        return {"host": self.address, "port": self.port, "user": getpass.getuser(), "host_key": self.fingerprint}


def make_key(path: Path) -> str:
    """Make a key. Returns its fingerprint."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return subprocess.run(["ssh-keygen", "-lf", str(path)], check=True, capture_output=True, text=True).stdout.split()[1]


@contextmanager
def ssh_server(folder: Path, address: str) -> Iterator[SshServer]:
    """A context in which a server runs."""
    home = folder / "home"
    home.mkdir(parents=True)
    fingerprint, _ = make_key(folder / "host_key"), make_key(folder / "user_key")
    if getpass.getuser() == "root":
        Path("/run/sshd").mkdir(exist_ok=True)
    port = free_port()
    lines = [f"Port {port}", f"ListenAddress {address}", f"HostKey {folder}/host_key", f"AuthorizedKeysFile {folder}/user_key.pub"]
    lines += ["StrictModes no", "UsePAM no", "PasswordAuthentication no", "PermitRootLogin yes", "PidFile none", f"SetEnv HOME={home}"]
    (folder / "sshd_config").write_text("\n".join(lines) + "\n")
    log = folder / "sshd.log"
    server = subprocess.Popen([SSHD, "-D", "-f", str(folder / "sshd_config"), "-E", str(log)])
    try:
        wait_until(lambda: log.exists() and "listening" in log.read_text(), "the SSH server listens", seconds=20)
        yield SshServer(address, port, fingerprint, folder / "user_key", home)
    finally:
        server.terminate()
        server.wait(20)
