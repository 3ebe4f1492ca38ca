"""Estimate the time in which gradients are summed over replicas, by the algorithm and the compression that a job asks for. Pure.

A hierarchy sums within machines, between ranks with the same place, and shares the result within machines. Between machines, or over all replicas where
there is no hierarchy, top-k gathers values and indices from every rank (Lin et al. 2018), and PowerSGD sums two factors of each matrix (Vogels et al.
2019): here of one square matrix a layer. Parameters that are always sent whole, and the arithmetic of compressing, are left out.
"""

from __future__ import annotations

import math

from paceline.distributed.compression.options import CompressionOptions
from paceline.parallelism.model_shape import MASTER_BYTES
from paceline.parallelism.planning.machines import Link, Machines, axis_link
from paceline.parallelism.planning.memory import TrainingSetup
from paceline.parallelism.planning.topology import ranks_inside

#: The size of a number in bf16 or fp16, and of a value with its index.
HALF_BYTES, INDEXED_BYTES = 2, 8


def sum_seconds(elements: float, layers: int, setup: TrainingSetup, machines: Machines) -> float:
    """Return the seconds of the sum of `elements` gradients of `layers` layers over the replicas and context ranks."""
    degrees, options = setup.degrees, setup.communication
    ranks = degrees.replicate * degrees.context
    link, sharers = axis_link(setup.gradient_axis, degrees, machines)
    by_node = machines.ranks_by_node
    beside = by_node[0] // ranks_inside(setup.gradient_axis, degrees)
    if options.algorithm == "hierarchical" and 1 < beside < ranks and len(set(by_node)) == 1:
        within = 2 * machines.within.ring(beside, MASTER_BYTES * elements)
        return within + _over(link, ranks // beside, elements / beside, layers, by_node[0], options.compression)
    return _over(link, ranks, elements, layers, sharers, options.compression)


def _over(link: Link, ranks: int, elements: float, layers: int, sharers: int, options: CompressionOptions) -> float:
    match options.compression:
        case "top_k":
            return link.ring(ranks, ranks * INDEXED_BYTES * options.ratio * elements, sharers)
        case "power_sgd":
            factor = options.rank * math.sqrt(elements * layers)
            return 2 * 2 * link.ring(ranks, MASTER_BYTES * factor, sharers)
        case "bf16" | "fp16":
            return 2 * link.ring(ranks, HALF_BYTES * elements, sharers)
        case "none":
            return 2 * link.ring(ranks, MASTER_BYTES * elements, sharers)
