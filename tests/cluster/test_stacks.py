"""Which rank differs from the others, from recorded stacks of real scripts."""

from __future__ import annotations

import msgspec
import pytest

from paceline.cluster.stacks import (
    MAIN_THREAD,
    ProcessStack,
    PythonFrame,
    StackPosition,
    StackSample,
    ThreadStack,
    all_at_work,
    compare,
    in_words,
    main_frames,
    position_of,
)
from tests.cluster.recorded import recorded

WAITS = StackPosition("waits", "all_reduce", "step in f.py:9")


@pytest.mark.parametrize(
    ("case", "ranks", "what"),
    [
        ("loop", (1,), "rank 1 is at f.py:24 while rank 0 waits in all_reduce (step in f.py:9)"),
        ("order", (), "mismatched calls: rank 0 waits in all_reduce (f.py:46), rank 1 waits in broadcast (f.py:47)"),
        ("input", (1,), "rank 1 is at train in g.py:14 while rank 0 is in backward (train in g.py:18)"),
        ("data", (1,), "rank 1 is at train in g.py:15 while rank 0 is in backward (train in g.py:18)"),
        ("branch", (), "mismatched calls: rank 0 is in backward (train in g.py:18), rank 1 waits in barrier (train in g.py:17)"),
    ],
)
def test_the_rank_that_differs_is_named_with_its_line(case: str, ranks: tuple[int, ...], what: str) -> None:
    found = compare({rank: position_of(stacks) for rank, stacks in recorded(case).items()})
    assert (found.ranks, found.what) == (ranks, what)


def test_of_three_ranks_in_two_calls_the_one_alone_differs() -> None:
    other = StackPosition("waits", "broadcast", "f.py:47")
    found = compare({0: WAITS, 1: other, 2: WAITS})
    assert found.ranks == (1,)
    assert found.what == "mismatched calls: ranks 0, 2 wait in all_reduce (step in f.py:9), rank 1 waits in broadcast (f.py:47)"


def test_ranks_at_the_same_call_are_said_to_be_alike() -> None:
    found = compare(dict.fromkeys(range(4), WAITS))
    assert (found.ranks, found.what) == ((), "ranks 0, 1, 2, 3 wait in all_reduce (step in f.py:9), none differs from the others")


def test_a_stopped_or_ended_rank_differs_from_those_that_wait_for_it() -> None:
    assert compare({0: WAITS, 1: StackPosition("stopped")}).what.startswith("rank 1 is stopped by a signal")
    assert compare({0: WAITS, 1: StackPosition("ended")}).ranks == (1,)


def test_ranks_at_work_are_in_the_same_place_whatever_their_line() -> None:
    same = compare({0: StackPosition("elsewhere", where="epoch in t.py:3"), 1: StackPosition("elsewhere", where="epoch in t.py:9")})
    assert same.ranks == ()
    odd = compare({rank: StackPosition("elsewhere", where=f"{'save' if rank == 2 else 'epoch'} in t.py:{rank}") for rank in range(4)})
    assert odd.ranks == (2,)


def test_a_rank_at_another_line_than_all_others_differs() -> None:
    """NCCL is waited for in native code, as of `loss.item()`: no Python stack shows that."""
    found = compare({rank: StackPosition("elsewhere", where=f"train in t.py:{12 if rank == 3 else 20}") for rank in range(8)})
    assert found.ranks == (3,)
    assert found.what == "no rank waits in a collective: ranks 0, 1, 2, 4, 5, 6, 7 are at train in t.py:20, rank 3 is at train in t.py:12"
    assert compare({rank: StackPosition("elsewhere", where=f"train in t.py:{rank}") for rank in range(8)}).ranks == ()


def test_a_rank_that_clips_gradients_may_wait_for_the_one_that_is_elsewhere() -> None:
    def at(*frames: PythonFrame) -> StackPosition:
        return position_of(StackSample(id="r", processes=(ProcessStack(7, "python", (ThreadStack(MAIN_THREAD, frames),)),)))

    users = PythonFrame("train", "/w/t.py", 30, own=True)
    clips = at(PythonFrame("clip_grads_with_norm_", "torch/nn/utils/clip_grad.py", 166), users)
    assert clips == StackPosition("may_wait", "clip_grad_norm_", "train in t.py:30")
    found = compare({0: clips, 1: at(PythonFrame("load", "/w/d.py", 5, own=True))})
    assert (found.ranks, found.what) == ((1,), "rank 1 is at load in d.py:5 while rank 0 is in clip_grad_norm_ (train in t.py:30)")


def test_a_rank_without_a_stack_is_told_with_the_reason() -> None:
    found = compare({0: WAITS, 1: position_of(None), 2: StackPosition("elsewhere", where="t.py:1")})
    assert found.ranks == (2,)
    assert found.what.endswith("; rank 1 has no stack: its agent has not answered")
    refused = StackSample(id="r", processes=(ProcessStack(7, "python", error="ptrace is refused"),))
    assert position_of(refused) == StackPosition("unknown", where="ptrace is refused")


def test_of_several_programs_of_a_launcher_the_one_that_differs_tells_where_the_rank_is() -> None:
    waits, loops, launcher = (recorded(case)[rank] for case, rank in (("loop", 0), ("loop", 1), ("launcher", 0)))
    assert waits is not None
    assert loops is not None
    assert launcher is not None
    of_launcher = msgspec.structs.replace(launcher.processes[0], part="launcher")
    together = msgspec.structs.replace(waits, processes=(*waits.processes, *loops.processes, of_launcher))
    assert position_of(together) == StackPosition("elsewhere", where="f.py:24")
    alone = msgspec.structs.replace(launcher, processes=(of_launcher,))
    assert position_of(alone).where.startswith("SimpleElasticAgent._invoke_run in api.py:")


def test_a_thousand_ranks_are_told_in_one_line() -> None:
    positions = {rank: StackPosition("waits", "all_reduce", f"f.py:{rank % 6}") for rank in range(1000)}
    assert len(compare(positions).what) < 500


def test_a_rank_that_waits_is_not_at_work_however_busy_it_is() -> None:
    """NCCL keeps a core at 100 % while it waits."""
    spinning = recorded("loop", cores=1.0)
    assert not all_at_work(spinning, {rank: position_of(stacks) for rank, stacks in spinning.items()})
    computing = {rank: recorded("loop", cores=cores)[1] for rank, cores in enumerate((1.0, 0.9))}
    positions = {rank: position_of(stacks) for rank, stacks in computing.items()}
    assert all_at_work(computing, positions)
    assert computing[1] is not None
    idle = computing | {1: msgspec.structs.replace(computing[1], cores=0.01)}
    assert not all_at_work(idle, positions)
    assert all_at_work({1: msgspec.structs.replace(computing[1], cores=0.01, gpu_percent=95.0)}, {1: positions[1]})


def test_a_stack_reads_as_pythons_own() -> None:
    stacks = recorded("loop")[0]
    assert stacks is not None
    assert in_words(main_frames(stacks)).splitlines()[::3] == [
        '  File "/home/ada/f.py", line 58, in <module>',
        '  File "torch/distributed/distributed_c10d.py", line 3252, in all_reduce',
    ]
