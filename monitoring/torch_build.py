"""What torch this Python has, found out without importing it, which takes seconds."""

from __future__ import annotations

import runpy
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class TorchBuild:
    version: str
    cuda: str | None  # the version of CUDA that it was built with; None: it cannot use an NVIDIA GPU

    @property
    def description(self) -> str:
        return f"torch {self.version} is a build {f'for CUDA {self.cuda}' if self.cuda else 'without CUDA'}"

    @property
    def reinstall(self) -> str:
        """The command that puts PyPI's build of this version in its place. Without the option pip takes the one that is there to be right."""
        return f"pip install --force-reinstall torch=={self.version.partition('+')[0]}"


def find_torch() -> TorchBuild | None:
    """Return the build of torch that an import would find, as its own `torch/version.py` states it; None where there is no torch."""
    found = find_spec("torch")
    if found is None or found.origin is None:
        return None
    stated = runpy.run_path(str(Path(found.origin).with_name("version.py")))
    return TorchBuild(str(stated["__version__"]), stated.get("cuda"))
