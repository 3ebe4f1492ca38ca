"""The environments of a machine that the SSH provider starts nodes on: `environments/KEY`, each made once for all of its nodes.

It runs there, as `on_host` does: with the standard library alone, and on older Pythons than an agent.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

LEAST_PYTHON = (3, 11)
INSTALL_SECONDS = 3600
COMPLETE = "complete"
Order = dict[str, Any]


def folder_of(order: Order) -> Path:
    """The folder of everything that is installed here."""
    return Path(os.path.expanduser(order["folder"])).absolute()


def environment_folder(order: Order) -> Path:
    """The environment that an order needs."""
    return folder_of(order) / "environments" / str(order["key"])


def has_environment(order: Order) -> bool:
    """Whether nothing needs to be installed."""
    return bool(order["environment"]) or (environment_folder(order) / COMPLETE).exists()


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
    installer = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    if uv and order["packages_of"]:  # uv looks at the environment's own folder alone, pip at all that can be imported
        run([uv, "pip", "install", "--python", python, "pip"], "pip cannot be installed")
    elif uv:
        installer = [uv, "pip", "install", "--python", python]
    run([*installer, *options], "the packages cannot be installed")
    (place / COMPLETE).touch()


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
