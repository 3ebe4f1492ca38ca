"""The agent's side of secrets: asked for when ranks start, in no file, masked in all that leaves; real agent, spawner and rank."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from paceline.cluster.agent import job_secrets
from paceline.cluster.agent.job_secrets import JobSecretsKeeper, SecretsNotFetchedError
from paceline.cluster.agent.upload import files
from paceline.cluster.agent.upload.artifacts import ArtifactUploader
from paceline.cluster.agent.upload.files import FileUploader
from paceline.cluster.agent.upload.job_folders import JobFolders
from paceline.cluster.agent.upload.left_files import LeftFiles
from paceline.cluster.agent.upload.masking import WITHHELD, SecretMask
from paceline.cluster.agent.upload.transfer import PROBLEM_TYPE
from paceline.cluster.protocol import JobSecrets, ObservedAssignment, ObservedRank
from paceline.cluster.stacks import ProcessStack, PythonFrame, StackSample, ThreadStack
from paceline.cluster.states import RankState
from paceline.monitoring.artifact_files import FileReceived, FilesReceived
from paceline.monitoring.artifacts import NOTE_SUFFIX, RankArtifact
from paceline.training.link import FailureReport, RankOrder
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import AgentProcess, assignment, drained, script_job, world
from tests.cluster.agent.coordinator import Coordinator
from tests.waiting import until

VALUE = "s3cret-value-of-the-test"
LOOK = """
import os, pathlib, sys, time
value = os.environ["TOKEN"]
print("has", len(value), value)
pathlib.Path(os.environ["PACELINE_ARTIFACTS"], "kept.txt").write_text(value)
hold = pathlib.Path(sys.argv[1])
while not hold.exists():
    time.sleep(0.02)
raise RuntimeError("refused: " + value)
"""


def order(job: str = "job", names: tuple[str, ...] = ("TOKEN",)) -> RankOrder:
    spec = {"name": "job", "project": "vision", "environment": {"secrets": list(names)}}
    return RankOrder(spec=StoredSpec(spec), world=world(job), folder="/f", agent_socket="/s")


class Door:
    """The coordinator's answers, in order; the last one again and again."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers, self.asked = list(answers), 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        answer = self.answers[min(self.asked, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


def given(**fields: Any) -> httpx.Response:
    return httpx.Response(200, content=msgspec.json.encode(JobSecrets(**fields)))


def keeper(tmp_path: Path, *answers: httpx.Response | Exception) -> tuple[JobSecretsKeeper, Door]:
    door = Door(*answers)
    (tmp_path / "jobs").mkdir(exist_ok=True)
    http = httpx.AsyncClient(base_url="http://c", transport=httpx.MockTransport(door))
    return JobSecretsKeeper(http, tmp_path / "jobs", tmp_path / "secret_jobs"), door


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_secrets, "FIRST_RETRY_SECONDS", 0.01)


async def test_secrets_are_asked_for_until_they_come(tmp_path: Path) -> None:
    ours, door = keeper(tmp_path, httpx.ConnectError("away"), httpx.Response(503, text="no key"), given(values={"TOKEN": VALUE}))
    assert await ours.fetch(order()) == {"TOKEN": VALUE}
    assert door.asked == 3
    mask = ours.mask_of("job", 1)
    assert mask is not None
    assert mask.text(f"is {VALUE}") == "is ***"
    assert await ours.fetch(order("other", names=())) == {}
    assert door.asked == 3


async def test_a_rank_whose_secret_was_deleted_does_not_start(tmp_path: Path) -> None:
    ours, _ = keeper(tmp_path, given(values={}, missing=("TOKEN",)))
    with pytest.raises(SecretsNotFetchedError, match="paceline secret set TOKEN --project vision"):
        await ours.fetch(order())


async def test_a_coordinator_that_does_not_give_them_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_secrets, "FETCH_SECONDS", 0.2)
    ours, _ = keeper(tmp_path, httpx.Response(503, text="the key is not here"))
    with pytest.raises(SecretsNotFetchedError, match=r"within 0.2 s: the coordinator answered 503: the key is not here"):
        await ours.fetch(order())


