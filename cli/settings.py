"""The coordinator that a command uses, and the key: from a flag, else environment, project file, user file, default.

This is the one place of the command line that reads its environment, but for PACELINE_DATA, the default of `--data`. A credentials
file is `{"server": URL, "api_key": KEY}` with mode 0600, and where the server has an authority of its own, that one's certificate. A
key belongs to the server it was stored with: it is never sent to another one. A user may have several such files, each a context with
a name; one of them is the current one.

Which project file is nearest depends on the working directory, so no other user may have written it, and it does not choose where the
key of the environment goes.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
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
#: The context that `login` stores without a name, in the user's CREDENTIALS.
DEFAULT_CONTEXT = "default"
_CONTEXT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Setting:
    """A value and where it came from."""

    value: str | None
    source: str


@dataclass(frozen=True)
class ClientSettings:
    server: Setting
    api_key: Setting
    context: Setting = Setting(DEFAULT_CONTEXT, DEFAULT)
    #: The one authority, as PEM, that the server's certificate must be of; without a value: those that this machine knows.
    authority: Setting = Setting(None, DEFAULT)
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


def resolve(server: str | None = None, api_key: str | None = None, start: Path | None = None, context: str | None = None) -> ClientSettings:
    """The settings for this call; `start` is where the search for a project file begins (default: the working directory). A `context`
    that was typed, or PACELINE_CONTEXT, stands before all other files and before PACELINE_SERVER."""
    if context and server:
        raise UsageProblem("--server and --context both name a coordinator", "leave out one of them")
    chosen_context = _context(context)
    if chosen_context.source.startswith(("flag", "environment")) and server is None:
        return _of_context(chosen_context, api_key)
    found = credential_files(start or working_directory())
    distrusted = {path: why for path in found if (why := why_not_trusted(path))}
    files = [(_describe(path), _read(path)) for path in found if path not in distrusted]
    chosen = _choose(server, "PACELINE_SERVER", [(name, document.get("server")) for name, document in files], DEFAULT_SERVER)
    fitting = [(name, document) for name, document in files if _same(document.get("server"), chosen.value)]
    same_server = [(name, document.get("api_key")) for name, document in fitting]
    warnings = [f"warning: {path} is not used: {why}" for path, why in distrusted.items()]
    by_folder = chosen.source.startswith(PROJECT)
    key = _choose(api_key, None if by_folder else "PACELINE_API_KEY", same_server, None)
    if by_folder and api_key is None and os.environ.get("PACELINE_API_KEY") not in (None, "", key.value):
        warnings.append(
            f"warning: PACELINE_API_KEY is not sent to {chosen.value}, which {chosen.source} names; to send it, set PACELINE_SERVER"
        )
    authority = _authority([(name, document.get("authority")) for name, document in fitting])
    return ClientSettings(chosen, key, chosen_context, authority, tuple(warnings))


def _authority(stored: list[tuple[str, str | None]]) -> Setting:
    """The pinned authority: that of the file which PACELINE_CA_FILE names, else the stored one of the server."""
    path = os.environ.get("PACELINE_CA_FILE")
    if not path:
        return _choose(None, None, stored, None)
    try:
        return Setting(Path(path).read_text("ascii", errors="replace"), "environment PACELINE_CA_FILE")
    except OSError as error:
        raise UsageProblem(f"PACELINE_CA_FILE={path} cannot be read: {error.strerror}", "name a certificate in PEM, or unset it") from error


def _context(flag: str | None) -> Setting:
    """The name of the context: typed, from the environment, or the stored one."""
    stored = stored_context()
    return _choose(flag, "PACELINE_CONTEXT", [(stored.source, stored.value)], DEFAULT_CONTEXT)


def stored_context() -> Setting:
    """The name of the context that `paceline context use` has chosen, whatever was typed now and whatever the environment says."""
    file = _current_file()
    stored: list[tuple[str, str | None]] = [(f"user file {file}", file.read_text().strip())] if file.is_file() else []
    return _choose(None, None, stored, DEFAULT_CONTEXT)


def _of_context(context: Setting, api_key: str | None) -> ClientSettings:
    """The settings of a context that was named for this call."""
    path, source = existing_context(context.value or ""), f"context {context.value}"
    if why := why_not_trusted(path):
        raise UsageProblem(f"{path} is not used: {why}")
    document = _read(path)
    key = Setting(api_key, "flag") if api_key else Setting(document.get("api_key"), source)
    authority = _authority([(source, document.get("authority"))])
    return ClientSettings(Setting(document.get("server"), source), key, context, authority)


def context_file(name: str) -> Path:
    """The file of a context. Raises UsageProblem where that is no name."""
    if not _CONTEXT_NAME.fullmatch(name):
        raise UsageProblem(f"{name!r} is no name of a context", "use letters, digits, '.', '_' and '-', for example prod")
    return user_file() if name == DEFAULT_CONTEXT else user_file().parent / "contexts" / f"{name}.json"


def existing_context(name: str) -> Path:
    """The file of a context that is stored. Raises UsageProblem where there is none of this name."""
    path = context_file(name)
    if not path.is_file():
        known = ", ".join(context_names()) or "none"
        raise UsageProblem(f"there is no context {name}; stored: {known}", f"paceline login --server URL --api-key KEY --store-as {name}")
    return path


def context_names() -> list[str]:
    """The stored contexts, by name, the default one first."""
    default = [DEFAULT_CONTEXT] if user_file().is_file() else []
    return default + sorted(path.stem for path in (user_file().parent / "contexts").glob("*.json"))


def context_server(name: str) -> str:
    """The server of a stored context."""
    return str(_read(context_file(name)).get("server"))


def use_context(name: str) -> None:
    """Make a context the current one."""
    file = _current_file()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if name == DEFAULT_CONTEXT:
        file.unlink(missing_ok=True)
    else:
        file.write_text(name + "\n")


def _current_file() -> Path:
    return user_file().parent / "context"


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
    return [path for path in (project, context_file(_context(None).value or "")) if path is not None and path.is_file()]


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
    """Whether the current context has this server with this key, so that every folder reaches it."""
    path = context_file(_context(None).value or "")
    return (
        path.is_file()
        and why_not_trusted(path) is None
        and {**_read(path), "authority": ""} == {"server": server, "api_key": api_key, "authority": ""}
    )


def store(path: Path, server: str, api_key: str, authority: str | None = None) -> None:
    pinned = {"authority": authority} if authority else {}
    write_private(path, {"server": server.rstrip("/"), "api_key": api_key} | pinned)


def write_private(path: Path, document: dict[str, str]) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(document, file)
    temporary.replace(path)


#: Tells a process of ours where its output goes, so that it can keep that file small.
LOG_FILE = "PACELINE_LOG_FILE"


def child_environment(**changes: str) -> dict[str, str]:
    """The environment for a process that the command line starts: without MOCK_DB, since a stack keeps what it has."""
    return {name: value for name, value in os.environ.items() if name != "MOCK_DB"} | changes


def allowed_hosts(*names: str) -> str:
    """PACELINE_ALLOWED_HOSTS of this environment, with these hosts."""
    set_already = os.environ.get("PACELINE_ALLOWED_HOSTS", "").split(",")
    return ",".join(dict.fromkeys(name.strip() for name in (*set_already, *names) if name.strip()))


#: What a coordinator of this machine reads that only says where things are, or to which stores this shell's credentials may go.
_HARMLESS_TO_SHARE = ("PACELINE_DASHBOARD", "PACELINE_CACHE", "PACELINE_STORE_ENDPOINTS")


def shell_variables() -> dict[str, str]:
    """A copy of the variables of the shell that the command was typed in."""
    return dict(os.environ)


def in_slurm_job() -> bool:
    """Whether this command was typed in a job of Slurm, whose end is a SIGTERM for all of the job's processes."""
    return "SLURM_JOB_ID" in os.environ


def forget_other_coordinators() -> None:
    """Remove the variables that configure a coordinator, or name its databases, from this process and from what it starts."""
    named = [name for name in os.environ if name.startswith("PACELINE_") and name not in _HARMLESS_TO_SHARE]
    for name in (*named, "DATABASE_URL", "REDIS_URL"):
        os.environ.pop(name, None)


def has_display() -> bool:
    """Whether a browser can open a window here."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def terminal_type() -> str:
    """The type of this terminal, such as xterm-256color; empty where there is none."""
    return os.environ.get("TERM", "")


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
    return f"{'user' if user_file().parent in path.parents else PROJECT} file {path}"


def _read(path: Path) -> dict[str, str]:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageProblem(f"{path} cannot be read: {error}", "repair or delete it, then run 'paceline login'") from error
    if not isinstance(document, dict):
        raise UsageProblem(f"{path} does not hold a JSON object", "delete it, then run 'paceline login'")
    return document
