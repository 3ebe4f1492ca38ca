"""The errors of an agent, beyond those that it retries by itself.

AgentError                      shown to the user; ends the agent
├── JoinRefusedError            the join token or the stored credential is not accepted
├── NotJoinedError              neither a credential nor a token
├── DataFolderInUseError        another agent owns the same --data
├── RunAsError                  ranks cannot run as the user that --run-as names
├── MemoryLimitError            --memory-limit cannot be kept here
├── NoPortError                 none of --port-range is free
├── OfferError                  what --gpus and --slots ask for cannot be offered here
│   └── CardTakenError          another agent offers a card already
├── TorchMissingError           no rank could run: this Python has no torch
├── ChannelRefusedError         the coordinator refused the channel for good
└── SpawnerStartError           the spawner died before it could serve
ProcessListNotAppliedError      some ranks' ends in a process list could not be read: ask for the list again
"""

from __future__ import annotations


class AgentError(Exception):
    pass


class JoinRefusedError(AgentError):
    pass


class NotJoinedError(AgentError):
    pass


class DataFolderInUseError(AgentError):
    pass


class RunAsError(AgentError):
    pass


class MemoryLimitError(AgentError):
    pass


class NoPortError(AgentError):
    pass


class OfferError(AgentError):
    pass


class CardTakenError(OfferError):
    pass


class TorchMissingError(AgentError):
    pass


class ChannelRefusedError(AgentError):
    def __init__(self, message: str, *, removed: bool, credential_is_void: bool = False) -> None:
        """An error with `removed` means that the coordinator has removed the node, so that its ranks must end; with `credential_is_void`, that
        it said so itself, where a status may be a proxy's."""
        super().__init__(message)
        self.removed, self.credential_is_void = removed, credential_is_void


class SpawnerStartError(AgentError):
    def __init__(self, message: str, *, by_itself: bool = False) -> None:
        """An error with `by_itself` means that the spawner has ended with an exit code: it was neither killed nor kept from starting."""
        super().__init__(message)
        self.by_itself = by_itself


class ProcessListNotAppliedError(Exception):
    pass
