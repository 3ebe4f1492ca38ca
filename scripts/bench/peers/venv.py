"""An environment for torchft that shares this one's torch: its packages lie beside ours, and none of them may bring another torch."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from scripts.steps import CACHE, StepError, run

HOME = CACHE / "peers"
TORCHFT = "torchft-nightly==2026.10.26"
#: What torchft needs and is not here yet; nothing of it knows torch.
NEEDED = "opentelemetry-exporter-otlp-proto-http>=1.39"


class PeerMissingError(Exception):
    """A peer that cannot run here; the message says why."""


def torchft_bin() -> Path:
    """The folder of an environment's programs that has torchft; made at the first call."""
    programs = HOME / "bin"
    if not _imports(programs):
        try:
            _make(programs)
        except (StepError, OSError) as error:
            raise PeerMissingError(f"torchft is left out: {error}") from error
        if not _imports(programs):
            raise PeerMissingError(
                f"torchft is left out: {TORCHFT} does not import beside torch; see {programs / 'python'} -c 'import torchft'"
            )
    return programs


def _make(programs: Path) -> None:
    run("making an environment for torchft", [sys.executable, "-m", "venv", "--clear", HOME])
    beside = Path(sysconfig.get_path("purelib", vars={"base": str(HOME), "platbase": str(HOME)}))
    (beside / "paceline.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip: list[str | Path] = [programs / "python", "-m", "pip", "install", "--quiet"]
    run("installing torchft beside our torch", [*pip, "--no-deps", TORCHFT])
    run("installing what torchft needs", [*pip, NEEDED])


def _imports(programs: Path) -> bool:
    """Whether torchft is there, with our torch and no other."""
    python = programs / "python"
    if not python.exists():
        return False
    told = subprocess.run([python, "-c", "import torchft, torch; print(torch.__file__)"], capture_output=True, text=True, check=False)
    return told.returncode == 0 and told.stdout.startswith(sysconfig.get_path("purelib"))
