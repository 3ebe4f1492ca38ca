"""What the Python client asks of jobs, and that each call arrives as the API takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import paceline
from paceline.cli.errors import NotThereError
from paceline.client import UsageProblem
from tests.cli import left_files
from tests.cli.fake_coordinator import FakeCoordinator, serve
from tests.cli.schema_answers import ID, TextEverywhere

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
OTHER = ID.replace("7Q", "8R")
ONE = f"/training/jobs/{ID}"


@pytest.fixture
def coordinator() -> Iterator[FakeCoordinator]:
    with serve() as fake:
        TextEverywhere("text").install(fake)
        yield fake


@pytest.fixture
def client(coordinator: FakeCoordinator) -> Iterator[paceline.Client]:
    with paceline.Client(coordinator.url, "pk_test") as client:
        yield client


#: Each call, the request that it makes, and its parameters or body.
CALLS: list[tuple[Callable[[paceline.Client], object], str, str, dict[str, object]]] = [
    (
        lambda c: c.jobs(user="ada", labels={"team": "nlp"}, experiment="grid", created_after=NOON, archived="only", sort="name", limit=5),
        "GET", "/training/jobs",
        {"user": "ada", "label.team": "nlp", "experiment": "grid", "created_after": NOON.isoformat(), "archived": "only", "sort": "name", "limit": "5"},
    ),
    (lambda c: c.edit(ID, priority=80, labels={"a": "1", "b": None}), "PATCH", ONE, {"priority": 80, "labels": {"a": "1", "b": None}}),
    (lambda c: c.archive(ID), "PUT", f"{ONE}/archive", {}),
    (lambda c: c.unarchive(ID), "PUT", f"{ONE}/unarchive", {}),
    (lambda c: c.delete_data(ID, checkpoints=True), "DELETE", f"{ONE}/data", {"checkpoints": "true"}),
    (lambda c: c.incidents(ID), "GET", f"{ONE}/incidents", {}),
    (lambda c: c.goodput(ID), "GET", f"{ONE}/goodput", {}),
    (lambda c: c.performance(ID), "GET", f"{ONE}/performance", {}),
    (lambda c: c.compare(ID, OTHER), "GET", "/training/compare", {"jobs": f"{ID},{OTHER}"}),
    (lambda c: c.stacks(ID, ranks=[0, 3]), "GET", f"{ONE}/stacks", {"rank": "0,3"}),
    (lambda c: c.gradients(ID), "GET", f"{ONE}/gradients", {}),
    (lambda c: c.record_gradients(ID, names=["a.*"], snapshots=True), "POST", f"{ONE}/gradients", {"names": ["a.*"], "snapshots": True}),
    (lambda c: c.artifacts(ID), "GET", f"{ONE}/artifacts", {"limit": "200"}),
    (lambda c: c.storage(), "GET", "/cluster/storage", {}),
    (
        lambda c: list(c.logs(ID, rank="0,3", level="error", grep="na.", regex=True, context=2, since=NOON, until=NOON, tail=7)),
        "GET", f"{ONE}/logs",
        {"rank": "0,3", "level": "error", "q": "na.", "regex": "true", "context": "2", "since": NOON.isoformat(), "until": NOON.isoformat(),
         "after": "0", "tail": "true", "limit": "7"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("call", "method", "path", "said"), CALLS, ids=[f"{method} {path[15:]}" for _, method, path, _ in CALLS])
def test_each_call_is_one_request_whose_answer_is_typed(
    client: paceline.Client,
    coordinator: FakeCoordinator,
    call: Callable[[paceline.Client], object],
    method: str,
    path: str,
    said: dict[str, object],
) -> None:
    assert call(client) is not None
    (request,) = coordinator.sent(method, path)
    assert (request.body if method in ("PATCH", "POST") else request.query) == said


def test_what_cannot_be_asked_is_refused_before_it_is_sent(client: paceline.Client, coordinator: FakeCoordinator) -> None:
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: client.edit(ID), "something to change"),
        (lambda: client.compare(ID), "not two jobs"),
        (lambda: client.jobs(created_after=NOON.replace(tzinfo=None)), "no time zone"),
        (lambda: client.logs(ID, since=NOON.replace(tzinfo=None)), "no time zone"),
        (lambda: client.logs(ID, regex=True), "needs the expression"),
    ]
    for call, why in refused:
        with pytest.raises(UsageProblem, match=why):
            call()
    assert coordinator.requests == []


def test_the_files_of_a_job_are_listed_and_downloaded(client: paceline.Client, coordinator: FakeCoordinator, tmp_path: Path) -> None:
    left_files.left(coordinator)
    assert [file.path for file in client.files(left_files.ID)] == [*left_files.CONTENTS]
    (one,) = client.files(left_files.ID, "rank0/a.txt")
    assert (one.rank, one.bytes) == (0, 1)
    (tmp_path / "rank0").mkdir()
    (tmp_path / "rank0" / "a.txt").write_bytes(b"of an earlier run")
    assert client.download(left_files.ID, "rank0", into=tmp_path) == [tmp_path / "rank0" / "a.txt", tmp_path / "rank0" / "eval" / "ü b.csv"]
    assert (tmp_path / "rank0" / "a.txt").read_bytes() == b"a"
    with pytest.raises(NotThereError, match="there is no file 'rank7'"):
        client.download(left_files.ID, "rank7", into=tmp_path / "new")
    assert not (tmp_path / "new").exists()


async def test_the_asynchronous_client_has_every_method(coordinator: FakeCoordinator) -> None:
    async with paceline.AsyncClient(coordinator.url, "pk_test") as client:
        assert len(await client.incidents(ID)) == 1
        lines = [line async for line in client.logs(ID, tail=3, context=1, grep="x")]
        assert len(lines) == 1
    public = {name for name in dir(paceline.Client) if not name.startswith("_")}
    assert public <= set(dir(paceline.AsyncClient))
