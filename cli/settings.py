"""The coordinator that a command uses, and the key: from a flag, else environment, project file, user file, default.

This is the one place of the command line that reads its environment. A credentials file is `{"server": URL, "api_key": KEY}` with mode
0600. A key belongs to the server it was stored with: it is never sent to another one.

Which project file is nearest depends on the working directory, so no other user may have written it, and it does not choose where the
key of the environment goes.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from paceline.cli.errors import UsageProblem

DEFAULT_SERVER = "http://127.0.0.1:8000"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: How an agent is told its join token: `ps` shows arguments to everybody, the environment only to its owner.
JOIN_TOKEN = "PACELINE_JOIN_TOKEN"
PROJECT_FOLDER = ".paceline"
PROJECT = "project"
DEFAULT = "default"
CREDENTIALS = "credentials.json"


@dataclass(frozen=True)
class Setting:
    """A value and where it came from."""

    value: str | None
    source: str


@dataclass(frozen=True)
class ClientSettings:
    server: Setting
    api_key: Setting
    warnings: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        return (self.server.value or DEFAULT_SERVER).rstrip("/")

    @property
    def key(self) -> str | None:
        return self.api_key.value

    @property
    def name_a_coordinator(self) -> bool:
        """Whether any setting names a coordinator. A key alone does so too: it is for the default one."""
        return self.server.source != DEFAULT or self.key is not None

    @property
    def name_it_here_and_now(self) -> bool:
        """Whether the coordinator was named by a flag or by the environment, not by a file of an earlier day."""
        return self.server.source.startswith(("flag", "environment"))


def resolve(server: str | None = None, api_key: str | None = None, start: Path | None = None) -> ClientSettings:
    """The settings for this call; `start` is where the search for a project file begins (default: the working directory)."""
    found = credential_files(start or working_directory())
    distrusted = {path: why for path in found if (why := why_not_trusted(path))}
    files = [(_describe(path), _read(path)) for path in found if path not in distrusted]
    chosen = _choose(server, "PACELINE_SERVER", [(name, document.get("server")) for name, document in files], DEFAULT_SERVER)
    same_server = [(name, document.get("api_key")) for name, document in files if _same(document.get("server"), chosen.value)]
    warnings = [f"warning: {path} is not used: {why}" for path, why in distrusted.items()]
    by_folder = chosen.source.startswith(PROJECT)
    key = _choose(api_key, None if by_folder else "PACELINE_API_KEY", same_server, None)
    if by_folder and api_key is None and os.environ.get("PACELINE_API_KEY") not in (None, "", key.value):
        warnings.append(
            f"warning: PACELINE_API_KEY is not sent to {chosen.value}, which {chosen.source} names; to send it, set PACELINE_SERVER"
        )
    return ClientSettings(chosen, key, tuple(warnings))


def working_directory() -> Path:
    """The working directory. Raises UsageProblem where it has been removed meanwhile."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageProblem("the working directory is gone", "change to one that is there, for example with: cd") from None


def why_not_trusted(path: Path) -> str | None:
    """Why a credentials file may be another user's; None: it is this user's own."""
    file, folder = path.stat(), path.parent.stat()
    for place, found in ((path, file), (path.parent, folder)):
        if found.st_uid not in (os.getuid(), 0):
            return f"{place} belongs to user {found.st_uid}, and you are user {os.getuid()}"
    if stat.S_IMODE(folder.st_mode) & 0o022:
        return f"others may write to {path.parent}; if what is in there is yours, run: chmod go-w {path.parent}"
    if stat.S_IMODE(file.st_mode) & 0o077:
        return f"others may read it, as no file is that Paceline made; if it is yours, run: chmod 600 {path}"
    return None


def credential_files(start: Path) -> list[Path]:
    """Existing credential files, the nearest project's first, the user's last."""
    project = next((path for folder in (start, *start.parents) if (path := folder / PROJECT_FOLDER / CREDENTIALS).is_file()), None)
    return [path for path in (project, user_file()) if path is not None and path.is_file()]


