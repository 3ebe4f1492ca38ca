"""An SSH server of a test's own, of Debian's OpenSSH, on a loopback address with a home of its own."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.ports import free_port
from tests.waiting import wait_until

SSHD = os.environ.get("PACELINE_TEST_SSHD") or shutil.which("sshd") or "/usr/sbin/sshd"
needs_sshd = pytest.mark.skipif(not Path(SSHD).exists(), reason="NO SSHD: Debian's package openssh-server is not installed")


@dataclass(frozen=True)
class HostKey:
    """One key of a server: its fingerprint, and its public half as known_hosts has it."""

    fingerprint: str
    public: str


@dataclass(frozen=True)
class SshServer:
    """Where it listens, the keys by which it is known, and the key that it lets in."""

    address: str
    port: int
    host_keys: Mapping[str, HostKey]
    key_file: Path
    home: Path

    @property
    def fingerprint(self) -> str:
        """The fingerprint that docs/nodes.md has people compare."""
        return self.host_keys["ed25519"].fingerprint

    @property
    def host(self) -> dict[str, object]:
        """The host as a pool lists it."""
        return {"host": self.address, "port": self.port, "user": getpass.getuser(), "host_key": self.fingerprint}


#: Debian's servers have a key of each of these kinds.
HOST_KEY_KINDS = ("rsa", "ecdsa", "ed25519")


def make_key(path: Path, kind: str = "ed25519") -> str:
    """Make a key. Returns its fingerprint."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(path)], check=True)
    return subprocess.run(["ssh-keygen", "-lf", str(path)], check=True, capture_output=True, text=True).stdout.split()[1]


def _host_key(path: Path, kind: str) -> HostKey:
    fingerprint = make_key(path, kind)
    return HostKey(fingerprint, " ".join(path.with_suffix(".pub").read_text().split()[:2]))


@contextmanager
def ssh_server(folder: Path, address: str, kinds: Sequence[str] = HOST_KEY_KINDS, within: Sequence[str] = ()) -> Iterator[SshServer]:
    """A context in which a server with a host key of each kind runs; `within` is a command that runs it, in a network namespace for example.

    Agents that a failed test has left in its home end with it."""
    home = folder / "home"
    home.mkdir(parents=True)
    make_key(folder / "user_key")
    host_keys = {kind: _host_key(folder / f"ssh_host_{kind}_key", kind) for kind in kinds}
    if getpass.getuser() == "root":
        Path("/run/sshd").mkdir(exist_ok=True)
    port = free_port()
    lines = [f"Port {port}", f"ListenAddress {address}", f"AuthorizedKeysFile {folder}/user_key.pub"]
    lines += [f"HostKey {folder}/ssh_host_{kind}_key" for kind in kinds]
    lines += ["StrictModes no", "UsePAM no", "PasswordAuthentication no", "PermitRootLogin yes", "PidFile none", f"SetEnv HOME={home}"]
    (folder / "sshd_config").write_text("\n".join(lines) + "\n")
    log = folder / "sshd.log"
    server = subprocess.Popen([*within, SSHD, "-D", "-f", str(folder / "sshd_config"), "-E", str(log)])
    try:
        wait_until(lambda: log.exists() and "listening" in log.read_text(), "the SSH server listens", seconds=20)
        yield SshServer(address, port, host_keys, folder / "user_key", home)
    finally:
        server.terminate()
        server.wait(20)
        _end_agents(home)


def _end_agents(home: Path) -> None:
    """Kill what runs for nodes of this home: agents, their spawners and ranks."""
    for process in psutil.process_iter(["cmdline"]):
        if any(word.startswith(f"{home}/.paceline/nodes/") for word in process.info["cmdline"] or ()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
