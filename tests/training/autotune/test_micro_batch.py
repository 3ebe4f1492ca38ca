"""`micro_batch_size: auto`: the largest that fits, the same on all ranks, found once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.parallelism.model_shape import CPU
from paceline.training.autotune.micro_batch import ATTEMPT, MicroBatchSearch, in_turn, sizes_to_try
from paceline.training.link import Progress
from paceline.training.planning.estimates import memory_of
from paceline.training.spec.job import JobSpec
from tests.gangs import RankEnd
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt

MIB = 2**20
#: Wide enough that its tensors, not bookkeeping, are what is measured.
GPT = {"kind": "gpt", "layers": 2, "dim": 96, "heads": 4, "context": 64}
FSDP = {"parallelism": {"strategy": "fsdp"}}


def searching(nodes: int, budget: int, batch: int = 16, **changes: Any) -> dict[str, Any]:
    spec = tiny_gpt(nodes, steps=6, global_batch_size=batch, micro_batch_size="auto", eval_every_steps=None)
    return spec | {"model": GPT, "resources": {"nodes": nodes, "memory_per_slot": budget}} | changes


def found_by(end: RankEnd) -> dict[str, Any]:
    (found,) = end.events_of("micro_batch_found")
    return found


def with_found(spec: dict[str, Any], size: int) -> dict[str, Any]:
    """As the coordinator stores it from then on."""
    return spec | {"training": spec["training"] | {"micro_batch_size": size}}


def completed(ends: list[RankEnd]) -> bool:
    return [end.result.outcome for end in ends if end.result] == ["completed"] * len(ends)


# --- which sizes


def try_all(search: MicroBatchSearch, needs: dict[int, int], memory: int) -> list[int]:
    tried = []
    while (size := search.next) is not None:
        tried.append(size)
        search.note(size, needs[size] if needs[size] <= memory else None)
    return tried


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=12, unique=True).map(sorted),
    st.integers(0, 900),
    st.integers(1, 9),
    st.integers(1, 3000),
)
def test_the_largest_that_fits_is_found_without_trying_what_cannot(sizes: list[int], base: int, slope: int, budget: int) -> None:
    """Of needs in a straight line: none is tried twice, and beyond the first two nothing that takes more than there is."""
    needs = {size: base + slope * size for size in sizes}
    search = MicroBatchSearch(sizes, budget)
    tried = try_all(search, needs, memory=10**9)
    assert search.found == max((size for size in sizes if needs[size] <= search.limit), default=None)
    assert len(tried) == len(set(tried))
    assert all(needs[size] <= budget for size in tried[2:])


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=12, unique=True).map(sorted),
    st.lists(st.integers(1, 400), min_size=12, max_size=12).map(sorted),
    st.integers(1, 400),
)
def test_running_out_of_memory_is_survived_by_bisection(sizes: list[int], needs: list[int], memory: int) -> None:
    """Whatever the curve, as long as it rises."""
    by_size = dict(zip(sizes, needs, strict=False))
    search = MicroBatchSearch(sizes, budget=10**9)
    tried = try_all(search, by_size, memory)
    assert search.found == max((size for size in sizes if by_size[size] <= memory), default=None)
    assert len(tried) == len(set(tried))


def test_sizes_keep_every_data_rank_busy() -> None:
    assert sizes_to_try(32, 2) == [1, 2, 3, 4, 6, 8, 16]
    assert sizes_to_try(9, 4) == [2]
    assert sizes_to_try(4, 4) == [1]


def test_sizes_give_each_micro_batch_of_a_stream_a_shard() -> None:
    assert sizes_to_try(64, 2, shards=8) == [8, 11, 16, 32]
    assert sizes_to_try(64, 4, shards=3) == [16]  # the feed says what is wrong


def test_sizes_with_a_micro_batch_of_one_sample_come_last_where_batch_norm_may_refuse_it() -> None:
    sizes = sizes_to_try(64, 4)
    assert sizes == [1, 2, 3, 4, 6, 8, 16]
    assert in_turn(sizes, 64, deadly=None, single_last=False) == [sizes]
    assert in_turn(sizes, 64, deadly=None, single_last=True) == [[2, 4, 6, 8, 16], [1, 3]]
    assert in_turn([1], 4, deadly=None, single_last=True) == [[1]]


def test_the_smallest_size_is_tried_again_whatever_ended_the_process_that_tried_it() -> None:
    """Nothing was tried then, and micro-batches of 1 were said to take more than there is."""
    assert in_turn([1, 2, 4], 8, deadly=4, single_last=False) == [[1, 2]]
    assert in_turn([1, 2, 4], 8, deadly=1, single_last=False) == [[1, 2, 4]]
    assert in_turn([1, 2, 4], 8, deadly=2, single_last=True) == [[2, 4], [1]]


# --- on real ranks


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="reproducible"),
        pytest.param(FSDP, id="fsdp"),
        pytest.param({"reproducible": False}, id="ddp"),
    ],
)
def test_what_is_found_fits_and_the_next_larger_does_not(make_job: MakeJob, changes: dict[str, Any]) -> None:
    """By the figures of the steps themselves, which the estimate of memory meets."""
    spec = searching(2, budget=12 * MIB, **changes)
    ends = make_job(spec).run(2)
    assert completed(ends), ends[0].output + ends[1].output
    found = found_by(ends[0])
    size, tried = found["size"], {int(key): peak for key, peak in found["tried"].items()}
    assert tried[size] == found["peak_bytes"] <= found["limit_bytes"] == int(0.9 * 12 * MIB)
    larger = [each for each in sizes_to_try(16, 2) if each > size]
    for each in larger[:1]:
        estimated = memory_of(JobSpec.model_validate(with_found(spec, each)), CPU)
        assert estimated is not None
        assert tried.get(each, estimated.total / 0.85) > found["limit_bytes"]
    for each, peak in tried.items():
        estimated = memory_of(JobSpec.model_validate(with_found(spec, each)), CPU)
        assert estimated is not None
        assert 0.85 * estimated.total <= peak <= 1.15 * estimated.total
    assert not ends[1].events


def test_the_run_is_that_of_the_size_that_was_found(make_job: MakeJob) -> None:
    """To the last bit: the search leaves nothing behind."""
    spec = searching(2, budget=12 * MIB)
    ends = make_job(spec).run(2)
    size = found_by(ends[0])["size"]
    told = make_job(with_found(spec, size), "told").run(2)
    assert ends[0].curve("loss") == told[0].curve("loss")
    assert ends[0].curve("gradient_norm") == told[0].curve("gradient_norm")
    assert not told[0].events_of("micro_batch_found")


def test_a_resumed_job_goes_on_with_what_was_found_and_searches_no_more(make_job: MakeJob) -> None:
    spec = searching(1, budget=12 * MIB, batch=8)
    straight = make_job(spec, "straight").run(1)[0]
    job = make_job(spec)
    paused = job.run(1, pause=True)[0]
    job.spec = with_found(spec, found_by(paused)["size"])
    ended = job.resume(1)[0]
    assert not ended.events_of("micro_batch_found")
    assert paused.curve("loss") | ended.curve("loss") == straight.curve("loss")


def test_who_joins_takes_over_what_the_others_found(make_job: MakeJob) -> None:
    """Though its spec is older than the finding."""
    spec = searching(2, budget=12 * MIB) | {"fault_tolerance": {"recovery": "close_up"}}
    spec["training"] |= {"steps": 4000}
    job = make_job(spec)
    gang = job.start(2)
    gang.agent.until(1, 0, Progress)
    gang.kill(1)
    gang.close_up(0, newcomers=1)
    gang.agent.until(2, 1, Progress)
    gang.end()
    assert not gang.left(2, 0).events_of("micro_batch_found")
    assert found_by(gang.left(1, 0))["size"] in sizes_to_try(16, 2)


def test_one_rank_that_runs_out_of_memory_brings_all_to_a_smaller_size(make_job: MakeJob) -> None:
    spec = searching(2, budget=12 * MIB, entrypoint="tests.user_code.hungry_task:task", model=None, data=None)
    ends = make_job(spec | {"labels": {"most": "3"}}).run(2)
    assert completed(ends), ends[1].output
    assert found_by(ends[0])["size"] == 3  # of 1, 2, 3, 4 and 8
    assert "take more than there is" in ends[0].output


def test_a_size_whose_attempt_was_the_end_of_its_process_is_not_tried_again(make_job: MakeJob) -> None:
    job = make_job(searching(1, budget=10**9))
    job.checkpoints.mkdir(parents=True)
    (job.checkpoints / ATTEMPT).write_text("4")
    found = found_by(job.run(1)[0])
    assert max(map(int, found["tried"])) < 4
    assert found["size"] == 3
    assert not (job.checkpoints / ATTEMPT).exists()


def test_batch_norm_that_refuses_a_single_sample_ends_no_search(make_job: MakeJob) -> None:
    """It was tried first. Of 2, 3, 4, 6, 8 and 16 samples 3 would leave one over."""
    (end,) = make_job(searching(1, budget=12 * MIB, entrypoint="tests.user_code.normed_task:task", model=None, data=None)).run()
    assert completed([end]), end.output
    assert found_by(end)["size"] == 16
    assert "3" not in found_by(end)["tried"]


def test_code_that_raises_is_not_taken_for_a_size_that_is_too_large(make_job: MakeJob) -> None:
    job = make_job(searching(1, budget=12 * MIB, batch=1, entrypoint="tests.user_code.normed_task:task", model=None, data=None))
    (end,) = job.run()
    assert end.result is not None
    assert end.result.failure is not None
    assert "Expected more than 1 value per channel" in end.result.failure.message
    assert not (job.checkpoints / ATTEMPT).exists()


def test_of_a_stream_only_sizes_are_tried_for_which_it_has_shards(make_job: MakeJob) -> None:
    """The first size was a single sample, in 64 micro-batches, and the stream was said to have too few shards for them."""
    spec = searching(2, budget=12 * MIB, batch=64, entrypoint="tests.user_code.streamed_task:task", model=None, data=None)
    ends = make_job(spec).run(2)
    assert completed(ends), ends[0].output + ends[1].output
    assert min(map(int, found_by(ends[0])["tried"])) == 8
    assert found_by(ends[0])["size"] == 32


def test_nothing_fits_says_what_the_smallest_takes_and_what_would_help(make_job: MakeJob) -> None:
    end = make_job(searching(1, budget=MIB)).run(1)[0]
    assert end.result is not None
    assert end.result.failure is not None
    assert end.result.failure.kind == "invalid_input"
    assert "micro-batches of 1 already take " in end.result.failure.message
    assert "921.6 KiB may be used of 1.0 MiB; use slots with more memory" in end.result.failure.message
