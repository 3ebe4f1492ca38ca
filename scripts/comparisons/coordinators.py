"""Where a benchmark script runs its experiment: on the coordinator that is named or configured, else on one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from paceline.cli.answers import parsed
from paceline.cli.api_types import ClusterSummary, Node
from paceline.cli.client import RestClient
from paceline.cli.errors import UnreachableError
from paceline.cli.local.private import private_stack
from paceline.cli.local.stack import login_link
from paceline.cli.render.output import note
from paceline.cli.settings import ClientSettings, resolve

ON_CPUS = "note: there is no GPU: ranks run on CPU slots, one core each; what they say of strategies holds for this machine alone"


@dataclass(frozen=True)
class Place:
    """A coordinator, and the slots of its nodes."""

    client: RestClient
    slots: int
    on_gpus: bool
    is_private: bool


@contextmanager
def place(url: str | None, api_key: str | None) -> Iterator[Place]:
    """Yield the coordinator at `url`; without one, that which the command line would use, if it answers; else a private one with all slots of this
    machine, which is gone afterwards. Raises UnreachableError where a coordinator that was named does not answer."""
    settings = resolve(url, api_key)
    if answers(settings):
        with RestClient(settings) as client:
            yield seen(client, is_private=False)
        return
    with private_stack(None, ()) as stack, stack.client() as client:
        note(f"note: a coordinator of its own, until this benchmark ends: {login_link(client)} (signs in once)")
        yield seen(client, is_private=True)


def answers(settings: ClientSettings) -> bool:
    """Whether there is a coordinator to use. Raises UnreachableError where one was named here and now."""
    if not settings.name_a_coordinator:
        return False
    with RestClient(settings) as client:
        try:
            client.get("/auth/me")
        except UnreachableError as error:
            if settings.name_it_here_and_now:
                raise
            note(f"note: {error.message}")
            return False
    return True


def seen(client: RestClient, *, is_private: bool) -> Place:
    """Return the coordinator with its slots; say so where they are CPUs."""
    nodes = [parsed(each, Node) for each in client.pages("/cluster/nodes")]
    slots = parsed(client.get("/metrics/cluster/summary"), ClusterSummary).slots_total
    on_gpus = any(node.device == "cuda" for node in nodes)
    if not on_gpus:
        note(ON_CPUS)
    return Place(client, slots, on_gpus, is_private)
