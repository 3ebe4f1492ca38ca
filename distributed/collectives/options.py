"""How gradients are summed, as a plain value. Pure, no torch."""

from __future__ import annotations

from typing import Literal

#: By the backend; over a ring of Paceline's own; within machines and then between them.
Algorithm = Literal["backend", "ring", "hierarchical"]
ALGORITHMS: tuple[Algorithm, ...] = ("backend", "ring", "hierarchical")