async def test_former_values_are_masked_too_and_masks_add_up(tmp_path: Path) -> None:
    ours, _ = keeper(tmp_path, given(values={"TOKEN": "first-value"}), given(values={"TOKEN": "second-value"}, former=("zeroth-value",)))
    await ours.fetch(order())
    await ours.fetch(order())
    mask = ours.mask_of("job", 1)
    assert mask is not None
    assert mask.text("first-value second-value zeroth-value") == "*** *** ***"


async def test_a_new_agent_sends_nothing_before_it_knows_what_to_mask(tmp_path: Path) -> None:
    first, _ = keeper(tmp_path, given(values={"TOKEN": VALUE}))
    (tmp_path / "jobs" / "job").mkdir(parents=True)
    await first.fetch(order())
    second, _ = keeper(tmp_path, given(values={"TOKEN": VALUE}))
    second.adopt()
    assert second.mask_of("job", 1) is None
    failed = ObservedRank(rank=0, slot=0, state=RankState.EXITED, failure=FailureReport(kind="exit", rank=0, message=f"bad {VALUE}"))
    report = ObservedAssignment(job_id="job", generation=1, ranks=(failed,))
    assert VALUE not in repr(second.masked(report))
    task = asyncio.create_task(second.run())
    async with asyncio.timeout(10):
        while second.mask_of("job", 1) is None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
    task.cancel()
    told = second.masked(report).ranks[0].failure
    assert told is not None
    assert told.message == "bad ***"


async def test_a_secret_on_a_command_line_is_masked_in_the_stacks_of_a_rank(tmp_path: Path) -> None:
    """`bash -c "python train.py --key $KEY"`: everybody who looked at the stacks read the key."""
    frame = PythonFrame("step", f"/data/{VALUE}/train.py", 7, own=True)
    process = ProcessStack(5, f"python train.py --key {VALUE}", (ThreadStack(f"loader {VALUE}", (frame,)),), part="launcher")
    stacks = StackSample(id="asked", processes=(process,))
    rank = ObservedRank(rank=0, slot=0, state=RankState.RUNNING, stacks=stacks)
    report = ObservedAssignment(job_id="job", generation=1, ranks=(rank,))
    ours, _ = keeper(tmp_path, given(values={"TOKEN": VALUE}))
    await ours.fetch(order())
    told = ours.masked(report).ranks[0].stacks
    masked_frame = PythonFrame("step", "/data/***/train.py", 7, own=True)
    masked = ProcessStack(5, "python train.py --key ***", (ThreadStack("loader ***", (masked_frame,)),), part="launcher")
    assert told == StackSample(id="asked", processes=(masked,))
    later, _ = keeper(tmp_path, httpx.Response(404, headers={"content-type": PROBLEM_TYPE}))
    (tmp_path / "jobs/job/g1").mkdir(parents=True)
    later.adopt()
    assert later.masked(report).ranks[0].stacks is None
    await until_answered(later)
    assert later.masked(report).ranks[0].stacks == StackSample(id="asked", error=job_secrets.STACKS_WITHHELD)


async def test_what_is_left_of_a_job_that_is_over_is_withheld_by_a_new_agent(tmp_path: Path) -> None:
    away = httpx.Response(404, text="a proxy that finds no coordinator behind it")
    ours, door = keeper(tmp_path, away, httpx.Response(404, headers={"content-type": PROBLEM_TYPE}))
    (tmp_path / "secret_jobs").mkdir()
    (tmp_path / "secret_jobs" / "job").touch()
    (tmp_path / "jobs" / "job").mkdir()
    ours.adopt()
    task = asyncio.create_task(ours.run())
    async with asyncio.timeout(10):
        while ours.mask_of("job", 1) is None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
    task.cancel()
    assert (ours.mask_of("job", 1), door.asked) == (WITHHELD, 2)
    (tmp_path / "jobs" / "job").rmdir()
    ours.forget_removed()
    assert not any((tmp_path / "secret_jobs").iterdir())


