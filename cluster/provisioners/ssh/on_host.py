"""The part of the SSH provider that runs on the machine itself: this file, sent through the connection and read by its Python from stdin.

It needs the standard library alone, and runs on older Pythons than an agent: the one that makes the environment may be another. Each node has a folder `nodes/NAME`:
`order.json` (what to run; the join token in it, so 0600), `status.json` (how far it is), `agent.log`, and `data`, the agent's own. Environments
are `environments/KEY`, made once for all nodes of the machine. Nothing secret is ever an argument of a command.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

LEAST_PYTHON = (3, 11)
INSTALL_SECONDS = 3600
STOP_SECONDS = 45
#: A new node waits so long for the one of its name to be cleared away; then the coordinator asks again.
CLEARED_SECONDS = 30
TOKEN = "PACELINE_JOIN_TOKEN"
COMPLETE = "complete"
Order = dict[str, Any]


def folder_of(order: Order) -> Path:
    """The folder of everything that is installed here."""
    return Path(os.path.expanduser(order["folder"])).absolute()


def node_folder(order: Order) -> Path:
    """The folder of one node."""
    return folder_of(order) / "nodes" / str(order["name"])


def environment_folder(order: Order) -> Path:
    """The environment that an order needs."""
    return folder_of(order) / "environments" / str(order["key"])


def write(path: Path, document: Order, mode: int = 0o600) -> None:
    """Replace a JSON file in one step, readable by its owner alone."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(str(temporary), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as file:
        json.dump(document, file)
    os.replace(str(temporary), str(path))


def read(path: Path) -> Order:
    """A JSON file; an empty document where there is none."""
    try:
        document: Order = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return document


def started_at(pid: int) -> str | None:
    """When a process was started, in ticks since the machine's own start; None: there is none. A number alone may be another process by now."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def is_alive(status: Order) -> bool:
    """Whether the process of a status still runs."""
    pid = status.get("pid")
    return pid is not None and started_at(pid) is not None and started_at(pid) == status.get("started")


def note(order: Order, phase: str, reason: str = "") -> None:
    """Write down how far this process is."""
    status = {"phase": phase, "reason": reason, "pid": os.getpid(), "started": started_at(os.getpid()), "key": order["key"]}
    write(node_folder(order) / "status.json", status)


def has_environment(order: Order) -> bool:
    """Whether nothing needs to be installed."""
    if order["environment"]:
        return True
    return (environment_folder(order) / COMPLETE).exists()


def ending_lock(top: Path, name: str) -> int:
    """Open the file that is locked as long as a node of this name is being ended. It lies outside the node's folder, which goes meanwhile."""
    top.mkdir(parents=True, exist_ok=True)
    return os.open(str(top / f".ending-{name}"), os.O_RDWR | os.O_CREAT, 0o600)


