"""The errors of the protocols that ranks speak among themselves. Each says what came, what was expected, and from which rank.

ProtocolError (a DistributedError)
├── UnknownRankError     the message is from a rank that has no part in this exchange
├── WrongKindError       another kind of message was due
├── WrongGenerationError the message belongs to another generation of the gang
├── WrongStepError       the message belongs to a step that has not begun
├── LateMessageError     the message belongs to a step that is closed
├── WrongRoundError      the message came in another order, or there are more than were expected
├── DuplicateError       the message has arrived already
├── WrongSizeError       the payload has another length than was expected
├── ChecksumError        the payload is not what was sent
└── PeerLostError        the connection to a neighbour is gone in the middle of an exchange
"""

from __future__ import annotations

from paceline.distributed.errors import DistributedError


class ProtocolError(DistributedError):
    """A message that does not belong where it arrived: a fault of Paceline or of a machine's memory or network, never of the job."""


class UnknownRankError(ProtocolError):
    """The message is from a rank that has no part in this exchange."""


class WrongKindError(ProtocolError):
    """Another kind of message was due."""


class WrongGenerationError(ProtocolError):
    """The message belongs to another generation of the gang."""


class WrongStepError(ProtocolError):
    """The message belongs to a step that has not begun."""


class LateMessageError(ProtocolError):
    """The message belongs to a step that is closed."""


class WrongRoundError(ProtocolError):
    """The message came in another order, or there are more than were expected."""


class DuplicateError(ProtocolError):
    """The message has arrived already."""


class WrongSizeError(ProtocolError):
    """The payload has another length than was expected."""


class ChecksumError(ProtocolError):
    """The payload is not what was sent."""


class PeerLostError(ProtocolError):
    """The connection to a neighbour is gone in the middle of an exchange."""
