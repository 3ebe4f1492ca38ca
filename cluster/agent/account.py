"""The account that a node's ranks run as, where it is not the agent's own: `--run-as USER`.

The agent must be root. Every user can then enter the agent's folder, and no other user can read it; the folder of each rank belongs to
the account. What a rank may put into its folder is therefore not believed: see `read_order` and `monitoring.files.open_file`.
"""

from __future__ import annotations

import logging
import os
import pwd
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.cluster.agent.errors import RunAsError
from paceline.cluster.agent.processes import PR_SET_DUMPABLE, prctl

ENTERED_BY_ALL = 0o711
CHECK_TIMEOUT_SECONDS = 60.0

log = logging.getLogger(__name__)

#: Variables of the agent's that name places of the agent's user.
_NOT_ITS_OWN = frozenset({"XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "PYTHONUSERBASE"})


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int
    home: str
    shell: str

    def become(self) -> None:
        """Change a forked child to this account for good: groups first, then user; no right of root is left. The process may be traced
        and dumped like any other of the user."""
        os.initgroups(self.name, self.gid)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        prctl(PR_SET_DUMPABLE, 1)
        own = self.environment(os.environ)
        for name in os.environ.keys() - own.keys():
            del os.environ[name]
        os.environ.update(own)

    def environment(self, of_agent: Mapping[str, str]) -> dict[str, str]:
        """The agent's variables as this account has them: its own home and shell, and no places of the agent's user."""
        own = {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}
        return {name: value for name, value in of_agent.items() if name not in _NOT_ITS_OWN} | own

    def process_options(self, variables: Mapping[str, str]) -> dict[str, Any]:
        """The options of `subprocess` with which a program runs as this account, as a rank does: in all of its groups, with its own home. `variables`:
        those of the agent that it may see."""
        groups = os.getgrouplist(self.name, self.gid)
        return {"user": self.uid, "group": self.gid, "extra_groups": groups, "cwd": "/", "env": self.environment(variables)}

    def own(self, path: Path) -> None:
        """Give a file or folder to this account. A link is not followed."""
        os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def open_up(self, folder: Path, below: Path) -> None:
        """Let every user enter `folder` and the folders between it and `below`, without reading their contents."""
        for path in (folder, *(each for each in below.parents if folder in each.parents)):
            path.chmod(ENTERED_BY_ALL)

    def require_entry(self, folder: Path) -> None:
        """Raise RunAsError where the account cannot run this Python or cannot enter `folder`, so that no rank could start. A Python that
        it takes from elsewhere is only warned of."""
        command = [sys.executable, "-c", "import os, sys; os.chdir(sys.argv[1]); print(sys.base_prefix)", str(folder)]
        done = subprocess.run(
            command,
            user=self.uid,
            group=self.gid,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=CHECK_TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise RunAsError(
                f"--run-as {self.name}: that user cannot enter {folder} with {sys.executable} ({why}); "
                "choose a --data whose parent folders everybody may enter (chmod o+x), and a Python that everybody may run"
            )
        if done.stdout.strip() != sys.base_prefix:
            log.warning(
                "ranks run as %s find the Python of %s instead of %s, which that user cannot read; install it where all users may read it",
                self.name,
                done.stdout.strip(),
                sys.base_prefix,
            )


def find_account(name: str) -> Account:
    """Find the account of a user by its name. Raises RunAsError where ranks cannot run as that user."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise RunAsError(f"--run-as {name}: there is no such user on this machine; create it, e.g. useradd --system {name}") from None
    if os.geteuid() != 0:
        raise RunAsError(f"--run-as {name} needs root, to start ranks as another user: start the agent as root, or leave --run-as out")
    if found.pw_uid == 0:
        raise RunAsError(f"--run-as {name} is root, whom nothing is kept from: name a user without rights, or leave --run-as out")
    return Account(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir, found.pw_shell or "/bin/sh")