def locked(descriptor: int) -> bool:
    """Lock a file at once. Returns False where another process has it locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_cleared(top: Path, name: str) -> bool:
    """Wait until no earlier node of this name is being ended. Returns False after CLEARED_SECONDS."""
    descriptor = ending_lock(top, name)
    deadline = time.monotonic() + CLEARED_SECONDS
    try:
        while not locked(descriptor):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True
    finally:
        os.close(descriptor)


def prepare(order: Order) -> Order:
    """Look at the machine, and say what is needed: `wheel` where it has to be sent first. What runs already is left alone, what ends is waited for."""
    if not is_cleared(folder_of(order), order["name"]):
        return {"state": "ending"}
    if is_alive(read(node_folder(order) / "status.json")):
        return {"state": "there"}
    if not has_environment(order):
        wheel = folder_of(order) / "wheels" / order["key"] / order["wheel"]
        if not wheel.exists():
            wheel.parent.mkdir(parents=True, exist_ok=True)
            return {"state": "wheel", "path": str(wheel)}
    return {"state": "ready"}


def start(order: Order) -> Order:
    """Start a node behind this connection, under systemd where the user has it, else as a process of its own session."""
    folder = node_folder(order)
    folder.mkdir(parents=True, exist_ok=True)
    os.chmod(str(folder), 0o700)
    with open(str(folder / "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_alive(read(folder / "status.json")):
            return {"state": "there"}
        write(folder / "order.json", order)
        (folder / "run.py").write_text(order["program"])
        command = [sys.executable, str(folder / "run.py"), str(folder)]
        how = "systemd" if start_by_systemd(order, command) else "setsid"
        if how == "setsid":
            with open(str(folder / "agent.log"), "ab") as log:
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True)
            write(
                folder / "status.json",
                {"phase": "pending", "reason": "starting", "pid": child.pid, "started": started_at(child.pid), "key": order["key"]},
            )
        write(folder / "how.json", {"how": how})
    return {"state": "started", "how": how}


def unit_of(name: str) -> str:
    """The systemd unit of a node."""
    return f"paceline-agent-{name}.service"


def user_systemd(*words: str) -> bool:
    """Run systemctl for this user. Returns whether it went well."""
    environment = dict(os.environ)
    environment.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    try:
        done = subprocess.run(["systemctl", "--user", *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def start_by_systemd(order: Order, command: list[str]) -> bool:
    """Start the unit of a node. Returns False where this user has no systemd."""
    if not user_systemd("show-environment"):
        return False
    unit, folder = unit_of(order["name"]), node_folder(order)
    units = Path(os.path.expanduser("~/.config/systemd/user"))
    units.mkdir(parents=True, exist_ok=True)
    quoted = " ".join('"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"' for word in command)
    lines = ["[Unit]", f"Description=Paceline agent {order['name']}", "[Service]", f"ExecStart={quoted}"]
    lines += ["Restart=on-failure", "RestartSec=5", f"TimeoutStopSec={STOP_SECONDS}"]
    lines += ["KillMode=process", "OOMPolicy=continue"]  # ranks outlive an agent that died, and another rank that ran out of memory
    lines += [f"StandardOutput=append:{folder}/agent.log", f"StandardError=append:{folder}/agent.log"]
    lines += ["[Install]", "WantedBy=default.target", ""]
    (units / unit).write_text("\n".join(lines))
    if not (user_systemd("daemon-reload") and user_systemd("enable", unit) and user_systemd("restart", unit)):
        user_systemd("disable", "--now", unit)
        (units / unit).unlink()
        return False
    try:  # lets it live when nobody is signed in; refused by some machines, where it ends with the last session
        subprocess.run(["loginctl", "enable-linger"], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return True
    return True


def look(folder: str, names: list[str]) -> Order:
    """How far each node is."""
    found = {}
    for name in names:
        place = Path(os.path.expanduser(folder)).absolute() / "nodes" / name
        status = read(place / "status.json")
        if not status:
            found[name] = {"phase": "ended", "reason": "it is not on this machine any more"}
        elif status["phase"] == "ended" or is_alive(status):
            found[name] = {"phase": status["phase"], "reason": status["reason"]}
        else:
            found[name] = {"phase": "ended", "reason": f"its agent has ended: {last_line(place / 'agent.log')}"}
    return found


def last_line(path: Path) -> str:
    """The last line that says something, of a log."""
    try:
        lines = path.read_bytes()[-4000:].decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return "it left no log"
    return lines[-1].strip()[:400] if lines else "it said nothing"


def end(folder: str, name: str) -> Order:
    """End a node and remove what it has kept; the work goes on behind this connection, which waits for nothing."""
    top = Path(os.path.expanduser(folder)).absolute()
    place = top / "nodes" / name
    if not place.is_dir():
        return {"state": "gone"}
    ending = ending_lock(top, name)
    if not locked(ending):
        return {"state": "ending"}
    if os.fork() == 0:  # with the lock, which goes when this child does
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(quiet, descriptor)
        try:
            kept = str(read(place / "order.json").get("key", ""))
            stop(place, name)
            clean(top, kept)
        finally:
            os._exit(0)
    return {"state": "ending"}


def stop(place: Path, name: str) -> None:
    """Stop a node's agent, by force when it takes too long, and remove its folder."""
    has_unit = read(place / "how.json").get("how") == "systemd"
    if has_unit:
        user_systemd("disable", "--now", unit_of(name))
    status = read(place / "status.json")
    deadline = time.monotonic() + STOP_SECONDS
    if is_alive(status):
        os.kill(status["pid"], signal.SIGTERM)
    while is_alive(status) and time.monotonic() < deadline:
        time.sleep(0.1)
    if is_alive(status):
        os.killpg(status["pid"], signal.SIGKILL)
    if has_unit:
        user_systemd("kill", "--signal=KILL", unit_of(name))  # ranks that have outlived their agent
        unit = Path(os.path.expanduser("~/.config/systemd/user")) / unit_of(name)
        if unit.exists():
            unit.unlink()
        user_systemd("daemon-reload")
    log = place / "agent.log"
    if log.exists():  # of a node that failed to start, somebody will want to read it
        (place.parent.parent / "logs").mkdir(exist_ok=True)
        os.replace(str(log), str(place.parent.parent / "logs" / f"{name}.log"))
    shutil.rmtree(str(place), ignore_errors=True)


def clean(top: Path, kept: str) -> None:
    """Remove environments, and the wheels that they were made of, that no node of this machine uses. `kept`: one that stays all the same, since
    its next node starts at once with it."""
    used = {kept} | {read(order).get("key") for order in (top / "nodes").glob("*/order.json")}
    for kind in ("environments", "wheels"):
        for found in (top / kind).glob("*"):
            if found.is_dir() and found.name not in used:
                with_lock(top, found.name, partial(shutil.rmtree, str(found), ignore_errors=True))


