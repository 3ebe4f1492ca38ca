"""The environment variables by which a rank knows its place: those of torchrun, and Paceline's own.

What a rank has of its agent's environment is in `cluster/agent/confinement.py`."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

RANK_FOLDER = "PACELINE_RANK_FOLDER"
LOG_FOLDER = "PACELINE_LOG_DIR"
ARTIFACTS_FOLDER = "PACELINE_ARTIFACTS"
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
#: The variables of a rank that sees its own card alone and uses LOCAL_RANK as the index of that card.
VIRTUAL_LOCAL_RANK = {"LOCAL_RANK": "0"}
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
#: Of what a rank gets, the variables that its node's owner knows better than Paceline: those of the agent's own environment stay.
OWNERS_CHOICE = frozenset({*_INTERFACES, "OMP_NUM_THREADS", "PYTHONFAULTHANDLER", "TORCH_NCCL_ASYNC_ERROR_HANDLING"})


class RankCoordinates(Protocol):
    """The coordinates of a rank in its world, as torchrun's variables give them."""

    @property
    def rank(self) -> int:
        """The rank in the world, from 0."""

    @property
    def local_rank(self) -> int:
        """The rank among those of its node, from 0."""

    @property
    def local_world_size(self) -> int:
        """How many ranks its node has."""

    @property
    def node_rank(self) -> int:
        """The node among those of the world, from 0."""

    @property
    def node_count(self) -> int:
        """How many nodes the world has; 0: not known."""

    @property
    def world_size(self) -> int:
        """How many ranks the world has."""

    @property
    def restarts(self) -> int:
        """How often the world has begun anew."""

    @property
    def store_host(self) -> str:
        """The address at which the ranks meet."""


def rank_environment(place: RankCoordinates) -> dict[str, str]:
    """Return torchrun's variables for a rank, without those of the rendezvous: our ranks meet in a store of our own."""
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.world_size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_world_size),
        "GROUP_RANK": str(place.node_rank),
    }


@dataclass(frozen=True)
class ScriptLaunch:
    """The contents of torchrun's variables beside a rank's coordinates."""

    run_id: str
    max_restarts: int
    master_port: int  # of the gang's first node
    error_file: Path  # where `torch.distributed.elastic.multiprocessing.errors.record` leaves an exception
    store_is_served: bool = False  # at that port, by the node; else the port is free, and the script's rank 0 serves the store
    interface: str | None = None  # the node's, for gloo and NCCL