async def until_answered(keeper: JobSecretsKeeper) -> None:
    """The keeper has taken over what is there, and has asked for its secrets."""
    keeper.adopt()
    task = asyncio.create_task(keeper.run())
    await until(lambda: keeper.mask_of("job", 1) is not None, "an answer")
    task.cancel()


@pytest.mark.parametrize("resumed", ["before it asks", "after it has asked"])
async def test_what_an_earlier_run_has_left_is_withheld_also_once_the_job_runs_again_with_another_secret(
    tmp_path: Path, resumed: str
) -> None:
    """Its files were looked through for the new value alone, and sent with the old one."""
    newer = given(values={"TOKEN": "a-newer-value"}, since=2)
    (tmp_path / "secret_jobs").mkdir()
    (tmp_path / "secret_jobs" / "job").touch()
    for generation in (1, 2):
        (tmp_path / f"jobs/job/files/g{generation}.rank0").mkdir(parents=True)
    gone = httpx.Response(404, headers={"content-type": PROBLEM_TYPE})
    if resumed == "after it has asked":
        (tmp_path / "jobs/job/files/g2.rank0").rmdir()
    ours, _ = keeper(tmp_path, *([newer] if resumed == "before it asks" else [gone, newer]))
    await until_answered(ours)
    await ours.fetch(order())
    after, _ = keeper(tmp_path, given(values={"TOKEN": "a-newer-value"}))  # of a coordinator that does not know it any more
    await until_answered(after)
    for each in (ours, after):
        assert each.mask_of("job", 1) is WITHHELD
        mask = each.mask_of("job", 2)
        assert mask is not None
        assert mask.text("a-newer-value, and words") == "***, and words"


async def test_a_resumed_job_sends_no_file_of_the_run_before_that_has_the_former_secret(tmp_path: Path) -> None:
    masks = {1: WITHHELD, 2: SecretMask(["a-newer-value"])}
    for generation in masks:
        file = tmp_path / f"jobs/job/files/g{generation}.rank0/run.txt"
        file.parent.mkdir(parents=True)
        file.write_text(VALUE)
    door = Door(httpx.Response(200, content=msgspec.json.encode(FilesReceived(files=(FileReceived(id="f"),)))))
    http = httpx.AsyncClient(base_url="http://c", transport=httpx.MockTransport(door))
    await FileUploader(http, JobFolders(tmp_path / "jobs"), lambda job_id, generation: masks[generation]).step_once(at_rest=True)
    assert door.asked == 1


async def test_files_of_a_job_whose_secrets_are_not_known_any_more_are_neither_sent_nor_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "KEEP_EMPTY_SECONDS", -1.0)
    model = tmp_path / "jobs/job/files/g1.rank0/model/weights.pt"
    image, note = (tmp_path / "jobs/job/g1/rank0/artifacts" / name for name in ("image.png", f"image.png{NOTE_SUFFIX}"))
    for path in (model, image, note):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"weights")
    artifact = RankArtifact(name="image.png", kind="trace", bytes=7, sha256="0" * 64, first_step=1, last_step=1, time=0.0)
    note.write_bytes(msgspec.json.encode(artifact))
    os.utime(model.parents[1], (0, 0))  # the files below it are newer
    door = Door(httpx.Response(200))
    http = httpx.AsyncClient(base_url="http://c", transport=httpx.MockTransport(door))
    uploader = FileUploader(http, JobFolders(tmp_path / "jobs"), lambda job_id, generation: WITHHELD)
    for _ in range(3):
        await uploader.step_once()
    await ArtifactUploader(http, JobFolders(tmp_path / "jobs"), lambda job_id, generation: WITHHELD).upload_all()
    assert door.asked == 0
    assert all(path.exists() for path in (model, image, note))
    monkeypatch.setattr(files, "KEEP_WORK_SECONDS", -1.0)
    await uploader.step_once()
    assert not model.exists()


