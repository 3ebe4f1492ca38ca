"""Whether the CUDA driver has started in this process, asked of the driver itself: torch knows of what torch has started alone.

A fork of a process in which the driver has started cannot use a card: each of its calls fails with "initialization error".
"""

from __future__ import annotations

import ctypes

LIBRARY = "libcuda.so.1"
#: CUDA_ERROR_NOT_INITIALIZED of the driver API: what every call but cuInit returns before cuInit.
NOT_INITIALIZED = 3


class CudaStartedError(RuntimeError):
    """The CUDA driver has started in a process that is about to fork ranks."""

    def __init__(self) -> None:
        super().__init__(
            "the CUDA driver has started in this process before it forks ranks, and none of them could use a card. Something that is imported "
            "here asks for a card at its import: a sitecustomize.py, a .pth file, or a version of torch that Paceline does not know"
        )


def require_cuda_unstarted() -> None:
    """Raises CudaStartedError. Where there is no driver, nothing can have started."""
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError:
        return  # no driver on this machine
    if has_started(driver):
        raise CudaStartedError


def has_started(driver: ctypes.CDLL) -> bool:
    count = ctypes.c_int()
    return bool(driver.cuDeviceGetCount(ctypes.byref(count)) != NOT_INITIALIZED)
