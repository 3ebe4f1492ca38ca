"""A stand-in for uv: resolves what it is asked for to itself, and notes what it was told to do in `said` beside it."""

from __future__ import annotations

import sys
from pathlib import Path

PROGRAM = """#!{python}
import os, subprocess, sys, time, zipfile
words = sys.argv[1:]
with open({said!r}, "a") as file:
    file.write(" ".join(words) + chr(10))
if words[:2] == ["pip", "compile"]:
    wanted = [line.strip() for line in open(words[-1]) if not line.startswith("-")]
    if "broken==1" in wanted:
        print("  × No solution found when resolving dependencies:", "  ╰─▶ Because broken was not found", sep=chr(10), file=sys.stderr)
        sys.exit(1)
    if "slow==1" in wanted:
        child = subprocess.Popen(["sleep", "600"], close_fds=False)
        open({pids!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
        time.sleep(600)
    open(words[words.index("--output-file") + 1], "w").write(chr(10).join(wanted))
elif words[0] == "venv":
    packages = os.path.join(words[-1], "lib", "python{minor}", "site-packages")
    os.makedirs(packages)
    os.makedirs(os.path.join(words[-1], "bin"))
    os.symlink({python!r}, os.path.join(words[-1], "bin", "python"))
elif words[-1].endswith(".whl"):
    venv = os.path.dirname(os.path.dirname(words[words.index("--python") + 1]))
    with zipfile.ZipFile(words[-1]) as wheel:
        wheel.extractall(os.path.join(venv, "lib", "python{minor}", "site-packages"))
else:
    print("Installed", flush=True)
"""


class FakeUv:
    """The program, and what it has noted."""

    def __init__(self, folder: Path) -> None:
        self.path, self._said, self.pids = folder / "uv", folder / "said", folder / "pids"
        minor = f"{sys.version_info.major}.{sys.version_info.minor}"
        self.path.write_text(PROGRAM.format(python=sys.executable, said=str(self._said), pids=str(self.pids), minor=minor))
        self.path.chmod(0o755)

    @property
    def commands(self) -> list[str]:
        """The first words of each command so far; `node` for the one that installs what the node has."""
        lines = self._said.read_text().splitlines() if self._said.exists() else []
        return [_short(line.split()) for line in lines]


def _short(words: list[str]) -> str:
    return "node" if words[-1].endswith(".whl") else " ".join(words[: 1 if words[0] == "venv" else 2])
