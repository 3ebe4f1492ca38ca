"""What can go wrong between ranks.

DistributedError (a RuntimeError, as torch's own)
├── StoreUnreachableError   nobody answers, or the connection broke
├── StoreRefusedError       not, or no longer, a member: wrong token, stale generation
├── GenerationOverError     a newer generation has begun, or this one has lost a rank
├── StoreTimeoutError       the store answers, but what was waited for did not come
├── StoreRequestError       a request that cannot be carried out
└── LaunchError             what this process's environment says of its place in a world cannot be
"""

from __future__ import annotations


class DistributedError(RuntimeError):
    """Root."""


class StoreUnreachableError(DistributedError):
    """The connection to the rendezvous store cannot be made or broke."""


class StoreRefusedError(DistributedError):
    """The store does not take this rank for a member of its generation."""


class GenerationOverError(DistributedError):
    """What was waited for in this generation will not come."""


class StoreTimeoutError(DistributedError):
    """The wait for a key is over."""


class StoreRequestError(DistributedError):
    """The store says that the request makes no sense."""


class LaunchError(DistributedError):
    """The variables that torchrun sets are missing, or do not fit this machine."""
