"""What other libraries load by themselves, through entry points (`pyproject.toml`), in every program of this Python."""

from __future__ import annotations

from typing import Any


def lightning_callbacks() -> list[Any]:
    """Return the callbacks for every Trainer of Lightning: in a job, the one that adds `PacelineLogger`; none elsewhere."""
    from paceline.distributed.env import rank_folder

    if rank_folder() is None:
        return []
    from paceline.integrations.lightning import AddPacelineLogger

    return [AddPacelineLogger()]
