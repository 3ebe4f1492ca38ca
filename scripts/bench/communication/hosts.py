"""Ranks on hosts of their own: network namespaces on a bridge, whose links carry so many bits a second (`tc tbf`). Needs root and iproute2.

    with shaped_hosts(2, "1gbit") as network:
        results = run_on_hosts(function, (0, 0, 1, 1), network, *arguments)

calls `function(world, *arguments)` in a process per rank, two of them on each host. What a host sends goes through its own link; ranks of one host
reach each other through loopback, which is not shaped. Delay and loss cannot be had: the kernels that this runs on have no netem.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from paceline.cluster.agent.processes import compute_in_batches
from paceline.training.link import RankPlace
from scripts.faults.network import COMMAND_TIMEOUT_S, Network, NetworkError
from tests.ranks import PROCESSES, call, end, make_world, receive, store_server

DEVICE = "eth0"
#: Rates as `tc` writes them, with the bytes that may pass at once; None: as fast as the machine copies. The kernel looks 250 times a second at the least:
#: half a megabyte has come by then at 1 Gbit/s, and five at 10 Gbit/s.
BURST_BYTES = {"100mbit": 1 << 20, "1gbit": 1 << 20, "10gbit": 8 << 20}
RATES: tuple[str | None, ...] = (*BURST_BYTES, None)
QUEUE_MS = 200
_CLONE_NEWNET = 0x40000000


@contextlib.contextmanager
def shaped_hosts(count: int, rate: str | None) -> Iterator[Network]:
    """Hosts that send at most `rate` each. Raises NetworkError without root or iproute2."""
    with Network((DEVICE,)) as network:
        for host in range(count):
            network.add(str(host))
            if rate is not None:
                shape(network, str(host), rate)
        yield network


def shape(network: Network, host: str, rate: str) -> None:
    command = [
        "tc",
        "qdisc",
        "replace",
        "dev",
        DEVICE,
        "root",
        "tbf",
        "rate",
        rate,
        "burst",
        str(BURST_BYTES[rate]),
        "latency",
        f"{QUEUE_MS}ms",
    ]
    done = subprocess.run(network.inside(host, command), capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip()}")


def run_on_hosts(
    function: Callable[..., Any], placement: Sequence[int], network: Network, *arguments: Any, timeout: float = 300.0
) -> list[Any]:
    """Return the results of `function(world, *arguments)` by rank. `placement`: the host of each rank. It must be importable, its values picklable."""
    with store_server(network.outside) as store, contextlib.ExitStack() as stack:
        store.admit(1)
        pipes = []
        for rank, host in enumerate(placement):
            receiver, sender = PROCESSES.Pipe(duplex=False)
            process = PROCESSES.Process(
                target=_call_on_host,
                args=(sender, network.namespace(str(host)), function, _world(rank, placement, network, store.port), arguments),
            )
            process.start()
            stack.callback(end, process)
            sender.close()
            pipes.append(receiver)
        return [receive(pipe, timeout) for pipe in pipes]


def _world(rank: int, placement: Sequence[int], network: Network, port: int) -> RankPlace:
    host = placement[rank]
    return make_world(
        rank,
        len(placement),
        port,
        Path("/nonexistent"),
        local_rank=list(placement[:rank]).count(host),
        local_world_size=list(placement).count(host),
        node_rank=host,
        node_count=len(set(placement)),
        store_host=network.outside,
        interface=DEVICE,
    )


def _call_on_host(sender: Any, namespace: str, function: Callable[..., Any], world: RankPlace, arguments: tuple[Any, ...]) -> None:
    """Enter a host's namespace, before there is any other thread, and call `function` there."""
    descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"setns into {namespace}")
    os.close(descriptor)
    os.environ["GLOO_SOCKET_IFNAME"] = DEVICE  # of every group that the function makes
    compute_in_batches()  # as the ranks of a job do
    call(sender, function, world, arguments)
