"""The errors of the parameter server's protocol. Each says what came, what was expected, and from which rank.

ProtocolError (a DistributedError)
├── UnknownRankError     the message is from a rank that has no part in this exchange
├── WrongKindError       another kind of message was due
├── WrongStepError       the message belongs to a step that has not begun
├── LateMessageError     the message belongs to a step that is closed
├── WrongShardError      the message is for another server
├── WrongRoundError      the rank's pushes came in another order, or there are more than it was to send
├── DuplicateError       the rank has pushed this round, or pulled these parameters, already
├── EarlyPullError       parameters were asked for while pushes to the step before them are missing
├── IncompleteStepError  the step was to be closed while pushes are missing
├── WrongSizeError       the payload has another length than the shard
└── ChecksumError        the payload is not what was sent
"""

from __future__ import annotations

from paceline.distributed.errors import DistributedError


class ProtocolError(DistributedError):
    """A message that does not belong where it arrived: a fault of Paceline or of a machine's memory or network, never of the job."""


class UnknownRankError(ProtocolError):
    """The message is from a rank that has no part in this exchange."""


class WrongKindError(ProtocolError):
    """Another kind of message was due."""


class WrongStepError(ProtocolError):
    """The message belongs to a step that has not begun."""


class LateMessageError(ProtocolError):
    """The message belongs to a step that is closed."""


class WrongShardError(ProtocolError):
    """The message is for another server."""


class WrongRoundError(ProtocolError):
    """The rank's pushes came in another order, or there are more than it was to send."""


class DuplicateError(ProtocolError):
    """The rank has pushed this round, or pulled these parameters, already."""


class EarlyPullError(ProtocolError):
    """Parameters were asked for while pushes to the step before them are missing."""


class IncompleteStepError(ProtocolError):
    """The step was to be closed while pushes are missing."""


class WrongSizeError(ProtocolError):
    """The payload has another length than the shard."""


class ChecksumError(ProtocolError):
    """The payload is not what was sent."""
