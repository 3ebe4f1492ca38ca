"""Downloads go on where they broke off, and nothing that arrived damaged gets its name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from paceline.cli.client import RestClient
from paceline.cli.errors import ApiProblemError, OutputError, UnreachableError
from paceline.cli.file_downloads import ATTEMPTS, DamagedDownloadError, WantedFile, download
from paceline.cli.settings import ClientSettings, resolve
from tests.cli.fake_coordinator import API, Answer, FakeCoordinator, Request, serve

CONTENT = bytes(range(256)) * 4
URL = "/files/content"


@pytest.fixture
def coordinator() -> Iterator[FakeCoordinator]:
    with serve() as fake:
        yield fake


@pytest.fixture
def client(coordinator: FakeCoordinator) -> Iterator[RestClient]:
    settings: ClientSettings = resolve(coordinator.url, "plk_x")
    with RestClient(settings, 5.0) as client:
        yield client


def wanted(content: bytes = CONTENT, place: str = "rank0/model.pt", sha256: str | None = None) -> WantedFile:
    digest = sha256 or hashlib.sha256(content).hexdigest()
    return WantedFile(URL, {"path": "rank0/model.pt"}, len(content), digest, PurePosixPath(place))


def in_pieces(size: int) -> list[Answer]:
    """As a coordinator behind a proxy that ends each answer after `size` bytes."""
    return [Answer(206 if start else 200, CONTENT[start : start + size]) for start in range(0, len(CONTENT), size)]


def test_a_download_goes_on_behind_what_it_has(coordinator: FakeCoordinator, client: RestClient, tmp_path: Path) -> None:
    coordinator.on("GET", URL, *in_pieces(300))
    target = download(client, wanted(), tmp_path, wait=lambda _: None)
    assert (target, target.read_bytes()) == (tmp_path / "rank0/model.pt", CONTENT)
    sent = coordinator.sent("GET", URL)
    assert [each.headers.get("range") for each in sent] == [None, "bytes=300-", "bytes=600-", "bytes=900-"]
    assert {each.headers.get("if-range") for each in sent[1:]} == {f'"{wanted().sha256}"'}
    assert list(target.parent.iterdir()) == [target]


def test_what_an_earlier_command_has_left_is_continued_and_what_is_there_is_left_alone(
    coordinator: FakeCoordinator, client: RestClient, tmp_path: Path
) -> None:
    one = wanted()
    part = tmp_path / "rank0" / f"model.pt.{one.sha256[:8]}.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT[:1000])
    coordinator.on("GET", URL, Answer(206, CONTENT[1000:]))
    for _ in range(2):
        assert download(client, one, tmp_path).read_bytes() == CONTENT
    (only,) = coordinator.sent("GET", URL)
    assert only.headers["range"] == "bytes=1000-"


def test_a_newer_version_in_the_middle_begins_anew_and_is_found_to_be_another(
    coordinator: FakeCoordinator, client: RestClient, tmp_path: Path
) -> None:
    coordinator.on("GET", URL, Answer(200, CONTENT[:100]), Answer(200, bytes(len(CONTENT))))
    with pytest.raises(DamagedDownloadError, match="arrived damaged"):
        download(client, wanted(), tmp_path, wait=lambda _: None)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_coordinator_that_is_away_is_asked_again_and_the_part_is_kept(
    coordinator: FakeCoordinator, client: RestClient, tmp_path: Path
) -> None:
    coordinator.on("GET", URL, Answer(200, CONTENT[:100]), Answer(hang_up=True))
    waits: list[float] = []
    with pytest.raises(UnreachableError):
        download(client, wanted(), tmp_path, wait=waits.append)
    assert len(waits) == ATTEMPTS - 1
    (part,) = (path for path in tmp_path.rglob("*.part"))
    assert part.read_bytes() == CONTENT[:100]


def test_a_refusal_is_not_tried_again(coordinator: FakeCoordinator, client: RestClient, tmp_path: Path) -> None:
    with pytest.raises(ApiProblemError, match="not_found"):
        download(client, wanted(), tmp_path)
    assert len(coordinator.requests) == 1


@pytest.mark.parametrize("place", ["../../.ssh/authorized_keys", "/etc/passwd", ""])
def test_a_place_outside_the_output_folder_is_not_written(client: RestClient, tmp_path: Path, place: str) -> None:
    with pytest.raises(OutputError, match="leads out of"):
        download(client, wanted(place=place), tmp_path)


def test_an_empty_file_needs_no_request(coordinator: FakeCoordinator, client: RestClient, tmp_path: Path) -> None:
    def refuse(request: Request) -> Answer:
        raise AssertionError(request)

    coordinator.handlers["GET", API + URL] = refuse
    assert download(client, wanted(b""), tmp_path).read_bytes() == b""
