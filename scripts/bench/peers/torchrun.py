"""torchrun as an elastic job over three agents: with its defaults, with the one setting that keeps it from hanging, or also with
time-outs short enough to answer a lost machine within seconds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RESTARTS = 1000
IMPATIENT = "keep_alive_interval=1,keep_alive_max_attempt=2,last_call_timeout=2"


@dataclass(frozen=True)
class Torchrun:
    """The first member hosts the rendezvous store: killing it ends the job, so it is left alone."""

    port: int
    workaround: bool = False
    impatient: bool = False
    least: int = 2
    most: int = 3

    @property
    def name(self) -> str:
        return "torchrun" + ", no shared store" * self.workaround + ", impatient" * self.impatient

    def helpers(self) -> Sequence[Sequence[str]]:
        return ()

    def command(self, member: str) -> Sequence[str]:
        rendezvous = ("--rdzv-backend", "c10d", "--rdzv-id", "bench", "--rdzv-endpoint", f"127.0.0.1:{self.port}")
        size = ("--nnodes", f"{self.least}:{self.most}", "--nproc-per-node", "1", "--max-restarts", str(RESTARTS))
        patience = ("--rdzv-conf", IMPATIENT) if self.impatient else ()
        return (sys.executable, "-m", "torch.distributed.run", *size, *patience, *rendezvous, "-m", "scripts.bench.peers.torchrun_worker")

    def environment(self, member: str) -> Mapping[str, str]:
        return {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if self.workaround else {}
