"""Jobs whose gradients are compressed: they learn, go on as if never paused, change their size and lose ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.training.link import Broken, Progress
from tests.faults import Fault, faulty_job
from tests.gangs import Job
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt
from tests.training.test_close_up import committed
from tests.training.test_pause import stitched

pytestmark = pytest.mark.timeout(300)
TOP_K = {"compression": "top_k", "ratio": 0.05, "dense_steps": 2}
STEPS = 60
POWER_SGD = {"compression": "power_sgd", "rank": 2, "dense_steps": 2}
LOSSY = pytest.mark.parametrize("communication", [TOP_K, TOP_K | {"threshold": "exact"}, POWER_SGD], ids=["top_k", "exact", "power_sgd"])


def job_of(make_job: MakeJob, ranks: int, communication: dict[str, Any], name: str = "job", **changes: Any) -> Job:
    return make_job(tiny_gpt(ranks, **changes) | {"communication": communication}, name)


@pytest.mark.parametrize(
    ("communication", "tolerance"),
    [({"compression": "bf16"}, 2e-3), ({"compression": "fp16"}, 5e-4), ({"bucket_mb": 0.01}, 1e-6), ({"static_graph": True}, 1e-6)],
)
def test_sixteen_bits_train_as_one_process_but_for_rounding(make_job: MakeJob, communication: dict[str, Any], tolerance: float) -> None:
    alone = make_job(tiny_gpt() | {"reproducible": False}, "alone").run()[0].curve("loss")
    ends = job_of(make_job, 2, communication).run(2)
    assert [end.exit_code for end in ends] == [0, 0], ends[0].output
    assert ends[0].curve("loss") == pytest.approx(alone, abs=tolerance)


@LOSSY
def test_lossy_jobs_learn_and_their_first_steps_are_dense(make_job: MakeJob, communication: dict[str, Any]) -> None:
    alone = make_job(tiny_gpt(steps=40) | {"reproducible": False}, "alone").run()[0].curve("loss")
    ends = job_of(make_job, 2, communication, steps=40).run(2)
    assert [end.exit_code for end in ends] == [0, 0], ends[0].output
    loss = ends[0].curve("loss")
    assert [loss[step] for step in (1, 2, 3)] == pytest.approx(
        [alone[step] for step in (1, 2, 3)], abs=1e-5
    )  # the losses before their first lossy update
    assert loss[40] != alone[40]
    assert loss[40] < loss[1] - 0.5 * (alone[1] - alone[40])


@LOSSY
def test_a_paused_job_goes_on_to_the_last_bit(make_job: MakeJob, communication: dict[str, Any]) -> None:
    pauses: dict[str, Any] = {"pause_at_steps": [7, 20]}
    straight = job_of(make_job, 2, communication, "straight", steps=30).run(2)[0]
    job = job_of(make_job, 2, communication, steps=30, **pauses)
    ends = [job.run(2)[0], job.resume(2)[0], job.resume(2)[0]]
    curve, again = straight.curve("loss"), stitched(ends, "loss")
    assert {step: again[step] for step in range(1, 9)} == {step: curve[step] for step in range(1, 9)}
    assert again == pytest.approx(curve, abs=1e-5)  # DDP orders its buckets anew in each generation


def test_fewer_bytes_are_sent_and_counted(make_job: MakeJob) -> None:
    deep = tiny_gpt(2)
    deep["model"] |= {"layers": 4}
    dense = make_job(deep | {"reproducible": False}, "dense").run(2)[0].curve("replicate_sent_bytes")
    sparse = make_job(deep | {"communication": TOP_K}, "sparse").run(2)[0].curve("replicate_sent_bytes")
    assert sparse[1] == pytest.approx(dense[1], rel=0.02)
    assert sparse[12] < 0.4 * dense[12]  # embeddings, norms and biases go as they are


#: A curve of a compressed job may differ by this share of its fall from that of one that nothing happened to: it loses what one rank had kept.
NEAR = 0.15


@pytest.mark.parametrize("communication", [TOP_K, POWER_SGD], ids=["top_k", "power_sgd"])
@pytest.mark.parametrize("newcomers", [1, 0], ids=["refilled", "smaller"])
def test_survivors_of_a_killed_rank_learn_as_a_job_does_that_nothing_happened_to(
    make_job: MakeJob, communication: dict[str, Any], newcomers: int
) -> None:
    spec = tiny_gpt(3, steps=STEPS) | {"communication": communication, "fault_tolerance": {"recovery": "close_up"}}
    undisturbed = make_job(spec, "undisturbed").run(3)[0].curve("loss")
    gang = make_job(spec).start(3)
    gang.agent.until(1, 0, Progress, lambda said: said.step >= 6)
    gang.processes[1].kill()
    for rank in (0, 2):
        gang.agent.until(1, rank, Broken)
    gang.close_up(0, 2, newcomers=newcomers)
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, -9, *[0] * (1 + newcomers)]
    curve = ends[0].curve("loss") | gang.left(2, 0).curve("loss")
    assert sorted(curve) == list(range(1, STEPS + 1))
    assert curve == pytest.approx(undisturbed, abs=NEAR * (undisturbed[1] - undisturbed[STEPS]))


def test_survivors_with_a_static_graph_take_over_the_micro_batches_of_a_killed_rank(make_job: MakeJob, tmp_path: Path) -> None:
    """One each before, and two for one of them from then on."""
    changes: dict[str, Any] = {"reproducible": False, "communication": {"static_graph": True}}
    spec = faulty_job(tmp_path / "code", Fault(2, 6), nodes=3, task="gpt", **changes)
    spec["training"] |= {"micro_batch_size": 4}
    gang = make_job(spec).start(3)
    for rank in (0, 1):
        gang.agent.until(1, rank, Broken)
    gang.close_up(0, 1)
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, 0, -9], gang.left(2, 0).output
    assert sorted(committed(ends[0], gang.left(2, 0))) == list(range(1, 13))


def test_another_world_deals_out_what_is_not_sent(make_job: MakeJob) -> None:
    straight = job_of(make_job, 2, TOP_K, "straight", steps=24).run(2)[0].curve("loss")
    job = job_of(make_job, 2, TOP_K, steps=24, pause_at_steps=[8, 16])
    job.run(2)
    curve: dict[int, float] = {}
    for ranks in (3, 1):
        ends = job.resume(ranks)
        assert [end.exit_code for end in ends] == [0] * ranks, ends[0].output
        curve |= ends[0].curve("loss")
    resized = {step: loss for step, loss in curve.items() if step > 8}
    undisturbed = {step: loss for step, loss in straight.items() if step > 8}
    assert resized == pytest.approx(undisturbed, abs=NEAR * (straight[1] - straight[24]))


HSDP = {"parallelism": {"strategy": "fsdp", "replicate": 2}, "reproducible": False}


@pytest.mark.parametrize("communication", [TOP_K, POWER_SGD], ids=["top_k", "power_sgd"])
def test_replicas_of_shards_compress_what_goes_between_them(make_job: MakeJob, communication: dict[str, Any]) -> None:
    ends = make_job(tiny_gpt(4) | HSDP | {"communication": communication}).run(4)
    assert [end.exit_code for end in ends] == [0] * 4, ends[0].output
    sent, loss = ends[0].curve("replicate_sent_bytes"), ends[0].curve("loss")
    assert sent[12] < 0.7 * sent[1]  # the first steps are dense
    assert loss[12] < loss[1]


def test_replicas_of_shards_send_sixteen_bits_in_place_of_thirty_two(make_job: MakeJob) -> None:
    dense = make_job(tiny_gpt(4) | HSDP, "dense").run(4)[0]
    for kind, tolerance in (("bf16", 2e-3), ("fp16", 5e-4)):
        ends = make_job(tiny_gpt(4) | HSDP | {"communication": {"compression": kind}}, kind).run(4)
        assert [end.exit_code for end in ends] == [0] * 4, ends[0].output
        sent, whole = ends[0].curve("replicate_sent_bytes")[12], dense.curve("replicate_sent_bytes")[12]
        assert sent == pytest.approx(whole / 2, rel=0.1)
        assert ends[0].curve("loss") == pytest.approx(dense.curve("loss"), abs=tolerance)