async def test_a_withheld_file_that_two_looks_find_at_once_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look each second came while another went through what an ended rank has left."""
    both = threading.Barrier(2, timeout=10)
    monkeypatch.setattr(files, "has_secret", lambda content, mask: both.wait() >= 0)
    model, output = tmp_path / "jobs/job/files/g1.rank0/large.bin", tmp_path / "jobs/job/g1/rank0/output.log"
    for path in (model, output):
        path.parent.mkdir(parents=True)
        path.touch()
    uploader = FileUploader(httpx.AsyncClient(), JobFolders(tmp_path / "jobs"), lambda job_id, generation: SecretMask([VALUE]))
    left = LeftFiles.at(model.parent)
    ((name, version),) = left.look(at_rest=True).items()
    ready = files.ReadyFile(left, name, version)
    assert await asyncio.gather(*(asyncio.to_thread(uploader._withheld_on_disk, ready) for _ in range(2))) == [True, True]
    assert output.read_text().count("large.bin is not kept with the job") == 1


LEAVE = """
import os, pathlib
left = pathlib.Path(os.environ["PACELINE_ARTIFACTS"])
(left / "small.txt").write_text(os.environ["TOKEN"])
(left / "large.bin").write_bytes(bytes(3 << 20) + os.environ["TOKEN"].encode())
(left / "clean.txt").write_text("nothing in here")
"""


async def test_a_file_with_a_secret_that_a_rank_leaves_as_it_ends_is_told_in_its_log(
    agent: AgentProcess, coordinator: Coordinator, tmp_path: Path
) -> None:
    """The log was sent, and the rank forgotten, before anything looked at the file."""
    coordinator.secrets["job"] = JobSecrets(values={"TOKEN": VALUE})
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    spec = script_job(tmp_path / "leave.py", LEAVE) | {"environment": {"secrets": ["TOKEN"]}}
    await coordinator.desire(assignment("job", world("job", store_port=coordinator.hellos[0].store_port), spec=spec))
    await coordinator.until(drained("job"))
    told = sorted(
        line.split()[1] for line in coordinator.of("job").text if "is not kept with the job: a secret of the job is in it" in line
    )
    assert told == ["large.bin", "small.txt"]


def files_with_value(top: Path) -> set[str]:
    """The names of the files that have it. The agent lives, so that files come and go while this looks."""
    found = set()
    for folder, _, names in os.walk(top):
        for path in (Path(folder, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and VALUE.encode() in path.read_bytes():
                    found.add(path.name)
    return found


async def test_values_are_in_the_rank_and_in_no_file_and_masked_over_a_new_agent(
    agent: AgentProcess, coordinator: Coordinator, tmp_path: Path
) -> None:
    coordinator.secrets["job"] = JobSecrets(values={"TOKEN": VALUE})
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    hold = tmp_path / "hold"
    spec = script_job(tmp_path / "look.py", LOOK, str(hold)) | {"environment": {"secrets": ["TOKEN"]}}
    await coordinator.desire(assignment("job", world("job", store_port=coordinator.hellos[0].store_port), spec=spec))
    await coordinator.until(lambda c: any("not kept" in line for line in c.of("job").text))
    assert coordinator.of("job").text[0] == f"has {len(VALUE)} ***"
    folder = agent.data / "jobs" / "job" / "g1" / "rank0"
    assert (folder / "launch.json").exists()
    assert files_with_value(agent.data) == {"output.log", "kept.txt"}  # which the rank has written itself
    coordinator.secrets["job"] = JobSecrets(values={"TOKEN": "another-value"}, former=(VALUE,))
    await agent.end(signal.SIGHUP)
    hold.touch()
    agent.start()
    await coordinator.until(drained("job"))
    ended = coordinator.rank("job")
    assert ended is not None
    assert ended.failure is not None
    assert ended.failure.message.startswith("refused: ***")
    assert VALUE not in repr(coordinator.observed) + repr([vars(each) for each in coordinator.received.values()])
    await coordinator.desire()
    await coordinator.until(lambda c: c.rank("job") is None)
    assert not files_with_value(folder)
    await agent.end()