def script_environment(place: RankCoordinates, launch: ScriptLaunch) -> dict[str, str]:
    """Return the variables that torchrun gives its workers, with torchrun's meaning, and the network interface of this node.

    Every node runs the role `default`. `OMP_NUM_THREADS` is 1 where several ranks share the machine, as torchrun sets it, and unset for a
    rank that has the machine for itself. Source: `torch/distributed/elastic/agent/server/local_elastic_agent.py` and
    `torch/distributed/run.py` of torch 2.13.
    """
    environment = rank_environment(place) | {
        "GROUP_WORLD_SIZE": str(place.node_count or -(-place.world_size // place.local_world_size)),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(place.rank),
        "ROLE_WORLD_SIZE": str(place.world_size),
        "MASTER_ADDR": place.store_host,
        "MASTER_PORT": str(launch.master_port),
        "TORCHELASTIC_RUN_ID": launch.run_id,
        "TORCHELASTIC_RESTART_COUNT": str(place.restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(launch.max_restarts),
        "TORCHELASTIC_USE_AGENT_STORE": str(launch.store_is_served),
        "TORCHELASTIC_ERROR_FILE": str(launch.error_file),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    if launch.interface is not None:
        environment |= dict.fromkeys(_INTERFACES, launch.interface)
    if ranks_of_machine(place) > 1:
        environment["OMP_NUM_THREADS"] = "1"
    return environment


def ranks_of_machine(place: RankCoordinates) -> int:
    """Return how many ranks share this rank's machine: those of its node, or all ranks where they meet over loopback."""
    return place.world_size if is_loopback(place.store_host) else place.local_world_size


def is_loopback(host: str) -> bool:
    """Whether `host`, an address or a name, is this machine and no other."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def export_rank(place: RankCoordinates, interface: str | None, folder: Path, former: str | None = None) -> None:
    """Set this process's variables for its libraries: its rank, its folder and its network interface.

    Call it before each process group is made. An interface that the job or the node's owner has chosen stays. `former`: the interface of the process's place before this one.

    torch would end the process on NCCL errors; that is turned off, since survivors are to continue: `distributed.abort` ends their waits.
    """
    os.environ.update(rank_environment(place) | {RANK_FOLDER: str(folder)})
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    if interface is not None:
        unchosen = [name for name in _INTERFACES if os.environ.get(name) in (None, former)]
        os.environ.update(dict.fromkeys(unchosen, interface))


def append_python_path(folder: Path) -> None:
    """Append `folder` to PYTHONPATH, so that Python programs started by this process find its packages after those of other folders."""
    os.environ["PYTHONPATH"] = os.pathsep.join([*python_path(), str(folder)])


def python_path() -> list[str]:
    """Return the folders that PYTHONPATH names."""
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def path_with_commands_of(*pythons: str) -> dict[str, str]:
    """Return a PATH that begins with the folders of these interpreters, in this order.

    So `python`, `torchrun` and `accelerate` are those beside the first that has them.
    """
    own = [os.path.dirname(python) for python in pythons]
    others = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return {"PATH": os.pathsep.join(dict.fromkeys([*own, *others]))}


def sets_heap() -> bool:
    """Return whether a variable tells the C library how to keep its heap."""
    return any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)


def wants_fault_handler() -> bool:
    """Whether a crash in native code is to leave the stack of its Python code in the output."""
    return bool(os.environ.get("PYTHONFAULTHANDLER"))


def never_touch_cuda() -> None:
    """Make `torch.cuda.is_available` ask NVML: the CUDA runtime must not start in a process that will fork."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


@contextlib.contextmanager
def no_card_visible() -> Iterator[None]:
    """Show this process no card for a while.

    An optimizer's step on the CPU asks the current stream of the card, if it sees one, whether it
    captures a graph, and that starts the CUDA driver: in a process that will fork, no fork could use a card then."""
    visible = os.environ.get(VISIBLE_DEVICES)
    os.environ[VISIBLE_DEVICES] = ""
    try:
        yield
    finally:
        if visible is None:
            del os.environ[VISIBLE_DEVICES]
        else:
            os.environ[VISIBLE_DEVICES] = visible


def visible_devices(cards: str) -> dict[str, str]:
    """Return the variable that shows a process these cards alone, by UUID and in this order; none for an empty text.

    CUDA reads it when it starts."""
    return {VISIBLE_DEVICES: cards}


def device_index(slot: int) -> int:
    """Return the index of the card of slot `slot` among the cards that this process sees.

    That is 0 where its agent shows it that card alone, and the slot where it sees the cards of all slots."""
    visible = os.environ.get(VISIBLE_DEVICES)
    return slot if visible is None or "," in visible else 0


def intra_op_threads(default: int = 1) -> int:
    """Return OMP_NUM_THREADS, or `default` where it is not a positive number. Paceline's own ranks use one thread, the share of a slot."""
    value = os.environ.get("OMP_NUM_THREADS", "")
    return int(value) if value.isdigit() and int(value) > 0 else default


@dataclass(frozen=True)
class Position:
    """The coordinates of this process in its world, read from its environment."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int


def position() -> Position:
    """Read this process's position from the environment. Variables that are not set mean a world of one.

    Raises ValueError if one of them is not a number.
    """
    read = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")}
    return Position(
        rank=int(read["RANK"] or 0),
        world_size=int(read["WORLD_SIZE"] or 1),
        local_rank=int(read["LOCAL_RANK"] or 0),
        local_world_size=int(read["LOCAL_WORLD_SIZE"] or 1),
        node_rank=int(read["GROUP_RANK"] or 0),
    )


def rendezvous_address() -> str | None:
    """Return where the ranks that torchrun started meet, as host:port, or None if MASTER_ADDR or MASTER_PORT is not set."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    return f"{host}:{port}" if host and port else None


def rank_folder() -> Path | None:
    """Return the folder into which this rank writes its metrics, or None outside a job."""
    value = os.environ.get(RANK_FOLDER)
    return Path(value) if value else None


def artifacts_folder() -> Path | None:
    """Return the folder whose files are kept with the job, or None outside a job."""
    value = os.environ.get(ARTIFACTS_FOLDER)
    return Path(value) if value else None


def cache_directory() -> Path:
    """Return $PACELINE_CACHE, or `paceline` in the user's cache folder."""
    chosen = os.environ.get("PACELINE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"


def data_cache_bytes() -> int:
    """Return $PACELINE_DATA_CACHE_GB in bytes, or 100 GB where it is not a positive number.

    That is the most that copies of data sets from object stores may take on this node together."""
    value = os.environ.get("PACELINE_DATA_CACHE_GB", "")
    return int(value) * 1_000_000_000 if value.isdigit() and int(value) > 0 else 100_000_000_000
