"""The errors that only the parameter server's protocol has; those of every protocol are in `protocol_errors`.

ProtocolError
├── WrongShardError      the message is for another server
├── EarlyPullError       parameters were asked for while pushes to the step before them are missing
└── IncompleteStepError  the step was to be closed while pushes are missing
"""

from __future__ import annotations

from paceline.distributed.protocol_errors import ProtocolError


class WrongShardError(ProtocolError):
    """The message is for another server."""


class EarlyPullError(ProtocolError):
    """Parameters were asked for while pushes to the step before them are missing."""


class IncompleteStepError(ProtocolError):
    """The step was to be closed while pushes are missing."""
