"""Which peers get which faults, and what their figures are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.cli.local.ports import free_port
from scripts.bench.figures import Figure, summarize
from scripts.bench.peers.rig import Peer
from scripts.bench.peers.series import members_killed, workers_killed
from scripts.bench.peers.torchft import Torchft
from scripts.bench.peers.torchrun import Torchrun
from scripts.bench.peers.venv import PeerMissingError, torchft_bin
from scripts.faults.series import Findings
from scripts.steps import say

PORT = 29860
WORKERS = 10
#: Sizes for peers that are only to show how they fail: a hang costs as long as we are willing to wait.
MACHINES, HANGING_WORKERS = 3, 4


@dataclass(frozen=True)
class PeerPart:
    peer: Callable[[], Peer]
    workers: int = WORKERS
    machines: int = MACHINES


def _torchft() -> Peer:
    return Torchft(torchft_bin(), free_port(PORT))


PEER_PARTS = {
    "torchft": PeerPart(_torchft, machines=WORKERS),
    "torchrun": PeerPart(lambda: Torchrun(free_port(PORT), workaround=True), machines=WORKERS),
    "torchrun-defaults": PeerPart(lambda: Torchrun(free_port(PORT)), workers=HANGING_WORKERS, machines=0),
    "torchrun-impatient": PeerPart(lambda: Torchrun(free_port(PORT), workaround=True, impatient=True), workers=0),
}
OURS = "Paceline"
SYSTEMS = (OURS, *PEER_PARTS)


def peer_figures(name: str) -> list[Figure]:
    part = PEER_PARTS[name]
    try:
        peer = part.peer()
    except PeerMissingError as error:
        say(str(error))
        return []
    say(f"{peer.name}: {part.workers} workers killed, {part.machines} machines")
    return figures_of(name, workers_killed(peer, part.workers), members_killed(peer, part.machines))


def figures_of(name: str, workers: Findings, machines: Findings) -> list[Figure]:
    seconds = {"rank_killed_s": workers.outages, "node_killed_s": machines.outages, "join_outage_s": machines.joins}
    faults = workers.faults + machines.faults
    counts = {
        "steps_lost": workers.steps_lost + machines.steps_lost,
        "hangs": workers.hangs + machines.hangs,
        "split_brains": workers.split_brains + machines.split_brains,
    }
    timed = [summarize(f"{name}_{figure}", "s", told, "on the same rig") for figure, told in seconds.items() if told]
    return timed + [Figure(f"{name}_{figure}", "1", float(n), float(n), faults, "over all its faults") for figure, n in counts.items()]


def side_by_side(figures: Sequence[Figure]) -> str:
    """Return a table with a row for each figure and a column for each system: median (p95, n)."""
    cells = {_place(figure.figure): _cell(figure) for figure in figures}
    names = list(dict.fromkeys(name for name, _ in cells))
    systems = [system for system in SYSTEMS if any(each == system for _, each in cells)]
    rows = [["figure", *systems], ["---"] * (len(systems) + 1)]
    rows += [[name, *(cells.get((name, system), "") for system in systems)] for name in names]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _place(name: str) -> tuple[str, str]:
    """Row and column: a peer's figures begin with its name."""
    peer, _, rest = name.partition("_")
    return (rest, peer) if peer in PEER_PARTS else (name, OURS)


def _cell(figure: Figure) -> str:
    if figure.unit != "s":
        return f"{figure.median:.4g} of {figure.n}"
    return f"{figure.median:.2f} s (p95 {figure.p95:.2f}, n {figure.n})"
