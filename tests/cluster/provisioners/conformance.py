"""The promises that every provider keeps, as tests: a provider's test module has a class of them, and a fixture `engine`."""

from __future__ import annotations

import abc
import asyncio

import pytest

from paceline.cluster.provisioners.provisioner import LaunchPhase, Provisioner, ProvisionerError, WantedNode

TOKEN = "pj_secret_of_the_test"
LONGEST_HANDLE = 256


class ProviderEngine(abc.ABC):
    """A provider and the engine behind it, real or fake."""

    provisioner: Provisioner
    #: Two nodes that the pool may have, and the handle of one that the provider has never started.
    names: tuple[str, str] = ("work-bcdfg", "work-hjklm")
    unknown: str = "99999999"
    #: False where people start the nodes.
    starts_nodes: bool = True

    async def await_terminations(self) -> None:
        """Wait for what goes on behind `terminate`, where that waits for nothing."""
        await asyncio.sleep(0)

    @abc.abstractmethod
    def started(self) -> int:
        """How many nodes the engine has started, or has in its queue, since the test began."""

    @abc.abstractmethod
    def break_down(self) -> None:
        """Make the engine unreachable."""

    @abc.abstractmethod
    def visible(self) -> str:
        """Everything that others than the owner can read of what was launched."""


def request(name: str = "work-bcdfg", **changes: object) -> WantedNode:
    """A request for a node."""
    fields: dict[str, object] = {
        "name": name,
        "pool": "work",
        "server": "http://127.0.0.1:8000",
        "join_token": TOKEN,
        "labels": {"pool": "work"},
        "slots": 1,
    }
    return WantedNode(**fields | changes)  # type: ignore[arg-type]


class HandleConformance:
    """The promises of a provider that starts nothing itself: `TestManual(HandleConformance)` beside a fixture `engine`."""

    async def test_a_repeated_launch_is_the_same_node(self, engine: ProviderEngine) -> None:
        first = await engine.provisioner.launch(request(engine.names[0]))
        again = await engine.provisioner.launch(request(engine.names[0], join_token="pj_another"))
        assert again == first
        assert engine.started() == (1 if engine.starts_nodes else 0)
        other = await engine.provisioner.launch(request(engine.names[1]))
        assert other != first
        assert engine.started() == (2 if engine.starts_nodes else 0)

    async def test_a_handle_is_short_and_holds_no_secret(self, engine: ProviderEngine) -> None:
        handle = await engine.provisioner.launch(request(engine.names[0]))
        assert 0 < len(handle) <= LONGEST_HANDLE
        assert TOKEN not in handle

    async def test_what_was_launched_is_there(self, engine: ProviderEngine) -> None:
        handle = await engine.provisioner.launch(request(engine.names[0]))
        found = await engine.provisioner.poll([handle])
        assert set(found) == {handle}
        assert found[handle].phase is not LaunchPhase.ENDED
        assert await engine.provisioner.poll([]) == {}

    async def test_terminating_twice_is_no_error(self, engine: ProviderEngine) -> None:
        handle = await engine.provisioner.launch(request(engine.names[0]))
        await engine.provisioner.terminate(handle)
        await engine.provisioner.terminate(handle)
        await engine.provisioner.terminate(engine.unknown)

    async def test_a_terminated_name_can_be_launched_again(self, engine: ProviderEngine) -> None:
        await engine.provisioner.terminate(await engine.provisioner.launch(request(engine.names[0])))
        again = await engine.provisioner.launch(request(engine.names[0]))
        assert (await engine.provisioner.poll([again]))[again].phase is not LaunchPhase.ENDED


class ProvisionerConformance(HandleConformance):
    """The promises of a provider that starts nodes. Inherit it as `TestSlurm(ProvisionerConformance)` beside a fixture `engine`."""

    async def test_the_token_cannot_be_read_by_others(self, engine: ProviderEngine) -> None:
        await engine.provisioner.launch(request(engine.names[0]))
        seen = engine.visible()
        assert engine.names[0] in seen
        assert TOKEN not in seen

    async def test_an_unknown_handle_has_ended(self, engine: ProviderEngine) -> None:
        handle = await engine.provisioner.launch(request(engine.names[0]))
        found = await engine.provisioner.poll([handle, engine.unknown])
        assert set(found) == {handle, engine.unknown}
        assert found[handle].phase is not LaunchPhase.ENDED
        assert found[engine.unknown].phase is LaunchPhase.ENDED
        assert found[engine.unknown].reason

    async def test_what_was_terminated_has_ended(self, engine: ProviderEngine) -> None:
        handle = await engine.provisioner.launch(request(engine.names[0]))
        await engine.provisioner.terminate(handle)
        await engine.await_terminations()
        assert (await engine.provisioner.poll([handle]))[handle].phase is LaunchPhase.ENDED

    async def test_an_engine_that_cannot_be_reached_is_an_error_with_a_remedy(self, engine: ProviderEngine) -> None:
        handle = await engine.provisioner.launch(request(engine.names[0]))
        engine.break_down()
        other = request(engine.names[1])
        calls = (engine.provisioner.launch(other), engine.provisioner.poll([handle]), engine.provisioner.terminate(handle))
        for call in calls:
            with pytest.raises(ProvisionerError) as refused:
                await call
            assert refused.value.remedy
            assert TOKEN not in str(refused.value) + refused.value.remedy
