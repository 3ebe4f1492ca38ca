"""The errors of communication between ranks.

DistributedError (a RuntimeError, as torch's own)
├── StoreUnreachableError   the store does not answer, or the connection broke
├── StoreRefusedError       this rank is not, or no longer, a member: wrong token, stale generation
├── GenerationOverError     a newer generation has begun, or this one has lost a rank
├── StoreTimeoutError       the store answers, but the key that was waited for did not appear
├── StoreRequestError       the request cannot be carried out
├── TorchVersionError       torch lacks what it does not promise and Paceline needs
└── LaunchError             this process's environment describes no valid position in a world
"""

from __future__ import annotations


class DistributedError(RuntimeError):
    """The base of all errors of this package."""


class StoreUnreachableError(DistributedError):
    """The connection to the rendezvous store cannot be made, or it broke."""


class StoreRefusedError(DistributedError):
    """The store does not accept this rank as a member of its generation."""


class GenerationOverError(DistributedError):
    """A wait in this generation was ended, because the generation is over."""


class StoreTimeoutError(DistributedError):
    """The key that was waited for did not appear in the store in time."""


class StoreRequestError(DistributedError):
    """The store cannot carry out a request, such as `add` on a value that is not a number."""


class TorchVersionError(DistributedError):
    """This release of torch is not the one that Paceline is tested with, and lacks something."""


class LaunchError(DistributedError):
    """The variables that torchrun sets are missing, or do not fit this machine."""
