"""A machine with NVIDIA GPUs that are not there: a small libnvidia-ml.so.1 for the real nvidia-ml-py, and a torch that states to be built for CUDA.

The library is loaded when it is first used, so what is to see the cards is a process of its own, with `FakeMachine.environment`.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).parent / "monitoring" / "fake_nvml" / "nvml.c"
TIMEOUT_SECONDS = 60


def build_library(folder: Path) -> Path:
    """Compile the library into `folder`, which is to stand in LD_LIBRARY_PATH."""
    command = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)]
    subprocess.run(command, check=True, timeout=TIMEOUT_SECONDS)
    return folder


@dataclass(frozen=True)
class FakeMachine:
    """A machine with `cards` cards. Their UUIDs are its own, so that tests beside it do not meet its locks."""

    folder: Path
    cards: int
    cuda_torch: bool = True
    split: tuple[int, ...] = ()  # cards in MIG mode
    uuids: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "uuids", tuple(f"GPU-{uuid.uuid4()}" for _ in range(self.cards)))
        build_library(self.folder)
        lines = [f"gpus {self.cards}"]
        for index, each in enumerate(self.uuids):
            lines += [f"{index}.name NVIDIA Test 80GB", f"{index}.uuid {each}", f"{index}.memory_total 85899345920"]
            lines += [f"{index}.mig {int(index in self.split)}", f"{index}.memory_used 0", f"{index}.utilization {10 * (index + 1)}"]
        (self.folder / "state").write_text("\n".join(lines) + "\n")
        if self.cuda_torch:
            self._make_torch()

    def _make_torch(self) -> None:
        """This Python's torch, file by file, but for the one that states what it was built for."""
        real = find_spec("torch")
        assert real is not None
        assert real.origin is not None
        package = self.folder / "torch"
        package.mkdir()
        for path in Path(real.origin).parent.iterdir():
            if path.name not in ("version.py", "__pycache__"):
                (package / path.name).symlink_to(path)
        stated = Path(real.origin).with_name("version.py").read_text()
        (package / "version.py").write_text(f"{stated}\ncuda = '13.0'\n")

    def lose(self, card: int) -> None:
        """Let a card fall off the bus: NVML says of it that it is lost."""
        with (self.folder / "state").open("a") as state:
            state.write(f"{card}.lost 1\n")

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a process that runs on this machine."""
        found = {"FAKE_NVML_STATE": str(self.folder / "state"), "LD_LIBRARY_PATH": str(self.folder)}
        if not self.cuda_torch:
            return found
        return found | {"PYTHONPATH": os.pathsep.join(filter(None, [str(self.folder), os.environ.get("PYTHONPATH")]))}