def user_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "paceline" / CREDENTIALS


def of_stack(data: Path) -> ClientSettings:
    """Server and key of the stack whose data folder this is. Raises UsageProblem where `paceline up` has left none there, or another
    user may have."""
    path = data.expanduser().resolve() / CREDENTIALS
    way_out = "name the data folder of a stack of yours, as 'paceline up' prints it"
    if not path.is_file():
        raise UsageProblem(f"there is no stack in {path.parent}: {path} is missing", way_out)
    if why := why_not_trusted(path):
        raise UsageProblem(f"{path} is not used: {why}", way_out)
    document, source = _read(path), f"stack in {path.parent}"
    return ClientSettings(Setting(document.get("server"), source), Setting(document.get("api_key"), source))


def is_stored(server: str, api_key: str | None) -> bool:
    """Whether this user's own file has this server with this key, so that every folder reaches it."""
    path = user_file()
    return path.is_file() and why_not_trusted(path) is None and _read(path) == {"server": server, "api_key": api_key}


def store(path: Path, server: str, api_key: str) -> None:
    write_private(path, {"server": server.rstrip("/"), "api_key": api_key})


def write_private(path: Path, document: dict[str, str]) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_suffix(".tmp")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(document, file)
    draft.replace(path)


#: Tells a process of ours where its output goes, so that it can keep that file small.
LOG_FILE = "PACELINE_LOG_FILE"


def child_environment(**changes: str) -> dict[str, str]:
    """The environment for a process that the command line starts: without MOCK_DB, since a stack keeps what it has."""
    return {name: value for name, value in os.environ.items() if name != "MOCK_DB"} | changes


def allowed_hosts(*names: str) -> str:
    """PACELINE_ALLOWED_HOSTS of this environment, with these hosts."""
    set_already = os.environ.get("PACELINE_ALLOWED_HOSTS", "").split(",")
    return ",".join(dict.fromkeys(name.strip() for name in (*set_already, *names) if name.strip()))


#: What a coordinator of this machine reads that only says where things are.
_HARMLESS_TO_SHARE = ("PACELINE_DASHBOARD", "PACELINE_CACHE")


def shell_variables() -> dict[str, str]:
    """A copy of the variables of the shell that the command was typed in."""
    return dict(os.environ)


def forget_other_coordinators() -> None:
    """Remove the variables that configure a coordinator, or name its databases, from this process and from what it starts."""
    named = [name for name in os.environ if name.startswith("PACELINE_") and name not in _HARMLESS_TO_SHARE]
    for name in (*named, "DATABASE_URL", "REDIS_URL"):
        os.environ.pop(name, None)


def plain_output() -> bool:
    """NO_COLOR (any value), CI and TERM=dumb ask for text without colour or motion."""
    return bool(os.environ.get("NO_COLOR") or os.environ.get("CI")) or os.environ.get("TERM") == "dumb"


def _choose(flag: str | None, variable: str | None, files: list[tuple[str, str | None]], default: str | None) -> Setting:
    """The first source that has a value. `variable`: None where the environment has no say."""
    candidates = [("flag", flag), (f"environment {variable}", os.environ.get(variable) if variable else None), *files]
    return next((Setting(value, source) for source, value in candidates if value), Setting(default, DEFAULT))


def _same(stored: str | None, chosen: str | None) -> bool:
    return stored is not None and stored.rstrip("/") == (chosen or "").rstrip("/")


def _describe(path: Path) -> str:
    return f"{'user' if path == user_file() else PROJECT} file {path}"


def _read(path: Path) -> dict[str, str]:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageProblem(f"{path} cannot be read: {error}", "repair or delete it, then run 'paceline login'") from error
    if not isinstance(document, dict):
        raise UsageProblem(f"{path} does not hold a JSON object", "delete it, then run 'paceline login'")
    return document
