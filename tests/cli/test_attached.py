"""A job that ends with its terminal: on a private coordinator nobody makes room, and nobody starts the coordinator again."""

from __future__ import annotations

import _thread
from collections.abc import Iterator

import pytest

from paceline.cli.attached import AttachedJob
from paceline.cli.client import RestClient
from paceline.cli.errors import CliError
from paceline.cli.settings import ClientSettings, Setting
from tests.cli.fake_coordinator import API, Answer, FakeCoordinator, Request, job

JOB = "01JD0000000000000000000001"
TOO_SMALL = {"code": "cluster_too_small", "text": "needs 1 node with 4 slots"}


@pytest.fixture
def attached(coordinator: FakeCoordinator) -> Iterator[AttachedJob]:
    with RestClient(ClientSettings(Setting(coordinator.url, "test"), Setting("pk_test", "test"))) as client:
        yield AttachedJob(client, ranks=None, to_stderr=True, private=True)


def test_what_never_fits_is_refused_and_not_waited_for(attached: AttachedJob, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", "/training/jobs", Answer(201, job(state="queued", pending=TOO_SMALL)))
    with pytest.raises(CliError, match="this machine cannot run it: needs 1 node with 4 slots"):
        attached.run({})


def test_ctrl_c_does_not_wait_for_a_private_coordinator_that_has_ended(attached: AttachedJob, coordinator: FakeCoordinator) -> None:
    """Slurm sends SIGTERM to the coordinator, too."""

    def interrupted(request: Request) -> Answer:
        _thread.interrupt_main()
        return Answer(hang_up=True)

    coordinator.on("POST", "/training/jobs", Answer(201, job()))
    coordinator.on("GET", f"/training/jobs/{JOB}", Answer(hang_up=True))
    coordinator.handlers["GET", f"{API}/training/jobs/{JOB}/logs"] = interrupted
    with pytest.raises(KeyboardInterrupt):
        attached.run({})
