from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import msgspec
import pytest

from paceline.cluster.agent import housekeeping
from paceline.cluster.agent.folders import KEEP_OUTPUT_SECONDS, KEEP_WORK_SECONDS
from paceline.cluster.agent.housekeeping import Housekeeper, retire
from paceline.cluster.agent.removal import remove_tree
from paceline.cluster.agent.upload.transfer import PROBLEM_TYPE
from paceline.cluster.protocol import ENDED_JOBS_PATH, EndedJobs, EndedJobsQuestion
from paceline.training.rank_folder import RankFolder

NOW = time.time()
WEEKS = 21 * 24 * 3600.0


def sweep(jobs: Path, now: float) -> None:
    """Sweep as if the coordinator had said that the one job here has ended."""
    Housekeeper(jobs, jobs.parent / "trash").sweep(now, {"job"})


def leave_work(jobs: Path, *names: str) -> None:
    """Make folders of jobs in which scripts saved something, and nothing has been done for weeks."""
    for name in names:
        work = jobs / name / "work"
        work.mkdir(parents=True)
        (work / "checkpoint.pt").write_text("x")
        os.utime(work.parent, (NOW - WEEKS, NOW - WEEKS))


def coordinator(answer: Callable[[EndedJobsQuestion], httpx.Response]) -> httpx.AsyncClient:
    def reply(request: httpx.Request) -> httpx.Response:
        assert (request.method, request.url.path) == ("POST", ENDED_JOBS_PATH)
        return answer(msgspec.json.decode(request.content, type=EndedJobsQuestion))

    return httpx.AsyncClient(base_url="http://c", transport=httpx.MockTransport(reply))


def make(jobs: Path, generation: int, age: float = 0.0, *, retired: bool = True) -> Path:
    folder = RankFolder(jobs.parent, "job", generation, 0)
    folder.path.mkdir(parents=True)
    for path in (folder.order, folder.metrics, folder.output, folder.exit_status):
        path.write_text("x")
    if retired:
        retire(folder)
    os.utime(folder.path, (NOW - age, NOW - age))
    return folder.path.parent


