"""Process groups: NCCL on GPUs, gloo for what lies in the host's memory; and breaking them off."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import HashStore  # type: ignore[attr-defined]  # documented, and not in its __all__

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import GenerationGroup, join
from paceline.distributed.retired_groups import retire_group
from paceline.training.link import RankPlace
from scripts.gpu_check.machine import Machine
from scripts.gpu_check.outcome import RowFailedError, Seen
from scripts.gpu_check.ranks import enter, on_ranks

ELEMENTS = 1 << 24  # 64 MiB of fp32
QUICK_ELEMENTS = 1 << 12
ROUNDS = 5
#: A call that is blocked for ever; on one that is not, the row fails.
BLOCKED_SECONDS, RELEASED_SECONDS = 30.0, 10.0
POLL_SECONDS = 0.01


def group_of_one(machine: Machine) -> Seen:
    (backend,) = on_ranks(machine, 1, talk_alone)
    return Seen(f"sums and gathers over {backend}")


def talk_alone(world: RankPlace) -> str:
    device = enter(world)
    group = GenerationGroup(world, GroupAborter(), {})
    require_equal(group.start_sum(torch.full((100,), 2.0, device=device))(), 2.0)
    if group.all_gather_object("word") != ["word"]:
        raise RowFailedError("a gather over one rank gave something else than it was given")
    backend = str(dist.get_backend_config())
    group.close()
    return backend


def group_of_all(machine: Machine) -> Seen:
    machine.require(2)
    seconds, size = on_ranks(machine, machine.ranks, talk_together, QUICK_ELEMENTS if machine.quick else ELEMENTS)[0]
    rate = size / seconds
    return Seen(f"all-reduce of {size / 2**20:g} MiB in {1000 * seconds:.2f} ms ({rate / 1e9:.2f} GB/s)", {"bytes_per_second": rate})


def talk_together(world: RankPlace, elements: int) -> tuple[float, int]:
    """Return (seconds of an all-reduce, its bytes)."""
    device, ranks = enter(world), world.world_size
    group = join(world, GroupAborter(), {"shard": [list(range(ranks))]})
    total = float(sum(range(ranks)))
    require_equal(group.start_sum(torch.full((100,), float(group.rank), device=device))(), total)
    if group.all_gather_object(group.rank) != list(range(ranks)):
        raise RowFailedError("a gather does not give every rank's value by rank")
    axis_group = group.axis_groups["shard"]
    whole, part = torch.empty(ranks * 3, device=device), torch.full((3,), float(group.rank), device=device)
    axis_group.all_gather(whole, part)
    require_equal(whole, torch.arange(ranks, device=device).repeat_interleave(3).float())
    axis_group.reduce_scatter(part, torch.full((ranks * 3,), float(group.rank), device=device))
    require_equal(part, total)
    received = torch.empty(3, device=device)
    ahead, behind = (group.rank + 1) % ranks, (group.rank - 1) % ranks
    mine = torch.full((3,), float(group.rank), device=device)
    group.transfer([dist.P2POp(dist.isend, mine, ahead), dist.P2POp(dist.irecv, received, behind)])
    require_equal(received, float(behind))
    values = torch.zeros(elements, device=device)
    taken = min(timed_sum(group.start_sum, values) for _ in range(ROUNDS))
    group.barrier_and_leave()
    group.close()
    return taken, values.nbytes


def timed_sum(start_sum: Callable[[Tensor], Callable[[], Tensor]], values: Tensor) -> float:
    started = time.perf_counter()
    start_sum(values)()
    return time.perf_counter() - started


def require_equal(found: Tensor, expected: Tensor | float) -> None:
    if not bool((found == expected).all()):
        raise RowFailedError(f"the ranks' values came to {found.flatten()[:4].tolist()}, not {expected}")


def abort(machine: Machine) -> Seen:
    """Abort the group of a rank that waits in a sum in which the other rank takes no part; on one GPU, a group in which no rank waits."""
    ranks = min(2, machine.ranks)
    with tempfile.TemporaryDirectory() as folder:
        seconds = on_ranks(machine, ranks, break_off, str(Path(folder) / "released"))[0]
    again = "the same process has then formed a new group and summed in it"
    if ranks == 1:
        return Seen(f"a group of one broken off (to break off a wait takes 2 GPUs); {again}")
    return Seen(f"a blocked sum is released {1000 * seconds:.0f} ms after the strike; {again}", {"released_seconds": seconds})


def break_off(world: RankPlace, released: str) -> float:
    """Return the seconds from the abort until this rank is out of its sum; 0 where there was no peer to wait for."""
    device, aborter = enter(world), GroupAborter()
    group = GenerationGroup(world, aborter, {})
    if world.rank == 1:
        wait_for_file(Path(released))
        return 0.0
    seconds = 0.0
    if world.world_size == 1:
        aborter.abort()
    else:
        seconds = strike_while_waiting(group, aborter, device)
        Path(released).touch()
    retire_group().drop()
    sum_in_a_new_group(device)
    return seconds


def strike_while_waiting(group: GenerationGroup, aborter: GroupAborter, device: torch.device) -> float:
    struck: list[float] = []

    def strike() -> None:
        deadline = time.monotonic() + BLOCKED_SECONDS
        while aborter.calls.awaited is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        struck.append(time.perf_counter())
        aborter.abort()

    threading.Thread(target=strike, name="striker", daemon=True).start()
    try:
        group.start_sum(torch.ones(ELEMENTS, device=device))()
    except RuntimeError as error:  # on a CPU a future has made it one
        if "generation is over" not in str(error):
            raise
        return time.perf_counter() - struck[0]
    raise RowFailedError("a sum came to an end in which one rank took no part")


def wait_for_file(file: Path) -> None:
    """Wait for `file` with the group open, as a silent but living peer."""
    deadline = time.monotonic() + BLOCKED_SECONDS + RELEASED_SECONDS
    while not file.exists():
        if time.monotonic() > deadline:
            raise RowFailedError(f"the waiting rank was not released within {RELEASED_SECONDS:g} s of the strike")
        time.sleep(POLL_SECONDS)


def sum_in_a_new_group(device: torch.device) -> None:
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    values = torch.ones(100, device=device)
    dist.all_reduce(values)
    require_equal(values, 1.0)
    dist.destroy_process_group()
