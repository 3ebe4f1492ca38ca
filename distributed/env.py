"""The rank side's environment variables: read and written here and nowhere else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

RANK_FOLDER = "PACELINE_RANK_FOLDER"


class Place(Protocol):
    """A rank's place in its world, as far as torchrun's variables tell it."""

    @property
    def rank(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_world_size(self) -> int: ...
    @property
    def node_rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def store_host(self) -> str: ...


def rank_environment(place: Place) -> dict[str, str]:
    """torchrun's variables, but for the rendezvous: our ranks meet in a store of our own."""
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.world_size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_world_size),
        "GROUP_RANK": str(place.node_rank),
    }


def script_environment(place: Place, master_port: int) -> dict[str, str]:
    """What torchrun would give a script; MASTER_PORT is free on the gang's first node, where the script's rank 0 listens."""
    return rank_environment(place) | {
        "MASTER_ADDR": place.store_host,
        "MASTER_PORT": str(master_port),
        "TORCHELASTIC_RESTART_COUNT": str(max(0, place.generation - 1)),
    }


def enter(place: Place, interface: str | None, folder: Path) -> None:
    """Tell this process's libraries where it stands. Before each process group.

    Of NCCL's errors torch would make the end of the process, where survivors are to go on: `distributed.abort` breaks off what they wait in.
    """
    os.environ.update(rank_environment(place) | {RANK_FOLDER: str(folder)})
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    if interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        os.environ["NCCL_SOCKET_IFNAME"] = interface


def import_also(folder: Path) -> None:
    """A script that is executed from this process finds the packages in `folder`, after those it is told to find."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(folder))))


def never_touch_cuda() -> None:
    """Let `torch.cuda.is_available` ask NVML: the CUDA runtime must not start in a process that will fork."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


def intra_op_threads() -> int:
    """One, a slot's worth, unless the job's environment says otherwise."""
    value = os.environ.get("OMP_NUM_THREADS", "")
    return int(value) if value.isdigit() and int(value) > 0 else 1


@dataclass(frozen=True)
class Position:
    """Where this process stands, by its environment."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int


def position() -> Position:
    """A world of one where nothing says otherwise."""
    read = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")}
    return Position(
        rank=int(read["RANK"] or 0),
        world_size=int(read["WORLD_SIZE"] or 1),
        local_rank=int(read["LOCAL_RANK"] or 0),
        local_world_size=int(read["LOCAL_WORLD_SIZE"] or 1),
        node_rank=int(read["GROUP_RANK"] or 0),
    )


def rendezvous_address() -> str | None:
    """Where the ranks that torchrun started meet, as host:port; None where nobody says."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    return f"{host}:{port}" if host and port else None


def rank_folder() -> Path | None:
    """Where this rank leaves its metrics; None outside a job."""
    value = os.environ.get(RANK_FOLDER)
    return Path(value) if value else None


def cache_directory() -> Path:
    """$PACELINE_CACHE, or the user's cache folder."""
    chosen = os.environ.get("PACELINE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"
