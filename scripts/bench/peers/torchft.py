"""torchft as its documentation runs it: one lighthouse, and for each replica a torchrun of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

RESTARTS = 1000


@dataclass(frozen=True)
class Torchft:
    programs: Path  # of an environment that has it
    port: int  # of the lighthouse; the replicas' stores follow
    name: str = "torchft"

    def helpers(self) -> Sequence[Sequence[str]]:
        """Return the command of torchft's lighthouse, with the settings of its read-me."""
        limits = ("--min_replicas", "1", "--quorum_tick_ms", "100", "--join_timeout_ms", "10000")
        return ((str(self.programs / "torchft_lighthouse"), "--bind", f"[::]:{self.port}", *limits),)

    def command(self, member: str) -> Sequence[str]:
        store = ("--master-addr", "127.0.0.1", "--master-port", str(self.port + 1 + int(member.rpartition("-")[2])))
        size = ("--nnodes", "1", "--nproc-per-node", "1", "--max-restarts", str(RESTARTS))
        python = str(self.programs / "python")
        return (python, "-m", "torch.distributed.run", *store, *size, "-m", "scripts.bench.peers.torchft_worker")

    def environment(self, member: str) -> Mapping[str, str]:
        return {"TORCHFT_LIGHTHOUSE": f"http://localhost:{self.port}"}
