"""The part of the SSH provider that runs on the machine itself: `program.py` sends it through the connection, together with `host_environments`.

It needs the standard library alone, and runs on older Pythons than an agent: the one that makes the environment may be another. Each node has a folder `nodes/NAME`:
`order.json` (what to run; the join token in it, so 0600), `status.json` (how far it is), `agent.log`, and `data`, the agent's own. Nothing secret is ever an argument of a command.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from paceline.cluster.provisioners.ssh.host_environments import Order, environment_folder, folder_of, has_environment, install, with_lock

STOP_SECONDS = 45
KILLED_SECONDS = 5
#: The module of the process that is the parent of a node's ranks, as its command line has it.
SPAWNER = "paceline.cluster.agent.spawner"
#: The agent's exit code after a notice, where its machine comes back (`cluster.agent.main`).
LEFT_TO_RETURN = 3
#: A new node waits so long for the one of its name to be cleared away; then the coordinator asks again.
CLEARED_SECONDS = 30
TOKEN = "PACELINE_JOIN_TOKEN"


def node_folder(order: Order) -> Path:
    """The folder of one node."""
    return folder_of(order) / "nodes" / str(order["name"])


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


def taken(order: Order) -> Order:
    """Say whose an order's name is here, where it is another launch's: one that runs, or one of another coordinator. Empty where it is free."""
    kept = read(node_folder(order) / "order.json")
    is_ours = not kept.get("launch") or kept["launch"] == order["launch"]
    if is_ours or (kept["server"] == order["server"] and not is_alive(read(node_folder(order) / "status.json"))):
        return {}
    return {"state": "taken", "server": kept["server"]}


def prepare(order: Order) -> Order:
    """Look at the machine, and say what is needed: `wheel` where it has to be sent first. What runs already is left alone, what ends is waited for."""
    if not is_cleared(folder_of(order), order["name"]):
        return {"state": "ending"}
    other = taken(order)
    if other:
        return other
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
        command, log = [sys.executable, str(folder / "run.py"), str(folder)], private_log(folder / "agent.log")
        how = "systemd" if start_by_systemd(order, command) else "setsid"
        if how == "setsid":
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True)
            status = {"phase": "pending", "reason": "starting", "pid": child.pid, "started": started_at(child.pid), "key": order["key"]}
            write(folder / "status.json", status)
        os.close(log)
        write(folder / "how.json", {"how": how})
    return {"state": "started", "how": how}


def private_log(path: Path) -> int:
    """Open a log at its end, readable by its owner alone: it may carry what jobs print. systemd appends to one that is there, and leaves its mode."""
    descriptor = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


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


def has_notices(order: Order) -> bool:
    """Whether the machine says by itself that it will be taken away. Then it does not come back."""
    return not {"--notice-command", "--notice-file"}.isdisjoint(order["arguments"])


def start_by_systemd(order: Order, command: list[str]) -> bool:
    """Start the unit of a node. Returns False where this user has no systemd."""
    if not user_systemd("show-environment"):
        return False
    unit, folder = unit_of(order["name"]), node_folder(order)
    units = Path(os.path.expanduser("~/.config/systemd/user"))
    units.mkdir(parents=True, exist_ok=True)
    returns = [] if has_notices(order) else ["--returns"]
    quoted = " ".join('"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"' for word in [*command, *returns])
    lines = ["[Unit]", f"Description=Paceline agent {order['name']}", "[Service]", f"ExecStart={quoted}"]
    lines += ["Restart=on-failure", "RestartSec=5", "TimeoutStopSec=infinity"]  # an agent ends by itself once its time to drain is over
    if returns:  # a machine that is restarted drains first, and its node keeps its place
        lines += ["KillSignal=SIGUSR1", f"SuccessExitStatus={LEFT_TO_RETURN}", f"RestartPreventExitStatus={LEFT_TO_RETURN}"]
    lines += ["KillMode=process", "OOMPolicy=continue"]  # ranks outlive an agent that died, and another rank that ran out of memory
    lines += [f"StandardOutput=append:{folder}/agent.log", f"StandardError=append:{folder}/agent.log"]
    lines += ["[Install]", "WantedBy=default.target", ""]
    (units / unit).write_text("\n".join(lines))
    if not (user_systemd("daemon-reload") and user_systemd("enable", unit) and user_systemd("restart", unit)):
        user_systemd("disable", "--now", unit)
        (units / unit).unlink()
        return False
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # lets it live when nobody is signed in; refused by some machines
        subprocess.run(["loginctl", "enable-linger"], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
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
        elif is_started_again(place):
            found[name] = {"phase": "running", "reason": "its agent has ended, and systemd starts it again, at the latest with the machine"}
        else:
            found[name] = {"phase": "ended", "reason": f"its agent has ended: {last_line(place / 'agent.log')}"}
    return found


def is_started_again(place: Path) -> bool:
    """Whether systemd starts a node's agent that runs no more. Where the node is gone for good, its agent has deleted its credential."""
    return read(place / "how.json").get("how") == "systemd" and (place / "data" / "credential.json").exists()