def test_the_last_generations_output_stays_for_a_day(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    first, second = make(jobs, 9), make(jobs, 10)
    sweep(jobs, NOW)
    assert not first.exists()
    assert sorted(path.name for path in (second / "rank0").iterdir()) == ["exit.json", "output.log"]
    sweep(jobs, NOW + KEEP_OUTPUT_SECONDS + 10)
    assert list(jobs.iterdir()) == []


def test_what_a_script_saved_in_the_jobs_folder_stays_longer_than_its_output(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    folder = RankFolder.at(make(jobs, 1) / "rank0")
    for shared in (folder.logs, folder.work):
        shared.mkdir()
        (shared / "file").write_text("x")
    later = NOW + KEEP_OUTPUT_SECONDS + 100
    sweep(jobs, later)  # the generation
    sweep(jobs, later)  # what stood beside it
    assert [path.name for path in folder.work.parent.iterdir()] == ["work"]
    sweep(jobs, later + KEEP_WORK_SECONDS)
    sweep(jobs, later + KEEP_WORK_SECONDS + 100)
    assert list(jobs.iterdir()) == []


async def test_what_a_paused_script_has_saved_is_there_after_weeks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was deleted four days after its ranks had gone, and the script began anew."""
    monkeypatch.setattr(housekeeping, "JOBS_ASKED_ABOUT", 2)
    leave_work(tmp_path / "jobs", "paused", "ended", "deleted")
    asked = list[EndedJobsQuestion]()

    def answer(question: EndedJobsQuestion) -> httpx.Response:
        asked.append(question)
        return httpx.Response(200, content=msgspec.json.encode(EndedJobs(job_ids=tuple({*question.job_ids} - {"paused"}))))

    keeper = Housekeeper(tmp_path / "jobs", tmp_path / "trash")
    async with coordinator(answer) as http:
        await keeper.tidy(http, NOW)
        assert sorted(job_id for question in asked for job_id in question.job_ids) == ["deleted", "ended", "paused"]
        assert {question.seconds_ago for question in asked} == {4 * 24 * 3600.0}
        assert [len(question.job_ids) for question in asked] == [2, 1]
        await keeper.tidy(http, NOW + WEEKS)
    assert (tmp_path / "jobs" / "paused" / "work" / "checkpoint.pt").exists()
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["paused"]


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(503),
        httpx.Response(404, headers={"content-type": PROBLEM_TYPE}),  # as a version that does not know the question
        httpx.Response(200, text="sign in first"),
    ],
)
async def test_what_scripts_have_saved_stays_while_nobody_says_whose_jobs_have_ended(tmp_path: Path, answer: httpx.Response) -> None:
    leave_work(tmp_path / "jobs", "one")
    first, _ = make(tmp_path / "jobs", 1), make(tmp_path / "jobs", 2)
    async with coordinator(lambda _: answer) as http:
        await Housekeeper(tmp_path / "jobs", tmp_path / "trash").tidy(http, NOW)
    assert (tmp_path / "jobs" / "one" / "work").exists()
    assert not first.exists()


def test_nothing_stays_of_a_job_that_saved_into_an_object_store(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    folder = RankFolder.at(make(jobs, 1) / "rank0")
    staged = folder.staging / "restores" / "g1" / "step-100"
    for shared in (folder.logs, folder.work, staged):
        shared.mkdir(parents=True)
    (staged / "weights").write_text("left by a rank that was killed")
    later = NOW + KEEP_OUTPUT_SECONDS + 100
    for now in (later, later, later + KEEP_WORK_SECONDS, later + KEEP_WORK_SECONDS + 100):
        sweep(jobs, now)
    assert list(jobs.iterdir()) == []


def test_staged_checkpoints_stay_as_long_as_a_rank_may_use_them(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    folder = RankFolder.at(make(jobs, 1, retired=False) / "rank0")
    folder.staging.mkdir()
    sweep(jobs, NOW + KEEP_OUTPUT_SECONDS + 100)
    assert folder.staging.exists()


def test_files_that_are_not_uploaded_yet_keep_their_generation_for_a_day(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    first, _ = make(jobs, 1), make(jobs, 2)
    traces = RankFolder(tmp_path, "job", 1, 0).artifacts
    traces.mkdir()
    (traces / "trace.json.gz.note").write_text("{}")
    os.utime(traces.parent, (NOW, NOW))
    sweep(jobs, NOW)
    assert (traces / "trace.json.gz.note").exists()
    sweep(jobs, NOW + KEEP_OUTPUT_SECONDS + 10)
    assert not first.exists()


def test_what_is_not_retired_is_never_touched(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    kept, newer = make(jobs, 1, age=10 * KEEP_OUTPUT_SECONDS, retired=False), make(jobs, 2)
    sweep(jobs, NOW)
    assert (kept / "rank0" / "metrics.spool").exists()
    assert newer.exists()


def test_a_folder_that_cannot_be_removed_leaves_the_jobs_is_told_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jobs, busy = tmp_path / "jobs", True

    def remove(path: Path) -> None:
        if busy and ".g1." in path.name:
            raise PermissionError(13, "Permission denied", str(path / "root-owned"))
        remove_tree(path)

    first, second, _ = make(jobs, 1), make(jobs, 2), make(jobs, 3)
    keeper = Housekeeper(jobs, tmp_path / "trash", remove)
    keeper.sweep(NOW)
    keeper.sweep(NOW)
    assert not first.exists()  # nobody looks for ranks in it any more
    assert not second.exists()  # and the next one is not held up by it
    assert [path.name.split(".")[:2] for path in (tmp_path / "trash").iterdir()] == [["job", "g1"]]
    assert caplog.text.count("root-owned") == 1
    busy = False
    keeper.sweep(NOW)
    assert list((tmp_path / "trash").iterdir()) == []


def test_read_only_folders_of_a_job_are_removed(tmp_path: Path) -> None:
    """As module caches make them; root is not held up by them, so this tells more as another user."""
    generation, _ = make(tmp_path / "jobs", 1), make(tmp_path / "jobs", 2)
    cache = generation / "rank0" / "cache" / "module"
    cache.mkdir(parents=True)
    (cache / "file").write_text("")
    cache.chmod(0o500)
    cache.parent.chmod(0o500)
    sweep(tmp_path / "jobs", NOW)
    assert list((tmp_path / "trash").iterdir()) == []
    assert not generation.exists()


def test_a_stray_file_among_the_jobs_or_generations_holds_nothing_up(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    first, _ = make(jobs, 1), make(jobs, 2)
    (jobs / "stray").write_text("")
    (jobs / "a-link").symlink_to("/nowhere")
    (first.parent / "g7").write_text("")
    (first.parent / "gone").symlink_to("/nowhere")
    sweep(jobs, NOW)
    assert not first.exists()


def test_a_rank_that_made_its_own_folder_read_only_is_retired_all_the_same(tmp_path: Path) -> None:
    folder = RankFolder(tmp_path, "job", 1, 0)
    folder.metrics.mkdir(parents=True)  # what should be a file
    folder.order.write_text("{}")
    folder.path.chmod(0o500)
    retire(folder)
    assert list(folder.path.iterdir()) == []
