"""What the C library does with memory that was freed."""

from __future__ import annotations

import ctypes

from paceline.distributed import env

#: Parameters of mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
#: glibc's own limit for its dynamic threshold on 64-bit machines; it trims at twice the threshold.
LARGEST_MMAP_THRESHOLD = 32 << 20


def keep_freed_blocks() -> None:
    """Let freed blocks of up to 32 MiB stay in the heap, and up to 64 MiB at its end. Children by fork do the same.

    This is where glibc arrives by itself once a block of 32 MiB has been freed. Until then a training step whose largest blocks lie at the end of
    the heap gives them back to the kernel when it ends and faults them in anew in the next one, page by page: a tenth of its time, if a process
    is unlucky, as one by fork is more often than a new one. Variables that say otherwise are heeded, and other C libraries asked nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not env.sets_heap():
        mallopt(_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)
        mallopt(_TRIM_THRESHOLD, 2 * LARGEST_MMAP_THRESHOLD)