def last_line(path: Path) -> str:
    """The last line that says something, of a log."""
    try:
        lines = path.read_bytes()[-4000:].decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return "it left no log"
    return lines[-1].strip()[:400] if lines else "it said nothing"


def end(folder: str, name: str, launch: str = "") -> Order:
    """End a node and remove what it has kept; the work goes on behind this connection, which waits for nothing.
    `launch`: that of another one is left alone."""
    top = Path(os.path.expanduser(folder)).absolute()
    place = top / "nodes" / name
    order = read(place / "order.json")
    if not place.is_dir() or (launch and order.get("launch", launch) != launch):
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
            stop(place, name)
            clean(top, str(order.get("key", "")))
        finally:
            os._exit(0)
    return {"state": "ending"}


def stop(place: Path, name: str) -> None:
    """Stop a node's agent, by force when it takes too long, and remove its folder."""
    has_unit = read(place / "how.json").get("how") == "systemd"
    status = read(place / "status.json")
    deadline = time.monotonic() + STOP_SECONDS
    with contextlib.suppress(ProcessLookupError):  # an agent whose node was drained ends by itself at about this time
        if is_alive(status):
            os.kill(status["pid"], signal.SIGINT)  # SIGTERM, and the signal of the unit, would drain the node first
    if has_unit:
        user_systemd("disable", "--now", unit_of(name))
    with contextlib.suppress(ProcessLookupError):
        while is_alive(status) and time.monotonic() < deadline:
            time.sleep(0.1)
        if is_alive(status):
            os.killpg(status["pid"], signal.SIGKILL)
    kill_left_behind(place)
    if has_unit:
        user_systemd("kill", "--signal=KILL", unit_of(name))  # ranks that have outlived their agent
        unit = Path(os.path.expanduser("~/.config/systemd/user")) / unit_of(name)
        if unit.exists():
            unit.unlink()
        user_systemd("daemon-reload")
    log = place / "agent.log"
    if log.exists():  # of a node that failed to start, somebody will want to read it
        os.close(private_log(log))
        logs = place.parent.parent / "logs"
        logs.mkdir(exist_ok=True)
        os.chmod(str(logs), 0o700)
        os.replace(str(log), str(logs / f"{name}.log"))
    shutil.rmtree(str(place), ignore_errors=True)


def left_behind(place: Path) -> set[int]:
    """The processes of spawners that a node's agent has left, and all that they have started. Each spawner has a session of its own."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        if SPAWNER in words and str(place / "data") in words:
            found.add(int(each.name))
    started = found
    while started:
        started = {pid for pid, parent in parents.items() if parent in found} - found
        found = found | started
    return found


def kill_left_behind(place: Path) -> None:
    """Kill what has outlived a node's agent: for a quarter of an hour its ranks would run on, and its spawner keep the node's cards."""
    deadline = time.monotonic() + KILLED_SECONDS
    left = left_behind(place)
    while left and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
        left = left_behind(place)


def clean(top: Path, kept: str) -> None:
    """Remove environments, and the wheels that they were made of, that no node of this machine uses. `kept`: one that stays all the same, since
    its next node starts at once with it."""
    used = {kept} | {read(order).get("key") for order in (top / "nodes").glob("*/order.json")}
    for kind in ("environments", "wheels"):
        for found in (top / kind).glob("*"):
            if found.is_dir() and found.name not in used:
                with_lock(top, found.name, partial(shutil.rmtree, str(found), ignore_errors=True))


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


def run_node(folder: str, *options: str) -> None:
    """Install what is needed, then become the agent, with the options of the order and these. What goes wrong is the node's status."""
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
    command = [python, "-m", "paceline.cluster.agent.main", *order["arguments"], *options, "--data", str(data)]
    try:
        os.execve(python, command, environment)
    except OSError as error:
        note(order, "ended", f"{python} cannot be run: {error.strerror}")
        raise SystemExit(1) from error