def with_lock(top: Path, key: str, work: Callable[[], None]) -> None:
    """Do something to an environment while nobody else of this machine does."""
    top.mkdir(parents=True, exist_ok=True)
    with open(str(top / f".lock-{key}"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        work()


def install(order: Order) -> None:
    """Make the environment of an order, unless it is there. Raises RuntimeError with the last line of what failed."""
    if has_environment(order):
        return
    place, wheel = environment_folder(order), folder_of(order) / "wheels" / order["key"] / order["wheel"]
    shutil.rmtree(str(place), ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    uv = shutil.which("uv") or shutil.which("uv", path=os.path.expanduser("~/.local/bin"))
    base = shutil.which(os.path.expanduser(order["python"]))
    if base is None:
        raise RuntimeError(f"there is no {order['python']} on this machine; give `python` of an interpreter that is there")
    check_version(base)
    run([uv, "venv", "--quiet", "--python", base, str(place)] if uv else [base, "-m", "venv", str(place)], "the environment cannot be made")
    python = str(place / "bin" / "python")
    if order["packages_of"]:
        borrow_packages(python, os.path.expanduser(order["packages_of"]))
    constraints = place / "constraints.txt"
    constraints.write_text("" if order["packages_of"] else order["constraints"])  # theirs are taken as they are
    options = ["--constraint", str(constraints), *order["pip_options"], f"{wheel}[worker]"]
    borrowed = bool(order["packages_of"])  # uv looks at the environment's own folder alone, pip at all that can be imported
    run(
        [uv, "pip", "install", "--python", python, *options] if uv and not borrowed else [*pip_of(python, uv), "install", *options],
        "the packages cannot be installed",
    )
    (place / COMPLETE).touch()


def pip_of(python: str, uv: str | None) -> list[str]:
    """The pip of an environment; one that uv made has none of its own."""
    if uv:
        run([uv, "pip", "install", "--python", python, "pip"], "pip cannot be installed")
    return [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]


def check_version(python: str) -> None:
    """Refuse a Python that is too old."""
    code = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=30).stdout.strip()
    if tuple(int(part) for part in found.split(".")[:2] or (0,)) < LEAST_PYTHON:
        raise RuntimeError(f"{python} is Python {found}; Paceline needs 3.11 or newer: give `python` of one")


def borrow_packages(python: str, other: str) -> None:
    """Let an environment import what another one has."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    theirs, ours = (
        subprocess.run([each, "-c", code], capture_output=True, text=True, timeout=30).stdout.strip() for each in (other, python)
    )
    if not theirs:
        raise RuntimeError(f"packages_of: {other} does not run on this machine")
    (Path(ours) / "paceline_packages_of.pth").write_text(f"import site; site.addsitedir({theirs!r})\n")


def run(command: list[str], what: str) -> None:
    """Run a step of an installation; its output goes to the log. Raises RuntimeError with its last line."""
    print(f"+ {' '.join(command)}", flush=True)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=INSTALL_SECONDS)
    text = done.stdout.decode("utf-8", "replace")
    print(text, flush=True)
    if done.returncode != 0:
        said = [line for line in text.strip().splitlines() if line.strip()]
        errors = [line for line in said if line.lower().startswith("error")]
        raise RuntimeError(f"{what}: {(errors[:1] or said[-1:] or ['no output'])[0].strip()[:400]}")


def read_variables(path: str) -> Order:
    """The variables of a file, NAME=VALUE a line; lines that are empty or begin with `#` say nothing. Raises RuntimeError with what is wrong with it."""
    place = Path(os.path.expanduser(path))
    if place.stat().st_mode & 0o077:
        raise RuntimeError(f"variables_file {path} can be read or written by other accounts; run 'chmod 600 {path}' there")
    found, lines = {}, [line.strip() for line in place.read_text(errors="replace").splitlines()]
    for number, line in enumerate(lines, 1):
        name, separator, value = line.partition("=")
        if line and not line.startswith("#") and not (separator and name.isidentifier()):
            raise RuntimeError(f"variables_file {path}: line {number} is not NAME=VALUE")
        if separator and not line.startswith("#"):
            found[name] = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
    return found


def run_node(folder: str) -> None:
    """Install what is needed, then become the agent. What goes wrong is the node's status."""
    order = read(Path(folder) / "order.json")
    try:
        if not has_environment(order):
            note(order, "pending", "installing Paceline and its packages")
            with_lock(folder_of(order), order["key"], lambda: install(order))
        variables = read_variables(order["variables_file"]) if order.get("variables_file") else {}
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        note(order, "ended", f"{error} (its log is kept there as {order['folder']}/logs/{order['name']}.log)")
        raise SystemExit(1) from error
    python = os.path.expanduser(order["environment"]) if order["environment"] else str(environment_folder(order) / "bin" / "python")
    environment = {**os.environ, **variables}
    data = Path(folder) / "data"
    environment.update({TOKEN: order["token"]} if not (data / "credential.json").exists() else {})
    note(order, "running")
    command = [python, "-m", "paceline.cluster.agent.main", *order["arguments"], "--data", str(data)]
    try:
        os.execve(python, command, environment)
    except OSError as error:
        note(order, "ended", f"{python} cannot be run: {error.strerror}")
        raise SystemExit(1) from error


if __name__ == "__main__" and len(sys.argv) == 2:
    run_node(sys.argv[1])
