"""File descriptors of a process that serves many connections."""

from __future__ import annotations

import resource


def allow_descriptors(wanted: int) -> int:
    """Allow `wanted` file descriptors, or as many as the system grants this process: the limit of most shells is used up by 1,000 connections.
    Returns how many it may have now. What it starts may have as many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
