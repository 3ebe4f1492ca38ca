"""What the coordinator bears: a flood of output, a thousand agents, jobs by the thousand, long histories, hostile requests.

Each part is a module of `edges/` with a command line of its own; here they run one after the other, each in a process of its own.

    python -m scripts.bench.edge [--quick] [--only PART ...] [--json FILE]
"""

from __future__ import annotations

import sys

from scripts.bench.parts import Part, run_parts

EDGES = "scripts.bench.edges."
PARTS = {
    "placement": Part(EDGES + "placement"),
    "control": Part(EDGES + "control"),
    "agents": Part(EDGES + "agents", full=("--agents", "1000", "--seconds", "60"), quick=("--agents", "200", "--seconds", "10")),
    "uploads": Part(EDGES + "uploads", full=("--seconds", "120"), quick=("--seconds", "10", "--agents", "200", "--databases", "sqlite")),
    "jobs": Part(EDGES + "jobs", full=("--jobs", "3000"), quick=("--jobs", "200", "--databases", "sqlite")),
    "watchers": Part(EDGES + "watchers", full=("--watchers", "500"), quick=("--watchers", "50")),
    "flood": Part(EDGES + "flood", full=("--seconds", "30"), quick=("--seconds", "8")),
    "hostile": Part(EDGES + "hostile"),
    "heat_map": Part(EDGES + "heat_map"),  # in full always: its goal is for so many ranks, and a minute is enough
    "histories": Part(EDGES + "histories", quick=("--steps", "20000")),
    "retention": Part(EDGES + "retention", quick=("--days", "3")),
}


if __name__ == "__main__":
    sys.exit(run_parts(PARTS, __doc__, "minutes instead of a quarter of an hour: fewer of everything"))
