"""What survivors had computed of the step that a rank died in is kept: only the dead rank's micro-batches are computed again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from paceline.training.link import Broken
from tests.faults import Fault, Moment, computed, faulty_job, states
from tests.gangs import RankEnd, RunningGang
from tests.training.conftest import MakeJob

pytestmark = pytest.mark.timeout(400)  # on a machine that is busy with other things
RANKS, MICRO_BATCHES = 3, 6
EACH = MICRO_BATCHES // RANKS
#: When the victim dies, and in which of its micro-batches. Every one leaves a step that nobody has committed.
BREAKS: tuple[tuple[Moment, int | None], ...] = (
    ("data", 0),
    ("data", 1),
    ("loss", 0),
    ("loss", 1),
    ("backward", 0),
    ("backward", 1),
    ("exchange", None),
    ("gather", None),
    ("news", None),
)
STEPS = 2 * len(BREAKS) + 3


def break_off(gang: RunningGang, *places: int) -> None:
    """Wait until these ranks of the present generation have lost it."""
    for rank in places:
        gang.agent.until(gang.job.generation, rank, Broken)


def by_micro_batch(folder: Path, step: int, *, without: int = 0) -> Counter[int]:
    """How often each micro-batch of a step was computed, by all processes or by all but one."""
    found: Counter[int] = Counter()
    for (pid, at, index), times in computed(folder).items():
        if at == step and pid != without:
            found[index] += times
    return found


def curve(name: str, *lives: RankEnd) -> dict[int, float]:
    return {step: value for life in lives for step, value in life.curve(name).items()}


def test_only_the_dead_ranks_micro_batches_are_computed_again(make_job: MakeJob, tmp_path: Path) -> None:
    """One rank after another dies, each at another moment, and a new one takes its place; `members` are process numbers by rank."""
    faults, victims, members, started = [], [], list(range(RANKS)), RANKS
    for number, (moment, which) in enumerate(BREAKS):
        rank = number % RANKS
        generation, born = (1, members[rank]) if members[rank] < RANKS else (members[rank] - RANKS + 2, RANKS - 1)
        index = None if which is None else rank * EACH + which
        faults.append(Fault(born, 2 * number + 2, moment=moment, micro_batch=index, generation=generation))
        victims.append(members.pop(rank))
        members.append(started)
        started += 1
    well, code = tmp_path / "well", tmp_path / "code"
    undisturbed = make_job(faulty_job(well, nodes=1, steps=STEPS), name="well").run(1)[0]
    gang = make_job(faulty_job(code, *faults, nodes=RANKS, steps=STEPS)).start(RANKS)
    members = list(range(RANKS))
    for victim in victims:
        break_off(gang, *(rank for rank, number in enumerate(members) if number != victim))
        members.remove(victim)
        gang.close_up(*members, newcomers=1)
        members.append(len(gang.processes) - 1)
    pids = gang.pids()
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [-9 if number in victims else 0 for number in range(len(ends))], ends[-1].output
    dead = {fault.step: pids[victim] for fault, victim in zip(faults, victims, strict=True)}
    for step in range(1, STEPS + 1):
        assert by_micro_batch(code, step, without=dead.get(step, 0)) == Counter(range(MICRO_BATCHES)), (step, faults)
    assert states(code) == states(well)
    leaders = [gang.left(generation, 0) for generation in range(1, len(victims) + 2)]
    assert curve("loss", *leaders) == undisturbed.curve("loss")
    assert curve("first_sample", *leaders) == {step: 12 * (step - 1) for step in range(1, STEPS + 1)}
    assert set(curve("samples", *leaders).values()) == {12}


def test_what_was_computed_again_is_kept_too_when_another_rank_dies(make_job: MakeJob, tmp_path: Path) -> None:
    """Ranks 0 and 2 take over one micro-batch each of rank 1's, and rank 2 dies in its own."""
    faults = (Fault(1, 5, moment="exchange"), Fault(2, 5, micro_batch=3))
    well, code = tmp_path / "well", tmp_path / "code"
    make_job(faulty_job(well, nodes=1, steps=7), name="well").run(1)
    gang = make_job(faulty_job(code, *faults, nodes=3, steps=7)).start(3)
    break_off(gang, 0, 2)
    gang.close_up(0, 2)
    break_off(gang, 0)
    gang.close_up(0)
    survivor = gang.pids()[0]
    assert [end.exit_code for end in gang.wait()] == [0, -9, -9]
    own = Counter(index for (pid, step, index) in computed(code).elements() if (pid, step) == (survivor, 5))
    assert own == Counter(range(MICRO_BATCHES))
    assert states(code) == states(well)


@pytest.mark.parametrize("step", [1, 3])  # in the first step, optimizers that have seen nothing must stay so
def test_ranks_that_have_nothing_left_to_compute_take_part_all_the_same(make_job: MakeJob, tmp_path: Path, step: int) -> None:
    """Two micro-batches are missing; of five ranks, three newcomers among them, three compute nothing in that step."""
    well, code = tmp_path / "well", tmp_path / "code"
    make_job(faulty_job(well, nodes=1, steps=5), name="well").run(1)
    gang = make_job(faulty_job(code, Fault(1, step, moment="gather"), nodes=3, steps=5)).start(3)
    break_off(gang, 0, 2)
    gang.close_up(0, 2, newcomers=3)
    pids = gang.pids()
    assert [end.exit_code for end in gang.wait()] == [0, -9, 0, 0, 0, 0]
    found = computed(code)
    assert {pid: sum(found[pid, step, index] for index in range(MICRO_BATCHES)) for pid in pids} == dict(
        zip(pids, (2, 2, 2, 1, 1, 0), strict=True)
    )
    assert states(code) == states(well)


def test_plain_ddp_computes_the_whole_step_again(make_job: MakeJob, tmp_path: Path) -> None:
    gang = make_job(faulty_job(tmp_path / "code", Fault(1, 3), nodes=3, steps=5, reproducible=False)).start(3)
    dead = gang.pids()[1]
    break_off(gang, 0, 2)
    gang.close_up(0, 2)
    assert [end.exit_code for end in gang.wait()] == [0, -9, 0]
    again = by_micro_batch(tmp_path / "code", 3, without=dead)
    assert again == Counter(range(MICRO_BATCHES)) + Counter((0, 1, 4, 5))
