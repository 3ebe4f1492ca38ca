"""Goodput, the audit of samples and the comparison of runs, over rows as the coordinator keeps them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.services.lifecycle import events
from paceline.cluster.states import EndReason, JobState
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.incidents import IncidentRow
from paceline.db.models.jobs import GenerationRow, JobRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import jobs as job_rows
from paceline.monitoring.points import MetricRecord, RankBatch
from paceline.training.spec.job import JobSpec
from tests import factories
from tests.factories import START

BATCH, EPOCH = 8, 100
T0 = START.timestamp()


def step_record(step: int, ended: float, seconds: float = 1.0, *, own: bool = True, **values: Any) -> MetricRecord:
    """What rank 0 tells of one step; `own=False`: what its successor tells of it again."""
    known: dict[str, Any] = {"loss": math.exp(-step / 100), "gradient_norm": 1.0 / step, "samples_per_second": BATCH / seconds}
    known |= {"first_sample": float((step - 1) * BATCH), "samples": float(BATCH), "epoch_samples": float(EPOCH)}
    return MetricRecord(seq=step, step=step, time=T0 + ended, values=known | ({"step_seconds": seconds} if own else {}) | values)


@dataclass
class JobHistory:
    app: FastAPI
    services: Services
    client: httpx.AsyncClient
    node: NodeRow

    async def tell(self, job_id: str, generation: int, records: list[MetricRecord]) -> None:
        numbered = [MetricRecord(seq=seq, step=each.step, time=each.time, values=each.values) for seq, each in enumerate(records, 1)]
        await self.app.state.writer.store([RankBatch(job_id=job_id, generation=generation, rank=0, metrics=numbered)])

    async def get(self, path: str, **params: Any) -> dict[str, Any]:
        answer = await self.client.get(f"/api/v1/training/{path}", params=params)
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    async def job(
        self, *generations: tuple[int, int], ended: float | None = None, spec: dict[str, Any] | None = None, **columns: Any
    ) -> str:
        """`generations`: (world size, start step), in order; they begin 10 s apart."""
        async with self.services.write() as session:
            state = JobState.RUNNING if ended is None else JobState.COMPLETED
            times = {"started_at": START, "ended_at": None if ended is None else START + timedelta(seconds=ended)}
            known = factories.job_spec(**(spec or {}))
            job = await factories.create_job(session, spec=known, state=state, generation=len(generations), **times, **columns)
            for number, (size, start) in enumerate(generations, 1):
                session.add(generation_row(job, number, size, start))
            return job.id

    async def move(self, job_id: str, at: float, state: JobState, *, type: str = "job.state", **facts: Any) -> None:
        async with self.services.write() as session:
            await tell_state(session, job_id, at, state, type, facts)


def generation_row(job: JobRow, number: int, size: int, start: int) -> GenerationRow:
    begun = START + timedelta(seconds=10 * (number - 1))
    return GenerationRow(job_id=job.id, generation=number, world_size=size, started_at=begun, start_step=start, store_token="t")


async def tell_state(session: AsyncSession, job_id: str, at: float, state: JobState, type: str, facts: dict[str, Any]) -> None:
    time, data = START + timedelta(seconds=at), {"state": state.value, "to": state.value, **facts}
    generation = facts.get("generation")
    await events.record(
        session, type=type, actor=SYSTEM, cause="test", message="test", job_id=job_id, generation=generation, data=data, time=time
    )


@pytest.fixture
async def history(app: FastAPI, services: Services, client: httpx.AsyncClient) -> JobHistory:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
    return JobHistory(app, services, client, node)


# --- goodput


async def restarted(history: JobHistory) -> str:
    """Four steps from second 3 on, killed at 7.5, started again at 10 from step 2, and two more steps from 12 on."""
    job_id = await history.job((1, 0), (1, 2), ended=16)
    await history.move(job_id, 0, JobState.STARTING, type="job.placed", generation=1)
    await history.move(job_id, 2, JobState.RUNNING, reason=None)
    await history.move(job_id, 8, JobState.RECOVERING, reason=EndReason.RANK_CRASHED)
    await history.move(job_id, 10, JobState.RECOVERING, type="job.placed", generation=2)
    await history.move(job_id, 11, JobState.RUNNING, reason=None)
    await history.move(job_id, 15, JobState.STOPPING, reason=EndReason.COMPLETED)
    await history.move(job_id, 16, JobState.COMPLETED, reason=EndReason.COMPLETED)
    await history.tell(job_id, 1, [step_record(step, 3.0 + step) for step in range(1, 5)])
    await history.tell(job_id, 2, [step_record(step, 10.0 + step) for step in range(3, 5)])
    async with history.services.write() as session:
        moments = {name: START + timedelta(seconds=at) for name, at in {"fault_at": 7.5, "detected_at": 7.75, "decided_at": 8}.items()}
        later = {"entered_at": START + timedelta(seconds=10), "first_step_at": START + timedelta(seconds=13)}
        about = {"generation": 1, "next_generation": 2, "action": "restarted", "step": 3, "resumed_step": 2}
        session.add(IncidentRow(job_id=job_id, why="boom; restart 1 of at most 3", culprit=None, **about, **moments, **later))
    return job_id


async def test_every_second_of_a_job_that_was_restarted(history: JobHistory) -> None:
    found = await history.get(f"jobs/{await restarted(history)}/goodput")
    parts = {part["cause"]: part["seconds"] for part in found["parts"]}
    assert parts == pytest.approx({"stepping": 4, "redone": 2.5, "starting": 3, "incident": 4.5, "stopping": 1, "unaccounted": 1})
    assert sum(parts.values()) == pytest.approx(found["wall_seconds"]) == 16
    assert (found["goodput"], found["useful_steps"], found["redone_steps"]) == (0.25, 4, 2)
    assert [part["seconds"] for part in found["incidents"]] == [4.5]
    assert found["text"] == "25.0% of the 16 s since the job got its slots went into useful training (4 steps)"


async def test_what_a_restart_threw_away(history: JobHistory) -> None:
    (found,) = (await history.client.get(f"/api/v1/training/jobs/{await restarted(history)}/incidents")).json()
    assert (found["step"], found["steps_lost"], found["seconds_lost"], found["outage_seconds"]) == (4, 2, 2.5, 5.5)
    assert [(phase["name"], phase["seconds"]) for phase in found["phases"]] == [
        ("detect", 0.25),
        ("decide", 0.25),
        ("place", 2.0),
        ("first_step", 3.0),
    ]
    assert found["done"] == "all ranks restarted as generation 2 from step 2; 2 steps had to be repeated"


async def set_back(history: JobHistory) -> str:
    """Four steps from second 3 on, a fault at 7.5 for which the job fails at 9; set back at 100 to step 2, and two more steps from 104 on."""
    job_id = await history.job((1, 0), (1, 2), ended=108)
    moved = [(0, JobState.STARTING, "job.placed", 1), (2, JobState.RUNNING, "job.state", 1), (8, JobState.STOPPING, "job.state", 1)]
    moved += [(9, JobState.FAILED, "job.state", 1), (100, JobState.QUEUED, "job.set_back", 1), (102, JobState.STARTING, "job.placed", 2)]
    moved += [(103, JobState.RUNNING, "job.state", 2), (107, JobState.STOPPING, "job.state", 2), (108, JobState.COMPLETED, "job.state", 2)]
    for at, state, type, generation in moved:
        await history.move(job_id, at, state, type=type, generation=generation, reason=None)
    await history.tell(job_id, 1, [step_record(step, 3.0 + step) for step in range(1, 5)])
    await history.tell(job_id, 2, [step_record(step, 102.0 + step) for step in range(3, 5)])
    async with history.services.write() as session:
        first, second = await job_rows.generations_of(session, job_id)
        first.ended_at, second.started_at = START + timedelta(seconds=9), START + timedelta(seconds=102)
        second.ended_at = START + timedelta(seconds=108)
        moments = {"fault_at": 7.5, "detected_at": 7.75, "decided_at": 8.0, "closed_at": 9.0}
        about = {"generation": 1, "action": "gave_up", "step": 4, "why": "boom; restart 3 of at most 3 has been made", "culprit": None}
        session.add(IncidentRow(job_id=job_id, **about, **{name: START + timedelta(seconds=at) for name, at in moments.items()}))
    return job_id


async def test_no_second_of_a_job_that_was_set_back_is_counted_while_it_was_at_rest(history: JobHistory) -> None:
    found = await history.get(f"jobs/{await set_back(history)}/goodput")
    parts = {part["cause"]: part["seconds"] for part in found["parts"]}
    assert parts == pytest.approx({"stepping": 4, "redone": 2.5, "starting": 5, "waiting": 2, "incident": 1.5, "stopping": 2})
    assert sum(parts.values()) == pytest.approx(found["wall_seconds"]) == 17
    assert found["wall_seconds"] + found["paused_seconds"] == pytest.approx(108)
    assert (found["useful_steps"], found["redone_steps"]) == (4, 2)
    assert [part["seconds"] for part in found["incidents"]] == [1.5]


async def test_the_fault_before_a_job_was_set_back_ended_with_the_job(history: JobHistory) -> None:
    (found,) = (await history.client.get(f"/api/v1/training/jobs/{await set_back(history)}/incidents")).json()
    assert (found["outcome"], found["outage_seconds"], found["next_generation"], found["steps_lost"]) == ("stopped", 1.5, None, None)
    assert all(phase["seconds"] >= 0 for phase in found["phases"])
    assert sum(phase["seconds"] for phase in found["phases"]) == pytest.approx(1.5)


async def test_samples_that_a_job_used_again_after_it_was_set_back_count_once(history: JobHistory) -> None:
    found = await history.get(f"jobs/{await set_back(history)}/samples")
    assert (found["exactly_once"], found["findings"]) == (True, [])
    ranges = [
        (each["generation"], each["first_step"], each["last_step"], each["first_sample"], each["samples"]) for each in found["ranges"]
    ]
    assert ranges == [(1, 1, 2, 0, 16), (2, 3, 4, 16, 16)]


async def test_a_long_job_is_accounted_from_roll_ups(history: JobHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same job, by record and by roll-up: 300 steps with an evaluation of a second after every hundredth."""
    job_id = await history.job((1, 0), ended=400)
    await history.move(job_id, 0, JobState.RUNNING, type="job.placed", generation=1)
    await history.tell(job_id, 1, [step_record(step, 10.0 + step + (step - 1) // 100) for step in range(1, 301)])
    exact = await history.get(f"jobs/{job_id}/goodput")
    monkeypatch.setattr("paceline.api.services.history.goodput.MAX_RECORDS", 100)
    monkeypatch.setattr("paceline.api.services.history.goodput.MAX_BUCKETS", 40)
    history.app.state.heavy_reads.forget()
    rolled = await history.get(f"jobs/{job_id}/goodput")
    assert (exact["resolution_steps"], rolled["resolution_steps"]) == (1, 10)
    assert {part["cause"]: part["seconds"] for part in rolled["parts"]} == pytest.approx(
        {part["cause"]: part["seconds"] for part in exact["parts"]}
    )
    assert next(part["seconds"] for part in exact["parts"] if part["cause"] == "evaluating_and_saving") == pytest.approx(2)


async def test_a_script_that_logs_metrics_is_not_said_to_have_lost_its_steps(history: JobHistory) -> None:
    spec = JobSpec.model_validate({"name": "own", "script": {"path": "/srv/train.py"}})
    async with history.services.write() as session:
        job = await factories.create_running_job(session, history.node, spec=spec, progress={"step": 7, "loss": 1.0})
    found = await history.get(f"jobs/{job.id}/goodput")
    assert (found["goodput"], found["text"]) == (None, "not known: a script does not tell how long its steps take")


async def test_a_job_without_slots_has_spent_nothing(history: JobHistory) -> None:
    async with history.services.write() as session:
        job = await factories.create_job(session, created_at=START)
    found = await history.get(f"jobs/{job.id}/goodput")
    assert (found["goodput"], found["since"], found["wall_seconds"], found["parts"]) == (None, None, 0, [])
    assert found["queued_seconds"] > 0
    assert found["text"] == "it has not had slots yet"


async def test_an_ended_job_is_not_told_of_as_one_that_may_still_get_slots(history: JobHistory) -> None:
    async with history.services.write() as session:
        ended: dict[str, Any] = {"state": JobState.CANCELLED, "ended_at": START + timedelta(seconds=5)}
        job = await factories.create_job(session, created_at=START, **ended)
    assert (await history.get(f"jobs/{job.id}/goodput"))["text"] == "it never had slots"


# --- samples


async def test_samples_over_a_restart_and_a_closing_up(history: JobHistory) -> None:
    job_id = await history.job((2, 0), (2, 10), (1, 30))
    await history.tell(job_id, 1, [step_record(step, step) for step in range(1, 21)])  # 11 to 20 were done again
    await history.tell(job_id, 2, [step_record(step, step) for step in range(11, 30)])  # the leader died before it wrote down 30
    retold = [step_record(step, step, own=False) for step in range(28, 31)]
    await history.tell(job_id, 3, retold + [step_record(step, step) for step in range(31, 41)])
    found = await history.get(f"jobs/{job_id}/samples")
    assert (found["exactly_once"], found["findings"]) == (True, [])
    assert found["text"] == "exactly once: 40 steps used 320 samples: no duplicates, none skipped (10 replayed steps excluded)"
    ranges = [
        (each["generation"], each["first_step"], each["last_step"], each["first_sample"], each["samples"], each["epoch"])
        for each in found["ranges"]
    ]
    assert ranges == [(1, 1, 10, 0, 80, 0), (2, 11, 30, 80, 160, 0), (3, 31, 40, 240, 80, 2)]
    assert [(each["used"], each["complete"]) for each in found["epochs"]] == [(100, True), (100, True), (100, True), (20, False)]


async def test_one_step_and_pages_of_ranges(history: JobHistory) -> None:
    job_id = await history.job((1, 0), (1, 4), (1, 8))
    for number, steps in enumerate((range(1, 5), range(5, 9), range(9, 13)), 1):
        await history.tell(job_id, number, [step_record(step, step) for step in steps])
    (only,) = (await history.get(f"jobs/{job_id}/samples", step=6))["ranges"]
    assert (only["generation"], only["first_step"], only["first_sample"], only["samples"]) == (2, 6, 40, 8)
    page, seen = await history.get(f"jobs/{job_id}/samples", limit=1), []
    while True:
        seen += [each["first_step"] for each in page["ranges"]]
        assert (page["steps"], page["exactly_once"]) == (12, True)
        if page["next_cursor"] is None:
            break
        page = await history.get(f"jobs/{job_id}/samples", limit=1, cursor=page["next_cursor"])
    assert seen == [1, 5, 9]


async def test_a_sample_used_twice_is_found(history: JobHistory) -> None:
    job_id = await history.job((1, 0))
    await history.tell(job_id, 1, [step_record(1, 1), step_record(2, 2, first_sample=4.0), step_record(2, 2.5)])
    found = await history.get(f"jobs/{job_id}/samples")
    assert found["exactly_once"] is False
    assert "step 2 was told 2 times by generation 1" in found["findings"]
    assert found["text"].startswith("not exactly once: ")


async def test_a_job_that_tells_no_samples_says_so(history: JobHistory) -> None:
    job_id = await history.job((1, 0))
    await history.tell(job_id, 1, factories.records(1, 5, step_seconds=1.0))
    found = await history.get(f"jobs/{job_id}/samples")
    assert (found["recorded"], found["exactly_once"], found["ranges"]) == (False, None, [])
    assert found["text"] == "no step has told which samples it used"


# --- comparison


async def compared(history: JobHistory, one: str, other: str) -> dict[str, Any]:
    (found,) = (await history.get("compare", jobs=f"{one},{other}"))["items"]
    document: dict[str, Any] = found
    return document


async def test_two_runs_that_are_one(history: JobHistory) -> None:
    """One undisturbed, one that lost a rank and was told of by two generations."""
    quiet, hurt = await history.job((2, 0), ended=50), await history.job((3, 0), (2, 20), ended=60)
    await history.tell(quiet, 1, [step_record(step, step) for step in range(1, 41)])
    await history.tell(hurt, 1, [step_record(step, step * 1.5, 1.5) for step in range(1, 21)])
    await history.tell(hurt, 2, [step_record(step, step * 1.5, 1.5) for step in range(20, 41)])
    await saved(history, quiet, 40, "f00d")
    await saved(history, hurt, 40, "f00d", generation=2)
    found = await compared(history, quiet, hurt)
    assert (found["verdict"], found["same_run"]) == ("same", True)
    assert found["text"] == "same run, to the last bit: 40 of 40 steps equal, and the parameters at step 40, on 2 and 3 ranks"
    assert [(metric["name"], metric["compared"], metric["equal"]) for metric in found["metrics"]] == [
        ("loss", 40, 40),
        ("gradient_norm", 40, 40),
    ]
    assert found["parameters"] == {"step": 40, "hashes": ["f00d", "f00d"], "equal": True}
    assert [job["world_sizes"] for job in found["jobs"]] == [[2], [3, 2]]


async def saved(history: JobHistory, job_id: str, step: int, digest: str, generation: int = 1) -> None:
    async with history.services.write() as session:
        about = {"job_id": job_id, "step": step, "generation": generation, "node_id": history.node.id, "directory": f"/c/{job_id}/{step}"}
        session.add(CheckpointRow(**about, bytes=1, manifest_sha256="0" * 64, parameters_sha256=digest, created_at=START))


async def test_parameters_of_a_step_that_was_undone_are_not_compared(history: JobHistory) -> None:
    """One ran through; the other was set back from step 30 to 10, and has come to 25 since."""
    whole, redone = await history.job((1, 0), ended=50), await history.job((1, 0), (1, 10))
    await history.tell(whole, 1, [step_record(step, step) for step in range(1, 31)])
    await history.tell(redone, 1, [step_record(step, step) for step in range(1, 31)])
    await history.tell(redone, 2, [step_record(step, 30 + step) for step in range(11, 26)])
    for job_id, digest in ((whole, "f00d"), (redone, "bad")):
        await saved(history, job_id, 10, "beef")
        await saved(history, job_id, 30, digest)
    found = await compared(history, whole, redone)
    assert found["verdict"] == "same_so_far"
    assert found["parameters"] == {"step": 10, "hashes": ["beef", "beef"], "equal": True}


async def test_two_runs_that_part_at_a_bit(history: JobHistory) -> None:
    one = await history.job((1, 0))
    other = await history.job((1, 0), spec={"training": {"steps": 100, "global_batch_size": 8, "seed": 5}})
    await history.tell(one, 1, [step_record(step, step) for step in range(1, 11)])
    steps = [step_record(step, step) for step in range(1, 11) if step != 7]
    await history.tell(other, 1, [*steps, step_record(7, 7, loss=math.nextafter(math.exp(-0.07), 1))])
    found = await compared(history, one, other)
    assert (found["verdict"], found["same_run"]) == ("close", False)
    assert found["metrics"][0]["first_difference"]["step"] == 7
    assert "equal until step 6, then differs: loss " in found["text"]
    (seed,) = [each for each in found["spec_differences"] if each["changes_numbers"]]
    assert (seed["path"], seed["values"]) == ("training.seed", ["0", "5"])
    assert seed["text"] == "training.seed: 0 and 5; may change the numbers"


async def test_only_known_jobs_and_more_than_one_can_be_compared(history: JobHistory) -> None:
    one = await history.job((1, 0))
    for jobs, status, code in (
        (one, 400, "invalid_parameter"),
        (f"{one},{one}", 400, "invalid_parameter"),
        (f"{one},nobody", 404, "not_found"),
    ):
        answer = await history.client.get("/api/v1/training/compare", params={"jobs": jobs})
        assert (answer.status_code, answer.json()["code"]) == (status, code), jobs
    found = await compared(history, one, await history.job((1, 0)))
    assert (found["verdict"], found["text"]) == ("nothing_to_compare", "nothing to compare: no step is known of both")
