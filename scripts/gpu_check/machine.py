"""What there is to check on, and whether a check can begin at all."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Literal

#: What rows import, directly or through the trainer.
PACKAGES = ("torch", "numpy", "msgspec", "packaging", "pydantic", "pynvml", "safetensors", "yaml")
#: Without GPUs rows run their code on so many ranks.
CPU_RANKS = 2


class RowSkippedError(Exception):
    """This machine, or this version, lacks what a row checks."""


class CannotCheckError(Exception):
    """Nothing can be checked on this machine; the message says why."""


@dataclass(frozen=True)
class Machine:
    device: Literal["cpu", "cuda"]
    ranks: int  # that can run side by side: GPUs, or CPU_RANKS
    quick: bool  # tiny models and few steps: what is measured is not judged

    @property
    def devices(self) -> str:
        kind = "GPU" if self.device == "cuda" else "CPU rank"
        return f"{self.ranks} {kind}{'' if self.ranks == 1 else 's'}"

    def require(self, ranks: int) -> None:
        if self.ranks < ranks:
            raise RowSkippedError(f"needs {ranks} GPUs, and there is {self.devices}")


def require_packages() -> None:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise CannotCheckError(
            f"this Python has no {', '.join(missing)}: install what requirements.txt names, or set PYTHON to one that has them"
        )


def find_machine(device: Literal["cpu", "cuda"], *, quick: bool) -> Machine:
    """Never starts CUDA: rows do, each in processes of its own."""
    import torch

    if device == "cpu":
        return Machine("cpu", CPU_RANKS, quick)
    if torch.version.cuda is None:
        raise CannotCheckError(
            f"torch {torch.__version__} is a build without CUDA: install one that has it, set PYTHON to a Python that does, or use --device cpu"
        )
    count = torch.cuda.device_count()
    if count == 0:
        raise CannotCheckError("no NVIDIA GPU that torch could use: look at nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu")
    return Machine("cuda", count, quick)
