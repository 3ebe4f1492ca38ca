"""Checks whether the ranks of a job would find one folder for their checkpoints, as far as nodes report their folders and mounts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.schemas.common import FieldError
from paceline.api.services.specs.job_views import requirements_of
from paceline.api.services.specs.node_facets import disk_of, folder_at, label_facets_of, taints_of
from paceline.cluster.policy.requirements import Requirements, facets
from paceline.cluster.states import NodeState
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec

POINTER = "/checkpoint/directory"
WAY_OUT = (
    "set checkpoint.directory to a path on a file system that all of them mount or to an object store (s3://BUCKET/PREFIX), "
    "or start agents with --checkpoints on a shared one"
)
NAMED_WAY_OUT = (
    "mount one file system there on all of them and start their agents again, name an object store (s3://BUCKET/PREFIX), or set checkpoint.shared to true "
    "where it is one folder all the same: behind a link, or exported by one of them"
)
MOST_NAMED = 8
#: Nodes that a job may still be placed on, now or when they are back.
MAY_SERVE = (NodeState.READY, NodeState.CORDONED, NodeState.UNREACHABLE)


async def check(session: AsyncSession, spec: JobSpec) -> None:
    """Raises ProblemError `no_shared_folder` where no nodes that the job could be placed on share a folder."""
    if _needs_one(spec):
        refuse_apart(spec, await node_rows.present(session))


def refuse_apart(spec: JobSpec, nodes: Sequence[NodeRow]) -> None:
    """Raises ProblemError `no_shared_folder` where of `nodes` too few share the folder in which the job saves.

    Nodes that do not report their folders may share them with any other, and where too few nodes are here, others may yet join. By its mounts a folder
    that the job names may lie apart and still be one, behind a link for example: then the job says so (`checkpoint.shared`)."""
    if not _needs_one(spec):
        return
    apart = _apart(spec, nodes, _fewest_blocks(spec))
    if not apart:
        return
    fewest, names, directory = _fewest_nodes(spec, apart), _names(apart), derived.named_folder(spec)
    shared = (
        f"have checkpoint.directory={spec.checkpoint.directory} as one folder, by their mounts"
        if directory
        else "share their default folder"
    )
    why = f"{fewest} nodes have to see the same checkpoints, and no {fewest} of those here {shared} ({names})"
    way_out = NAMED_WAY_OUT if directory else WAY_OUT
    raise ProblemError(
        "no_shared_folder",
        f"{POINTER}: {why}; {way_out}",
        errors=[FieldError(pointer=POINTER, code="no_shared_folder", message=why, hint=way_out)],
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


def named_folder_warning(spec: JobSpec, nodes: Sequence[NodeRow]) -> str | None:
    """The warning for a job that is to have more ranks than fit on nodes which share its `checkpoint.directory`; None: they fit, or the nodes do not tell."""
    if derived.named_folder(spec) is None or not (apart := _apart(spec, nodes, spec.resources.blocks)):
        return None
    return (
        f"checkpoint.directory={spec.checkpoint.directory} is not one folder for {_names(apart)}, by what was mounted there when their agents started: "
        f"the job will have fewer ranks than {spec.world_size}; {NAMED_WAY_OUT}"
    )


def _needs_one(spec: JobSpec) -> bool:
    return _fewest_blocks(spec) > 1 and derived.needs_one_folder(spec)


def _may_grow(spec: JobSpec) -> bool:
    return spec.resources.most_ranks > spec.world_size


def _fewest_blocks(spec: JobSpec) -> int:
    """The least size with which the job starts."""
    wanted, least = spec.resources.blocks, spec.resources.min_blocks
    return min(wanted, least or wanted) if derived.closes_up(spec) else wanted


def _apart(spec: JobSpec, nodes: Sequence[NodeRow], blocks: int) -> list[NodeRow]:
    """The most nodes of one kind that together hold so many blocks, and of which none do that share the job's folder; none where such nodes do, or where
    all that are here hold fewer."""
    kinds = [kind for kind in _kinds(spec, nodes) if _holds(spec, kind, blocks)]
    if any(_holds(spec, together, blocks) for kind in kinds for together in _together(kind, derived.named_folder(spec))):
        return []
    return max(kinds, key=len, default=[])


def _holds(spec: JobSpec, nodes: Sequence[NodeRow], blocks: int) -> bool:
    """Whether these nodes, if nothing else were on them, hold so many blocks."""
    size = spec.resources.slots_per_block
    found = sum(min(1, node.slots // size) if spec.resources.spread else node.slots // size for node in nodes)
    return found >= blocks


def _fewest_nodes(spec: JobSpec, nodes: Sequence[NodeRow]) -> int:
    """On how few of these nodes, which hold the job, it could start."""
    widest = sorted(nodes, key=lambda node: -node.slots)
    return next(count for count in range(1, len(widest) + 1) if _holds(spec, widest[:count], _fewest_blocks(spec)))


def _names(nodes: Sequence[NodeRow]) -> str:
    return ", ".join(node.name for node in nodes[:MOST_NAMED])


def _kinds(spec: JobSpec, nodes: Iterable[NodeRow]) -> list[list[NodeRow]]:
    """The nodes that the job could be placed on, by device: a gang has one kind."""
    wanted, size = requirements_of(spec), spec.resources.slots_per_block
    fitting = [node for node in nodes if node.state in MAY_SERVE and node.slots >= size and _obstacle(wanted, node) is None]
    return [kind for device in ("cuda", "cpu") if (kind := [node for node in fitting if node.device == device])]


def _obstacle(wanted: Requirements, node: NodeRow) -> str | None:
    return wanted.obstacle(node.device, label_facets_of(node), facets(taints_of(node)))


def _together(nodes: Sequence[NodeRow], directory: str | None) -> list[list[NodeRow]]:
    """The largest sets of the nodes that may share one folder. `directory`: as of `folder_at`."""
    folders = [(folder_at(node, directory), node) for node in nodes]
    anywhere = [node for folder, node in folders if folder is None]
    known = sorted({folder for folder, _ in folders if folder is not None})
    return [[*(node for folder, node in folders if folder == each), *anywhere] for each in known] or [anywhere]
