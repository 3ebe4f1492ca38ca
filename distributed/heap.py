"""How the C library keeps the memory of a process: what it does with freed blocks, and in how many heaps its threads allocate."""

from __future__ import annotations

import ctypes

from paceline.distributed import env

#: Parameters of mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
#: glibc's own limit for its dynamic threshold on 64-bit machines; it trims at twice the threshold.
LARGEST_MMAP_THRESHOLD = 32 << 20
#: The heap of the program, and one for all its threads.
FEW_ARENAS = 2


def keep_freed_blocks() -> None:
    """Let freed blocks of up to 32 MiB stay in the heap, and up to 64 MiB at its end. Children by fork do the same.

    This is where glibc arrives by itself once a block of 32 MiB has been freed. Until then a training step whose largest blocks lie at the end of
    the heap gives them back to the kernel when it ends and faults them in anew in the next one, page by page: a tenth of its time, if a process
    is unlucky, as one by fork is more often than a new one. Variables that say otherwise are heeded, and other C libraries asked nothing.
    """
    _set_option(_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)
    _set_option(_TRIM_THRESHOLD, 2 * LARGEST_MMAP_THRESHOLD)


def share_arenas() -> None:
    """Let all threads allocate in one heap. To be called before there are any.

    glibc gives each of a process's first threads a heap of its own, eight for each core, and keeps in each what its largest moment took: in a process that
    lives for months, and hands short work to a pool of threads, that is megabytes for each. They run one at a time in Python anyway. Variables that say otherwise are
    heeded, and other C libraries asked nothing.
    """
    _set_option(_ARENA_MAX, FEW_ARENAS)


def _set_option(parameter: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not env.sets_heap():
        mallopt(parameter, value)
