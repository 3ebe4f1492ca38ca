"""What the tests need besides Python: PostgreSQL, Redis, Chromium, promtool. For each: what runs already, else a private instance of what is
installed, else an installation with apt (as root on Debian), else None, and the tests that need it are skipped."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from scripts.steps import CACHE, StepError, run, say
from tests.ports import free_port

HOST = "127.0.0.1"
POSTGRES_PORT, REDIS_PORT = 5432, 6379
PROBE_TIMEOUT_S = 3.0
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0
POLL_S = 0.05
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def chromium() -> str | None:
    """The path of a Chromium."""
    named = os.environ.get("PACELINE_TEST_CHROMIUM")
    return named or _installed("chromium", lambda: _first_on_path(CHROMIUM_NAMES))


def promtool() -> str | None:
    """The path of Prometheus' promtool. It is taken out of Debian's package, which is not installed: that would start a server."""
    folder = CACHE / "prometheus"
    program = folder / "usr" / "bin" / "promtool"
    named = os.environ.get("PACELINE_TEST_PROMTOOL") or shutil.which("promtool")
    if not named and not program.exists() and _may_install():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            run("apt: reading package lists for prometheus", ["apt-get", "update"])
            run("apt: fetching prometheus", ["apt-get", "download", "prometheus"], cwd=folder)
            run("unpacking prometheus", ["dpkg-deb", "-x", max(folder.glob("*.deb")), folder])
        except StepError as error:
            say(str(error))
    return named or (str(program) if program.exists() else None)


def sshd() -> str | None:
    """The path of OpenSSH's server. It is not fetched: as root it needs the account that its package makes (`apt-get install openssh-server`)."""
    return os.environ.get("PACELINE_TEST_SSHD") or shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin")


@contextlib.contextmanager
def postgres() -> Iterator[str | None]:
    """The URL of a PostgreSQL in which databases may be created."""
    running = os.environ.get("PACELINE_TEST_POSTGRES") or _running_postgres(POSTGRES_PORT)
    programs = None if running else _installed("postgresql", postgres_programs)
    if programs is None:
        yield running
        return
    with _folder() as folder, _private_postgres(Path(programs), folder) as url:
        yield url


@contextlib.contextmanager
def redis() -> Iterator[str | None]:
    """The URL of a Redis."""
    named = os.environ.get("PACELINE_TEST_REDIS")
    running = named or (f"redis://{HOST}:{REDIS_PORT}/0" if _redis_answers(REDIS_PORT) else None)
    program = None if running else _installed("redis-server", lambda: shutil.which("redis-server"))
    if program is None:
        yield running
        return
    port = free_port()
    with _folder() as folder:
        command = [program, "--bind", HOST, "--port", str(port), "--dir", str(folder), "--save", "", "--daemonize", "no"]
        with _server("Redis", command, lambda: _redis_answers(port), signal.SIGTERM):
            yield f"redis://{HOST}:{port}/0"


@contextlib.contextmanager
def _private_postgres(programs: Path, folder: Path) -> Iterator[str]:
    """PostgreSQL refuses to run as root: there it runs as `nobody`."""
    data = folder / "data"
    initialize_postgres(programs, data)
    port = free_port()  # after what takes seconds, in which it could be taken
    settings = {"listen_addresses": HOST, "port": port, "unix_socket_directories": folder, "fsync": "off", "max_connections": 200}
    command = [str(programs / "postgres"), "-D", str(data), *(f"--{name}={value}" for name, value in settings.items())]
    url = f"postgresql+asyncpg://paceline@{HOST}:{port}/postgres"
    with _server("PostgreSQL", command, lambda: _postgres_answers(url), signal.SIGINT):
        yield url


def initialize_postgres(programs: Path, data: Path) -> None:
    """Make the data folder of a PostgreSQL that trusts everybody here, with the superuser paceline. Raises StepError."""
    options = ["--pgdata", str(data), "--auth", "trust", "--username", "paceline", "--no-sync", "--encoding", "UTF8"]
    command = [str(programs / "initdb"), *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=data.parent, user=_server_user(), check=False)
    if done.returncode != 0:
        raise StepError(f"initdb exited {done.returncode}: {done.stderr[-1000:]}")


@contextlib.contextmanager
def _server(name: str, command: Sequence[str], answers: Callable[[], bool], stop: signal.Signals) -> Iterator[None]:
    say(f"starting a private {name}")
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", user=_server_user(), start_new_session=True
        )
        try:
            _wait_until(answers, process, name)
            yield
        finally:
            process.send_signal(stop)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until(answers: Callable[[], bool], process: subprocess.Popen[bytes], name: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not answers():
        if process.poll() is not None:
            raise StepError(f"the private {name} ended with {process.returncode} while starting")
        if time.monotonic() > deadline:
            raise StepError(f"the private {name} does not answer after {START_TIMEOUT_S:g} s")
        time.sleep(POLL_S)


def _installed(package: str, find: Callable[[], str | None]) -> str | None:
    """Where the program is; installed first where that is possible."""
    found = find()
    if found is not None or not _may_install():
        return found
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        run(f"apt: reading package lists for {package}", ["apt-get", "update"], environment=quiet)
        run(f"apt: installing {package}", ["apt-get", "install", "-y", "--no-install-recommends", package], environment=quiet)
    except StepError as error:
        say(str(error))
    return find()


def _may_install() -> bool:
    return os.geteuid() == 0 and Path("/etc/debian_version").exists() and shutil.which("apt-get") is not None


def postgres_programs() -> str | None:
    """The folder with initdb and postgres, of the newest version where Debian keeps several."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    found = shutil.which("initdb")
    folders = [*versions, *([Path(found).resolve().parent] if found else [])]
    return next((str(folder) for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


def _running_postgres(port: int) -> str | None:
    """A URL that connects without a password and may create databases."""
    if not _listens(port):
        return None
    candidates = [(user, name) for user in (getpass.getuser(), "postgres") for name in ("test", "postgres")]
    urls = [f"postgresql+asyncpg://{user}@{HOST}:{port}/{name}" for user, name in candidates]
    return next((url for url in urls if _postgres_answers(url)), None)


def _postgres_answers(url: str) -> bool:
    import asyncio  # imported late: setup runs this module's siblings without third-party packages

    import asyncpg

    async def ask() -> bool:
        connection = await asyncpg.connect(url.replace("+asyncpg", ""), timeout=PROBE_TIMEOUT_S)
        try:
            return bool(await connection.fetchval("select rolcreatedb or rolsuper from pg_roles where rolname = current_user"))
        finally:
            await connection.close()

    try:
        return asyncio.run(ask())
    except (OSError, TimeoutError, asyncpg.PostgresError):
        return False


def _redis_answers(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), PROBE_TIMEOUT_S) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder that belongs to the user that the server runs as."""
    with tempfile.TemporaryDirectory(prefix="paceline-test-") as name:
        user = _server_user()
        if user is not None:
            shutil.chown(name, user)
        yield Path(name)


def _server_user() -> str | None:
    return "nobody" if os.geteuid() == 0 else None


def _first_on_path(names: Sequence[str]) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)
