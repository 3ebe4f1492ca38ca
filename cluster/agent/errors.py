"""What can go wrong in an agent, beyond what it retries by itself.

AgentError                      told to the user; ends the agent
├── JoinRefusedError            the join token or the stored credential is not accepted
├── NotJoinedError              neither a credential nor a token
├── DataFolderInUseError        another agent owns the same --data
├── RunAsError                  ranks cannot run as the user that --run-as names
├── MemoryLimitError            --memory-limit cannot be kept here
├── NoPortError                 none of --port-range is free
├── ChannelRefusedError         the coordinator refused the channel for good
└── SpawnerStartError           the spawner died before it could serve
RosterNotSettledError           what a roster says of some ranks could not be carried out: hear it again
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


class ChannelRefusedError(AgentError):
    def __init__(self, message: str, *, removed: bool) -> None:
        """`removed`: the node is no longer one of the coordinator's, so its ranks must end."""
        super().__init__(message)
        self.removed = removed


class SpawnerStartError(AgentError):
    pass


class RosterNotSettledError(Exception):
    pass
