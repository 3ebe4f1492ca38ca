"""How a job's replicas sum their gradients, in words: what is done where its ranks are, which is not always what the job asks for. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from paceline.cli.api_types import Node, Rank

_SUMS = {"auto": "summed in whichever way is measured to be fastest", "ring": "summed over a ring, machine by machine"}
_COMPRESSIONS = {
    "auto": "compressed where that saves enough",
    "bf16": "sent as bf16",
    "fp16": "sent as fp16",
    "top_k": "the largest {ratio:g} of the elements sent, the rest later",
    "power_sgd": "matrices sent as factors of rank {rank}, the rest later",
}
_BY_NCCL = "summed by NCCL, which knows the links"


def gradient_words(asked: Mapping[str, object], ranks: Sequence[Rank], nodes: Mapping[str, Node]) -> str:
    """Return what is done; empty for the default. `asked`: the job's `communication` section. `nodes`: by id, as far as they are known."""
    algorithm, compression = str(asked.get("algorithm", "")), str(asked.get("compression", "none"))
    on_gpus = any(node.device == "cuda" for node in nodes.values())
    if on_gpus and algorithm in ("ring", "hierarchical") and compression == "none":
        return _BY_NCCL
    if algorithm == "hierarchical":
        sums = _hierarchical(ranks, nodes, over_all="summed over all ranks" if on_gpus else "summed over a ring, machine by machine")
    else:
        sums = _SUMS.get(algorithm, "")
    return "; ".join(each for each in (sums, _COMPRESSIONS.get(compression, "").format(**asked)) if each)


def _hierarchical(ranks: Sequence[Rank], nodes: Mapping[str, Node], *, over_all: str) -> str:
    """Return what becomes of a hierarchy. `over_all`: what is done where there is none."""
    reasons = filter(None, (_why_no_hierarchy(ranks_by_host) for ranks_by_host in _replicas(ranks, nodes)))
    why = next(reasons, None)
    return f"{over_all}: {why}" if why else "summed within machines, then between them"


def _why_no_hierarchy(ranks_by_host: Mapping[str, int]) -> str | None:
    """Return why ranks have none; `distributed/collectives/placement.py` decides it for them. None: they have one."""
    counts = set(ranks_by_host.values())
    if len(ranks_by_host) == 1:
        return "all are on one machine"
    if len(counts) > 1:
        return "machines have not as many ranks each"
    return "each is on a machine of its own" if counts == {1} else None


def _replicas(ranks: Sequence[Rank], nodes: Mapping[str, Node]) -> Collection[Mapping[str, int]]:
    """Return the numbers of ranks by host, of ranks that sum gradients with each other: those that differ in their replica alone. A host is one machine,
    however many agents it has."""
    groups: dict[tuple[tuple[str, int], ...], Counter[str]] = defaultdict(Counter)
    for rank in ranks:
        if not rank.parked:
            node = nodes.get(rank.node_id)
            beside = tuple(sorted((axis, place) for axis, place in rank.place.items() if axis != "replicate"))
            groups[beside][node.hostname if node else rank.node_name] += 1
    return groups.values()
