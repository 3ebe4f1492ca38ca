"""The job spec of what `paceline run` launches. Pure: the environment and the cluster's nodes are arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.cli.api_types import Node
from paceline.cli.errors import UsageProblem
from paceline.cli.launch.arguments import Launch
from paceline.cli.repeated_options import by_name

LONGEST_NAME = 63
#: Variables that Paceline would set for each rank, or that a private coordinator must not see, and that torchrun passes on as they are.
OVERRIDDEN = (
    "OMP_NUM_THREADS",
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "PYTHONFAULTHANDLER",
    "DATABASE_URL",
    "REDIS_URL",
)
#: They speak for this machine or its owner to the coordinator.
NEVER_PASSED = ("PACELINE_API_KEY", "PACELINE_JOIN_TOKEN")
#: How variables begin that training scripts and their libraries usually read.
_OF_TRAINING = """
    ACCELERATE_ AWS_ CLEARML_ COMET_ CUDA_ DS_ GLOO_ HF_ HUGGINGFACE_ KMP_ LD_LIBRARY_PATH LD_PRELOAD MKL_ MLFLOW_ NCCL_ NEPTUNE_ OMP_ PYTHONPATH
    PYTORCH TOKENIZERS_ TORCH TRANSFORMERS_ WANDB_
    """
_TRAINING_PREFIXES = tuple(_OF_TRAINING.split())
_OF_THE_NETWORK = re.compile(r"(CA_BUNDLE|CERT(_FILE|_DIR|_PATH)?|PROXY)\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_READY = "ready"


def spec_of(launch: Launch, ranks_per_node: int, folder: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """The job spec, which the coordinator validates. `folder` is where the script runs."""
    program = [launch.target, *launch.arguments]
    script: dict[str, Any] = (
        {"command": program} if launch.form == "command" else {launch.form: launch.target, "args": list(launch.arguments)}
    )
    if launch.grace_seconds is not None:
        script["grace_seconds"] = launch.grace_seconds
    if launch.virtual_local_rank:
        script["virtual_local_rank"] = True
    resources: dict[str, Any] = {"nodes": launch.nodes, "slots_per_node": ranks_per_node}
    if launch.min_nodes is not None:
        resources["min_nodes"] = launch.min_nodes
    if launch.nodes > 1:
        resources["spread"] = True  # torchrun's --nproc-per-node is LOCAL_WORLD_SIZE
    return {
        "name": job_name(launch),
        "script": script,
        "resources": resources,
        "fault_tolerance": {"max_restarts": launch.max_restarts},
        "environment": {"working_directory": str(folder), "variables": dict(variables)},
    }


def job_name(launch: Launch) -> str:
    """The script's name, spelled as names of jobs are: 1 to 63 lower-case letters, digits, '.', '_' and '-'."""
    name = launch.target if launch.form == "module" else Path(launch.target).name.removesuffix(".py")
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("._-")[:LONGEST_NAME].strip("._-") or "run"


def named_variables(named: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that `--env NAME` and `--env NAME=VALUE` give. Raises UsageProblem, also where one has two values."""
    variables: list[tuple[str, str]] = []
    for text in named:
        name, equals, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise UsageProblem(f"--env {text}: {name!r} is not the name of a variable", "write --env NAME or --env NAME=VALUE")
        if name in NEVER_PASSED:
            raise UsageProblem(f"--env {name}: it speaks for you to the coordinator and is never given to ranks", "leave it out")
        if not equals and name not in environment:
            raise UsageProblem(f"--env {name}: this shell has no variable {name}", f"write --env {name}=VALUE")
        variables.append((name, value if equals else environment[name]))
    return by_name("--env", variables, "a variable has one value: keep one of them")


def overridden_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of this shell that the ranks of a private coordinator would otherwise get with other values."""
    return {name: environment[name] for name in OVERRIDDEN if name in environment}


def names_to_pass(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The shell's variables that the agent of a private coordinator gives its ranks: all but Paceline's own."""
    return tuple(name for name in sorted(environment) if _VARIABLE.fullmatch(name) and not name.startswith("PACELINE_"))


def left_behind(environment: Mapping[str, str], passed: Iterable[str]) -> list[str]:
    """The note that ranks on a coordinator's nodes do not get this shell's variables; none where it has none that training reads."""
    known = sorted(name for name in environment if _concerns_training(name) and name not in set(passed))
    if not known:
        return []
    return [
        f"note: ranks get the variables of their node, not those of this shell ({', '.join(known)}); --env NAME passes one on,"
        " and everybody who may see the job can read it"
    ]


def _concerns_training(name: str) -> bool:
    """Proxies and certificates are how this machine reaches others; a node has its own."""
    return name.startswith(_TRAINING_PREFIXES) and _OF_THE_NETWORK.search(name) is None


def rank_filter(launch: Launch, ranks_per_node: int) -> str | None:
    """The ranks of the job that `--local-ranks-filter` selects, for the coordinator's log; None: all of them."""
    nodes = range(launch.nodes)
    ranks = [node * ranks_per_node + rank for node in nodes for rank in launch.local_ranks if 0 <= rank < ranks_per_node]
    return ",".join(map(str, ranks)) if launch.local_ranks else None


def slots_for(device: str, nodes: Sequence[Node], count: int) -> int:
    """How many ranks `--nproc-per-node gpu|cpu|xpu|auto` means: as many as `count` ready nodes have slots for. Raises UsageProblem."""
    ready = [node for node in nodes if node.state == _READY]
    kinds = {"gpu": ("cuda",), "cpu": ("cpu",), "xpu": ("xpu",), "auto": ("cuda", "cpu")}[device]
    for kind in kinds:
        slots = sorted((len(node.slots) for node in ready if node.device == kind), reverse=True)
        if len(slots) >= count:
            return slots[count - 1]
    there = ", ".join(f"{node.name}: {len(node.slots)} of {node.device}" for node in ready) or "none"
    raise UsageProblem(
        f"--nproc-per-node {device}: {count} ready nodes with such slots are needed; slots there: {there}",
        "write a number, for example --nproc-per-node 2",
    )
