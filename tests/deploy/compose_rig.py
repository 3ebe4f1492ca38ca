"""The services of compose.yaml without a container engine: roots that `scripts.images` builds from the Dockerfile, and Debian's PostgreSQL, Redis and nginx in
the place of their images; each in a network namespace of its own, and found by its name.

Not as with Docker: all services are on one bridge, and what Debian's three programs see of the machine is not confined.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import psutil
import yaml

from scripts.faults.network import Network
from scripts.images.roots import ImageBuilder, Root, command_in
from scripts.services import initialize_postgres, postgres_programs
from tests.e2e.stack import wait_until

ROOT = Path(__file__).parents[2]
CABLE = "eth0"
USER = 10001
EXEC_SECONDS = 60
#: The kernel refuses while something writes there, if only a time of access.
READ_ONLY = "for attempt in 1 2 3 4 5 6 7 8 9 10; do mount -o remount,bind,ro {0} && break; sleep 0.2; done; test ! -w {0}"
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def filled(value: Any, variables: Mapping[str, str]) -> Any:
    """Put variables in as compose does: `${NAME:-default}`, `${NAME:?what to do}`."""
    if isinstance(value, dict):
        return {name: filled(part, variables) for name, part in value.items()}
    if isinstance(value, list):
        return [filled(part, variables) for part in value]
    if not isinstance(value, str):
        return value

    def put(match: re.Match[str]) -> str:
        name, kind, rest = match.groups()
        if name not in variables and kind != "-":
            raise KeyError(f"{name}: {rest}")
        return variables.get(name) or rest

    return _VARIABLE.sub(put, value)


def nginx_configuration(folder: Path, certificates: Path, *, resolves: bool) -> Path:
    """Write the configuration that the compose file mounts into a folder, with paths of this machine. `resolves`: as it is, for a nginx that knows `resolve`
    (1.27.3 or newer) beside a name server; else the names are looked up once."""
    text = (ROOT / "deploy/compose/nginx.conf").read_text()
    if not resolves:
        text = re.sub(r" resolve\b|^ *(resolver|zone) .*\n", "", text, flags=re.MULTILINE)
    own = folder / "nginx.conf"
    own.write_text(text.replace("/tls/", f"{certificates}/").replace("/run/nginx.pid", f"{folder}/nginx.pid"))
    return own


class ComposeRig:
    """A context manager that ends whatever it has started. `builder` builds the images."""

    def __init__(self, builder: ImageBuilder, folder: Path, variables: Mapping[str, str]) -> None:
        self._services = filled(yaml.safe_load((ROOT / "compose.yaml").read_text()), variables)["services"]
        self._builder, self._folder = builder, folder
        self._network = Network((CABLE,))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._open = contextlib.ExitStack()

    def __enter__(self) -> ComposeRig:
        with contextlib.ExitStack() as opened:
            opened.enter_context(self._network)
            opened.callback(self._end)
            for name in self._services:
                self._network.add(name)
            names = "".join(f"{self._network.address(name, CABLE)} {name}\n" for name in self._services)
            self.hosts.write_text(f"127.0.0.1 localhost\n{names}")
            self._open = opened.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    @property
    def hosts(self) -> Path:
        return self._folder / "hosts"

    def volume(self, name: str) -> Path:
        """The folder of a volume, which belongs to the images' user, as with a new volume at a folder of theirs."""
        folder = self._folder / "volumes" / name
        if not folder.exists():
            folder.mkdir(parents=True)
            os.chown(folder, USER, USER)
        return folder

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def once(self, name: str) -> None:
        """Run a service that ends by itself. Raises AssertionError, with its output, if it fails."""
        self.start(name)
        code = self._processes.pop(name).wait(EXEC_SECONDS)
        assert code == 0, f"{name} ended with {code}: {self.log(name)}"

    def start(self, name: str) -> None:
        """Start a service of one of our images."""
        service, root = self._services[name], self.root(name)
        own = service.get("entrypoint")  # without it, the image's; with it, the image's CMD does not count either
        entrypoint = own or json.loads(root.runs.get("ENTRYPOINT", "[]"))
        command = service.get("command") or ([] if own else json.loads(root.runs.get("CMD", "[]")))
        environment = {key: str(value) for key, value in service.get("environment", {}).items()}
        self._begin(name, command_in(root, [*entrypoint, *command], environment, self._mounts(service, root)))

    def root(self, name: str) -> Root:
        return self._builder.build(self._services[name]["build"]["target"])

    def execute(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container of a running service, as `docker compose exec` does."""
        root, service = self.root(name), self._services[name]
        environment = {**root.environment, **{key: str(value) for key, value in service.get("environment", {}).items()}}
        within = shlex.join(
            ["env", "--ignore-environment", f"--chdir={root.directory}", *(f"{k}={v}" for k, v in environment.items()), *words]
        )
        chroot = ["chroot", f"--userspec={root.user}", str(root.folder), "/bin/sh", "-c", f"exec {within}"]
        command = ["nsenter", "--target", str(self._first(name)), "--mount", "--pid", "--net", *chroot]
        return subprocess.run(command, capture_output=True, text=True, timeout=EXEC_SECONDS)

    def is_healthy(self, name: str) -> bool:
        """Whether the image's HEALTHCHECK says so."""
        if self._processes[name].poll() is not None:
            raise AssertionError(f"{name} has ended: {self.log(name)}")
        if self._first(name) is None:
            return False
        words = json.loads(self.root(name).runs["HEALTHCHECK"].partition("CMD ")[2])
        return self.execute(name, *words).returncode == 0

    def wait_until_healthy(self, name: str, seconds: float = 90) -> None:
        wait_until(f"{name} to be healthy", lambda: self.is_healthy(name), seconds, every=0.5)

    def kill(self, name: str) -> None:
        """Kill a container's processes at once."""
        psutil.Process(self._first(name)).kill()
        self._processes.pop(name).wait(EXEC_SECONDS)

    def start_postgres(self) -> None:
        programs, folder = Path(str(postgres_programs())), self.volume("postgres")
        shutil.chown(folder, "nobody")
        initialize_postgres(programs, folder / "data")
        with (folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write("host all all all trust\n")
        server = [
            programs / "postgres",
            "-D",
            folder / "data",
            "--listen_addresses=*",
            f"--unix_socket_directories={folder}",
            "--fsync=off",
        ]
        self._begin("postgres", ["setpriv", "--reuid=nobody", "--clear-groups", *map(str, server)])
        url = f"postgresql://paceline@{self._network.address('postgres', CABLE)}/postgres"
        ready = [str(programs / "pg_isready"), "--dbname", url]
        wait_until("PostgreSQL", lambda: subprocess.run(ready, capture_output=True).returncode == 0, 30)
        subprocess.run([programs / "createdb", f"--maintenance-db={url}", "paceline"], check=True, capture_output=True)

    def start_redis(self) -> None:
        address = self._network.address("redis", CABLE)
        self._begin(
            "redis", ["redis-server", "--bind", address, "--protected-mode", "no", "--save", "", "--dir", str(self.volume("redis"))]
        )

    def start_proxy(self) -> None:
        """nginx with the configuration that the compose file mounts. There is no name server here."""
        own = nginx_configuration(self.volume("nginx"), self.volume("tls"), resolves=False)
        inner = f"mount --bind {self.hosts} /etc/hosts && exec nginx -c {own} -g 'daemon off;'"
        self._begin("proxy", ["unshare", "--mount", "/bin/sh", "-ec", inner])

    def _mounts(self, service: Mapping[str, Any], root: Root) -> list[str]:
        shutil.copyfile(self.hosts, root.folder / "etc/hosts")
        mounts = [f"mount --bind {root.folder} {root.folder}", READ_ONLY.format(root.folder)]
        for volume in service.get("volumes", []):
            source, target, *options = volume.split(":")
            mounts.append(f"mount --bind {self.volume(source)} {root.folder}{target}")
            mounts += [f"mount -o remount,bind,ro {root.folder}{target}"] if options == ["ro"] else []
        for each in service.get("tmpfs", []):
            target, _, allowed = each.partition(":")
            mounts.append(f"mount -t tmpfs -o nosuid,nodev,{allowed or 'noexec'},mode=1777 tmpfs {root.folder}{target}")
        return [*mounts, f"mount -t tmpfs -o mode=1777 tmpfs {root.folder}/dev/shm"]

    def _begin(self, name: str, command: Sequence[str]) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = self._popen(self._network.inside(name, command), log)

    def _popen(self, command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def _first(self, name: str) -> int | None:
        """The process that a service begins with, as this machine numbers it; None before it and after it."""
        process = psutil.Process(self._processes[name].pid)
        return next((child.pid for child in process.children()), None) if process.name() == "unshare" else process.pid

    def _end(self) -> None:
        for name in reversed(self._processes):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended by itself
                if (first := self._first(name)) is not None:
                    psutil.Process(first).terminate()
        for name, process in self._processes.items():
            try:
                process.wait(EXEC_SECONDS)
            except subprocess.TimeoutExpired:
                self._network.kill(name)
                process.wait(20)
