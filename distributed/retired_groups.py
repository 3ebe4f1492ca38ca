"""Groups that a rank has left, and whose sockets stay open until its peers have read what was sent."""

from __future__ import annotations

import threading

import torch.distributed as dist

from paceline.distributed import torch_private


class RetiredGroups:
    """Process groups that this rank has left, kept until `drop`: while their sockets are open, a peer can still read what was sent to it."""

    def __init__(self, *groups: object) -> None:
        self._groups = list(groups)

    def drop(self) -> None:
        """Destroy the groups in a thread of their own: destruction waits for gloo's threads, which may never end in a broken group."""
        if self._groups:
            threading.Thread(target=self._groups.clear, name="group-end", daemon=True).start()


def retire_group() -> RetiredGroups:
    """Destroy torch's current process groups, so that the next ones can be made, and return them with their sockets still open."""
    if not dist.is_initialized():
        return RetiredGroups()
    retired = RetiredGroups(*torch_private.living_groups())  # the world's group and the axis groups
    dist.destroy_process_group()
    return retired
