"""Jobs whose gradients are summed over Paceline's own rings: as one process but for rounding, and after pauses, resizes and kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.training.link import Broken
from tests.faults import Fault, faulty_job, states
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt

pytestmark = pytest.mark.timeout(300)
RING = {"algorithm": "ring"}
HIERARCHICAL = {"algorithm": "hierarchical"}
#: Four nodes of two machines, which have dealt the ranks round-robin.
TWO_MACHINES: dict[int, dict[str, Any]] = {
    rank: {"node_rank": rank, "hostname": "ab"[rank % 2], "local_rank": 0, "local_world_size": 1} for rank in range(4)
}


@pytest.mark.parametrize("communication", [RING, HIERARCHICAL], ids=["ring", "hierarchical"])
def test_sums_over_rings_train_as_one_process_but_for_rounding(make_job: MakeJob, communication: dict[str, Any]) -> None:
    alone = make_job(tiny_gpt() | {"reproducible": False}, "alone").run()[0].curve("loss")
    ends = make_job(tiny_gpt(4) | {"communication": communication}).start(4, by_rank=TWO_MACHINES).wait()
    assert [end.exit_code for end in ends] == [0] * 4, ends[0].output
    assert ends[0].curve("loss") == pytest.approx(alone, abs=1e-5)


def test_a_ring_sends_no_more_than_the_backend(make_job: MakeJob) -> None:
    by_backend = make_job(tiny_gpt(4) | {"reproducible": False}, "backend").run(4)[0].curve("replicate_sent_bytes")
    over_ring = make_job(tiny_gpt(4) | {"communication": RING}, "ring").run(4)[0].curve("replicate_sent_bytes")
    assert over_ring[5] == pytest.approx(by_backend[5], rel=0.01)


def test_between_machines_gradients_are_compressed(make_job: MakeJob) -> None:
    communication = HIERARCHICAL | {"compression": "top_k", "ratio": 0.05, "dense_steps": 2}
    alone = make_job(tiny_gpt(steps=40) | {"reproducible": False}, "alone").run()[0].curve("loss")
    job = make_job(tiny_gpt(4, steps=40) | {"communication": communication})
    ends = job.start(4, by_rank=TWO_MACHINES).wait()
    assert [end.exit_code for end in ends] == [0] * 4, ends[0].output
    loss, sent = ends[0].curve("loss"), ends[0].curve("replicate_sent_bytes")
    assert loss[40] < loss[1] - 0.5 * (alone[1] - alone[40])
    assert sent[30] < sent[1]


@pytest.mark.parametrize("communication", [RING, HIERARCHICAL], ids=["ring", "hierarchical"])
def test_survivors_of_a_killed_rank_connect_anew_and_go_on(make_job: MakeJob, tmp_path: Path, communication: dict[str, Any]) -> None:
    code = tmp_path / "code"
    alone = make_job(faulty_job(tmp_path / "alone", nodes=1, steps=14, task="gpt", reproducible=False), "alone").run()[0].curve("loss")
    gang = make_job(faulty_job(code, Fault(1, 6), nodes=3, steps=14, task="gpt", communication=communication)).start(3)
    for rank in (0, 2):
        gang.agent.until(1, rank, Broken)
    gang.close_up(0, 2, newcomers=1)
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, -9, 0, 0]
    assert ends[0].curve("loss") | gang.left(2, 0).curve("loss") == pytest.approx(alone, abs=1e-4)
    assert {step: len(hashes) for step, hashes in states(code).items()} == dict.fromkeys(range(1, 15), 1)


TOP_K = {"compression": "top_k", "ratio": 0.05, "dense_steps": 2}


@pytest.mark.parametrize("communication", [HIERARCHICAL, HIERARCHICAL | TOP_K], ids=["exact", "top_k"])
def test_survivors_on_two_machines_and_a_newcomer_are_a_hierarchy_again(
    make_job: MakeJob, tmp_path: Path, communication: dict[str, Any]
) -> None:
    """Rank 1 of machine b is killed: the others are ranks 0 and 1, of machine a, and 2, of machine b, where rank 3 is new."""
    code = tmp_path / "code"
    changes: dict[str, Any] = {"task": "gpt", "steps": 14}
    gang = make_job(faulty_job(code, Fault(1, 6), nodes=4, communication=communication, **changes)).start(4, by_rank=TWO_MACHINES)
    for rank in (0, 2, 3):
        gang.agent.until(1, rank, Broken)
    gang.close_up(0, 2, 3, newcomers=1, by_rank={rank: TWO_MACHINES[rank] | {"hostname": "aabb"[rank]} for rank in range(4)})
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, -9, 0, 0, 0], gang.left(2, 0).output
    assert {step: len(hashes) for step, hashes in states(code).items()} == dict.fromkeys(range(1, 15), 1)
    before, after = ends[0], gang.left(2, 0)
    sent = [end.curve("replicate_sent_bytes") for end in (before, after)]
    assert sent[0][5] >= 2 / 3 * sent[0][1]  # what goes within machines is whole
    assert sent[1][12] == pytest.approx(sent[0][5], rel=0.05)
    if communication is HIERARCHICAL:
        alone = make_job(faulty_job(tmp_path / "alone", nodes=1, reproducible=False, **changes), "alone").run()[0].curve("loss")
        assert before.curve("loss") | after.curve("loss") == pytest.approx(alone, abs=1e-4)


def test_a_paused_job_goes_on_with_another_number_of_ranks(make_job: MakeJob) -> None:
    alone = make_job(tiny_gpt(steps=24) | {"reproducible": False}, "alone").run()[0].curve("loss")
    job = make_job(tiny_gpt(2, steps=24, pause_at_steps=[8, 16]) | {"communication": RING})
    ends = [job.run(2)[0], job.resume(3)[0], job.resume(1)[0]]
    assert [end.exit_code for end in ends] == [0] * 3, ends[-1].output
    assert ends[2].curve("loss")[24] == pytest.approx(alone[24], abs=1e-4)


def test_replicas_of_shards_are_summed_over_rings(make_job: MakeJob) -> None:
    plan = {"parallelism": {"strategy": "fsdp", "replicate": 2}, "reproducible": False}
    by_backend = make_job(tiny_gpt(4) | plan, "backend").run(4)[0].curve("loss")
    ends = make_job(tiny_gpt(4) | plan | {"communication": RING}, "ring").run(4)
    assert [end.exit_code for end in ends] == [0] * 4, ends[0].output
    assert ends[0].curve("loss") == pytest.approx(by_backend, abs=1e-5)


def test_replicas_of_shards_on_two_machines_are_a_hierarchy(make_job: MakeJob) -> None:
    """Two replicas of two shards on each machine: what goes within machines is whole, between them compressed."""
    spec = tiny_gpt(8, steps=6) | {"parallelism": {"strategy": "fsdp", "replicate": 4}, "reproducible": False}
    spec["training"] |= {"micro_batch_size": 1}
    machines = {rank: TWO_MACHINES[0] | {"node_rank": rank, "hostname": "ab"[rank // 4]} for rank in range(8)}
    dense = make_job(spec, "dense").run(8)[0].curve("loss")
    ends = make_job(spec | {"communication": HIERARCHICAL | TOP_K}).start(8, by_rank=machines).wait()
    assert [end.exit_code for end in ends] == [0] * 8, ends[0].output
    loss, sent = ends[0].curve("loss"), ends[0].curve("replicate_sent_bytes")
    assert [loss[step] for step in (1, 2, 3)] == pytest.approx([dense[step] for step in (1, 2, 3)], abs=1e-5)  # before a lossy update
    assert loss[6] != dense[6]
    assert 2 / 3 <= sent[6] / sent[1] < 0.95
