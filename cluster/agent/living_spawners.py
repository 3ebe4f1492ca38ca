"""The spawners that an agent before this one has left, the default one and those of environments: asked for their ranks and their locks of cards before
this agent decides what it offers.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.cluster.agent.card_locks import received
from paceline.cluster.agent.errors import OfferError
from paceline.cluster.agent.folders import AgentFolder, SpawnerPlace
from paceline.cluster.agent.spawner_link import ProcessList, Shutdown, decode_process_list, encode_to_spawner
from paceline.monitoring.lines import LineBuffer

#: A spawner that is being started answers once it has imported torch.
ASK_TIMEOUT_SECONDS = 60.0
END_TIMEOUT_SECONDS = 15.0
MOST_LOCKS = 64


@dataclass(frozen=True)
class LivingSpawner:
    """A spawner with its ranks, and the locks of cards that it has sent. One of an earlier version sends none."""

    connection: socket.socket
    process_list: ProcessList
    locks: tuple[socket.socket, ...]

    def end(self) -> None:
        """End a spawner without ranks. Raises OfferError where it stays."""
        self.connection.settimeout(END_TIMEOUT_SECONDS)
        try:
            self.connection.sendall(encode_to_spawner(Shutdown(grace_seconds=0.0)))
            while self.connection.recv(1 << 16):
                pass
        except TimeoutError:
            pid = self.process_list.spawner_pid
            raise OfferError(f"the spawner of the agent before does not end within {END_TIMEOUT_SECONDS:g} s: kill {pid}") from None
        except ConnectionError:
            pass  # it has ended


def find_spawners(folder: AgentFolder) -> tuple[LivingSpawner, ...]:
    """The spawners of this folder that live. Raises OfferError where one does not answer."""
    places = [folder.spawner(name) for name in ("", *folder.spawner_names())]
    return tuple(found for place in places if (found := _ask(folder, place)) is not None)


def close(spawners: Sequence[LivingSpawner]) -> None:
    """Close the connections, and leave the spawners to the supervisors of this agent."""
    for spawner in spawners:
        spawner.connection.close()


def _ask(folder: AgentFolder, place: SpawnerPlace) -> LivingSpawner | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(ASK_TIMEOUT_SECONDS)
    lines, descriptors = LineBuffer(), list[int]()
    try:
        connection.connect(str(place.socket))
        while True:
            data, sent, _, _ = socket.recv_fds(connection, 1 << 16, MOST_LOCKS)
            descriptors += sent
            for line in lines.take(data):
                return LivingSpawner(connection, decode_process_list(line), tuple(received(descriptors)))
            if not data:
                break
    except (FileNotFoundError, ConnectionError):
        pass
    except TimeoutError:
        connection.close()
        raise OfferError(
            f"the spawner of the agent before does not answer within {ASK_TIMEOUT_SECONDS:g} s; see {folder.spawner_log}"
        ) from None
    connection.close()
    return None
