"""Checks whether the ranks of a job would find one folder for their checkpoints, as far as nodes report their folders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.schemas.common import FieldError
from paceline.api.services.specs.job_views import requirements_of
from paceline.api.services.specs.node_facets import disk_of, label_facets_of, place_of, taints_of
from paceline.cluster.policy.requirements import Requirements, facets
from paceline.cluster.states import NodeState
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows
from paceline.objects.location import place_at
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import ScriptWorkload

POINTER = "/checkpoint/directory"
WAY_OUT = (
    "set checkpoint.directory to a path on a file system that all of them mount or to an object store (s3://BUCKET/PREFIX), "
    "or start agents with --checkpoints on a shared one"
)
MOST_NAMED = 8
#: Nodes that a job may still be placed on, now or when they are back.
MAY_SERVE = (NodeState.READY, NodeState.CORDONED, NodeState.UNREACHABLE)


async def check(session: AsyncSession, spec: JobSpec) -> None:
    """Raises ProblemError `no_shared_folder` where no nodes that the job could be placed on share a folder."""
    if _needs_one(spec):
        refuse_apart(spec, await node_rows.present(session))


def refuse_apart(spec: JobSpec, nodes: Sequence[NodeRow]) -> None:
    """Raises ProblemError `no_shared_folder` where of `nodes` too few share their default folder for a job that uses it.

    Only certain cases are refused: nodes that do not report their folder may share it with any other, and where too few nodes are here,
    others may yet join."""
    if not _needs_one(spec):
        return
    kinds = [kind for kind in _kinds(spec, nodes) if _holds(spec, kind)]
    if not kinds or any(_holds(spec, together) for kind in kinds for together in _together(kind)):
        return
    largest = max(kinds, key=len)
    fewest, names = _fewest_nodes(spec, largest), ", ".join(node.name for node in largest[:MOST_NAMED])
    why = f"{fewest} nodes have to see the same checkpoints, and no {fewest} of those here share their default folder ({names})"
    raise ProblemError(
        "no_shared_folder",
        f"{POINTER}: {why}; {WAY_OUT}",
        errors=[FieldError(pointer=POINTER, code="no_shared_folder", message=why, hint=WAY_OUT)],
    )


def warning(spec: JobSpec, nodes: Sequence[NodeRow], placed: Collection[str] = ()) -> str | None:
    """The warning of a plan for a job on several nodes that names no folder; None where all present nodes share one.

    `placed` are the ids of the nodes that the job would run on now."""
    if not derived.saves_in_default_folder(spec) or spec.resources.most_ranks <= spec.resources.slots_per_block:
        return None
    chosen = [node for node in nodes if node.id in placed]
    kinds = _kinds(spec, nodes)
    enough = any(_holds(spec, kind, spec.resources.blocks) for kind in kinds)
    if len(chosen) == 1 and not _may_grow(spec):
        return None
    if enough and all(disk_of(kind[0]) and len({disk_of(node) for node in kind}) == 1 for kind in kinds):
        return None
    return "checkpoint.directory is not set: on multiple machines, the default checkpoint folder must be on shared storage"


def named_folder_warning(spec: JobSpec, nodes: Sequence[NodeRow], placed: Collection[str] = ()) -> str | None:
    """The warning for a job whose `checkpoint.directory` is a path that lies on different disks of its nodes, as far as their mounts tell. None:
    it does not, or that is not known. A link may lead elsewhere, so such a job is not refused.

    `placed` are the ids of the nodes that the job would run on now; without any, those count that it could be placed on."""
    directory = spec.checkpoint.directory
    if directory is None or isinstance(spec.workload, ScriptWorkload) or not isinstance(path := place_at(directory), Path):
        return None
    chosen = [node for node in nodes if node.id in placed]
    if chosen:
        apart = chosen if len({place for node in chosen if (place := place_of(node, path))}) > 1 else []
    else:
        kinds = [kind for kind in _kinds(spec, nodes) if _holds(spec, kind)]
        fits = any(_holds(spec, together) for kind in kinds for together in _together(kind, lambda node: place_of(node, path)))
        apart = [] if fits else max(kinds, key=len, default=[])
    names = ", ".join(node.name for node in apart[:MOST_NAMED])
    return (
        f"checkpoint.directory={directory} is not one folder for {names}, by what was mounted there when their agents started: "
        "mount one file system there on all of them, or name an object store (s3://BUCKET/PREFIX)"
        if apart
        else None
    )


def _needs_one(spec: JobSpec) -> bool:
    return _fewest_blocks(spec) > 1 and derived.saves_in_default_folder(spec)


def _may_grow(spec: JobSpec) -> bool:
    return spec.resources.most_ranks > spec.world_size


def _fewest_blocks(spec: JobSpec) -> int:
    """The least size with which the job starts."""
    wanted, least = spec.resources.blocks, spec.resources.min_blocks
    return min(wanted, least or wanted) if derived.closes_up(spec) else wanted


def _holds(spec: JobSpec, nodes: Sequence[NodeRow], blocks: int | None = None) -> bool:
    """Whether these nodes, if nothing else were on them, hold so many blocks. Default: as many as the job starts with at least."""
    size = spec.resources.slots_per_block
    found = sum(min(1, node.slots // size) if spec.resources.spread else node.slots // size for node in nodes)
    return found >= (blocks or _fewest_blocks(spec))


def _fewest_nodes(spec: JobSpec, nodes: Sequence[NodeRow]) -> int:
    """On how few of these nodes, which hold the job, it could start."""
    widest = sorted(nodes, key=lambda node: -node.slots)
    return next(count for count in range(1, len(widest) + 1) if _holds(spec, widest[:count]))


def _kinds(spec: JobSpec, nodes: Iterable[NodeRow]) -> list[list[NodeRow]]:
    """The nodes that the job could be placed on, by device: a gang has one kind."""
    wanted, size = requirements_of(spec), spec.resources.slots_per_block
    fitting = [node for node in nodes if node.state in MAY_SERVE and node.slots >= size and _obstacle(wanted, node) is None]
    return [kind for device in ("cuda", "cpu") if (kind := [node for node in fitting if node.device == device])]


def _obstacle(wanted: Requirements, node: NodeRow) -> str | None:
    return wanted.obstacle(node.device, label_facets_of(node), facets(taints_of(node)))


def _together(nodes: Sequence[NodeRow], folder_of: Callable[[NodeRow], str | None] = disk_of) -> list[list[NodeRow]]:
    """The largest sets of the nodes that may share one folder. `folder_of`: its identity on a node; None: any other node may share it."""
    folders = [(folder_of(node), node) for node in nodes]
    anywhere = [node for folder, node in folders if folder is None]
    known = sorted({folder for folder, _ in folders if folder is not None})
    return [[*(node for folder, node in folders if folder == each), *anywhere] for each in known] or [anywhere]
