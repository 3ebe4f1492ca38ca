"""Jobs that choose how to sum their gradients while they train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline.training.link import Broken
from paceline.training.saving import manifest as manifests
from tests.faults import Fault, faulty_job
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt

pytestmark = pytest.mark.timeout(300)
EXACT = {"algorithm": "auto"}


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_job_measures_and_tells_once_how_its_gradients_are_summed(make_job: MakeJob, ranks: int) -> None:
    alone = make_job(tiny_gpt(steps=60) | {"reproducible": False}, "alone").run()[0].curve("loss")
    nodes_of_one_host: dict[int, dict[str, Any]] = {rank: {"node_rank": rank, "hostname": "here"} for rank in range(ranks)}
    ends = make_job(tiny_gpt(ranks, steps=60) | {"communication": EXACT}).start(ranks, by_rank=nodes_of_one_host).wait()
    assert [end.exit_code for end in ends] == [0] * ranks, ends[0].output
    assert ends[0].curve("loss") == pytest.approx(alone, abs=1e-4), "all of them sum exactly"
    first, *_ = ends[0].events_of("communication_chosen")
    assert first["why"] in ("faster", "not_faster", "nothing_to_gain")
    assert [option["name"] for option in first["options"]][:2] == ["exactly, by the backend", "exactly, by a ring"]
    assert first["options"][0]["measured_seconds"] > 0
    assert [option["name"] for option in first["options"] if option["taken"]] == [first["name"]]
    assert first["within"]["bytes_per_second"] > 1e6
    assert first["between"] is None
    assert all(not end.events_of("communication_chosen") for end in ends[1:])


def test_a_job_that_allows_it_may_leave_something_out_and_learns(make_job: MakeJob) -> None:
    ends = make_job(tiny_gpt(2, steps=60) | {"communication": {"algorithm": "auto", "compression": "auto", "lossy": True}}).run(2)
    assert [end.exit_code for end in ends] == [0, 0], ends[0].output
    loss = ends[0].curve("loss")
    assert loss[60] < loss[1] - 0.3
    names = [option["name"] for option in ends[0].events_of("communication_chosen")[0]["options"]]
    assert names[:2] == ["exactly, by the backend", "exactly, by a ring"]
    assert {"in bf16, by the backend", "as top_k, by the backend", "as power_sgd, by the backend"} <= set(names)


def test_replicas_of_shards_choose_too(make_job: MakeJob) -> None:
    spec = tiny_gpt(4, steps=50) | {"communication": "auto", "parallelism": {"strategy": "fsdp", "shard": 2, "replicate": 2}}
    ends = make_job(spec).run(4)
    assert [end.exit_code for end in ends] == [0] * 4, ends[0].output
    loss = ends[0].curve("loss")
    assert loss[50] < loss[1] - 0.2
    names = [option["name"] for option in ends[0].events_of("communication_chosen")[0]["options"]]
    assert "in bf16, by the backend" in names
    assert not any("top_k" in name or "power_sgd" in name for name in names), "the job does not allow them"
    assert not any("buckets" in name for name in names), "sharded models have none"


def test_survivors_keep_what_was_found_out_and_newcomers_learn_of_it(make_job: MakeJob, tmp_path: Path) -> None:
    spec = faulty_job(tmp_path / "code", Fault(1, 25), nodes=3, steps=60, task="gpt", communication="auto")
    gang = make_job(spec).start(3)
    for rank in (0, 2):
        gang.agent.until(1, rank, Broken)
    gang.close_up(0, 2, newcomers=1)
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, -9, 0, 0]


def buckets_of(make_job: MakeJob, name: str, **changes: Any) -> list[dict[str, Any]]:
    """What a job of two ranks tells of the choice of its buckets."""
    spec = tiny_gpt(2, steps=50, dropout=0.0) | {"model": {"kind": "gpt", "layers": 4, "heads": 2, "dim": 128, "context": 16}}
    spec = spec | {"reproducible": False} | changes
    ends = make_job(spec, name).run(2)
    assert [end.exit_code for end in ends] == [0, 0], ends[0].output
    return ends[0].events_of("communication_chosen")


@pytest.mark.slow("three whole jobs, one of which tries sizes")
def test_ddp_measures_the_size_of_its_buckets_unless_the_job_says_it(make_job: MakeJob) -> None:
    told = buckets_of(make_job, "open")
    names = [option["name"] for option in told[0]["options"]]
    assert names[0] == "exactly, by the backend"
    assert all(name.startswith("exactly, by the backend, in buckets of") for name in names[1:]), "the job has asked for no other sum"
    assert told[0]["why"] in ("faster", "not_faster", "nothing_to_gain")
    assert told[0]["within"] is told[0]["between"] is None, "no link is probed for it"
    assert buckets_of(make_job, "given", communication={"bucket_mb": 1}) == []
    assert buckets_of(make_job, "in-a-tree", reproducible=True) == []


def test_a_compression_that_the_job_names_is_kept_whatever_the_size_of_the_buckets(make_job: MakeJob) -> None:
    told = buckets_of(make_job, "top-k", communication={"compression": "top_k", "dense_steps": 2})
    assert all(option["name"].startswith("as top_k, by the backend") for option in told[0]["options"])


def test_a_model_whose_gradients_are_one_message_in_any_case_has_nothing_to_measure(make_job: MakeJob) -> None:
    ends = make_job(tiny_gpt(2, steps=20) | {"reproducible": False}).run(2)
    assert [end.exit_code for end in ends] == [0, 0], ends[0].output
    assert not ends[0].events_of("communication_chosen")


def test_what_was_given_up_for_its_loss_is_not_tried_again_after_a_pause(make_job: MakeJob) -> None:
    """Each pause had a lossy job try again what it had given up for good. Also where it goes on alone for a while, which chooses nothing."""
    communication = {"algorithm": "auto", "compression": "auto", "lossy": True, "dense_steps": 2}
    job = make_job(tiny_gpt(2, steps=60, pause_at_steps=[4, 8]) | {"communication": communication})
    assert job.run(2)[0].exit_code == 0
    folder = Path(job.newest_first()[0])
    assert not manifests.read(folder).gave_up_lossy
    manifests.write(folder, msgspec.structs.replace(manifests.read(folder), gave_up_lossy=True))  # as after a bad loss
    assert job.resume(1)[0].exit_code == 0
    assert manifests.read(Path(job.newest_first()[0])).gave_up_lossy
    ends = job.resume(2)
    assert [end.exit_code for end in ends] == [0, 0], ends[0].output
    options = {option["name"]: option for option in ends[0].events_of("communication_chosen")[0]["options"]}
    assert options["in bf16, by the backend"]["predicted_seconds"] > 0
    lossy = [options[f"as {kind}, by the backend"] for kind in ("top_k", "power_sgd")]
    assert [(option["predicted_seconds"], option["measured_seconds"]) for option in lossy] == [(None, None)] * 2
