"""Whatever happens to jobs, ranks and nodes, in whatever order: no loop raises, no job is held up, and a healthy job beside them is placed,
trains and ends."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from paceline.cluster.states import JobState, NodeState, RankState
from paceline.db.models.incidents import IncidentRow
from paceline.db.models.jobs import JobRow, RankRow
from paceline.training.link import FailureReport, GroupCall, Stalled
from tests.any_order import Agent, AnyCluster

DDP = {"parallelism": {"strategy": "ddp"}, "training": {"steps": 100, "global_batch_size": 12}}
SPECS: list[dict[str, Any]] = [
    {},
    {"fault_tolerance": {"max_restarts": 0}},
    DDP | {"resources": {"nodes": 3}},
    DDP | {"resources": {"nodes": 3}, "fault_tolerance": {"max_restarts": 1, "recovery": "restart"}},
    DDP | {"resources": {"nodes": 2, "min_nodes": 1, "max_nodes": 3}},
    DDP | {"resources": {"nodes": 2}, "fault_tolerance": {"spares": 1}},
    DDP | {"resources": {"nodes": 1, "slots_per_node": 2}, "fault_tolerance": {"hang_seconds": 5}},
    {"parallelism": {"strategy": "fsdp"}, "resources": {"nodes": 2}, "training": {"steps": 100, "global_batch_size": 12}},
    {
        "model": None,
        "data": None,
        "training": None,
        "parallelism": {"strategy": "ddp"},
        "script": {"path": "t.py"},
        "resources": {"nodes": 2},
    },
]
GARBAGE: list[Any] = [{"nonsense": 1}, {}, [], "text", 7, {"kind": "signal", "rank": -1, "message": None}, {"time": 1e300, "step": "x"}]
#: Columns that may hold anything, as a later or an earlier version may have left them.
DAMAGES = [(JobRow, "failure"), (JobRow, "spec"), (RankRow, "failure"), (RankRow, "stall"), (IncidentRow, "culprit")]
TIMES = [0.0, 1.0, -1.0, 1e18, float("nan"), float("inf")]
Found = TypeVar("Found")
any_number = st.integers(0, 999)


def failures(kind: str, rank: int, time: float, ended: tuple[int, ...]) -> FailureReport:
    return FailureReport(kind=kind, rank=rank, message="planned", time=time, ended=ended)  # type: ignore[arg-type]


any_failure = st.builds(
    failures,
    st.sampled_from(["exception", "signal", "out_of_memory", "peer_lost", "invalid_input", "checkpoint_failed", "exit"]),
    st.integers(0, 4),
    st.sampled_from(TIMES),
    st.lists(st.integers(0, 3), max_size=2).map(tuple),
)
any_stall = st.builds(
    lambda seconds, number, unanswered, since: Stalled(
        step=1,
        phase="exchange",
        seconds=seconds,
        limit=1.0,
        patience=5.0,
        since=since,
        waits=GroupCall(number, "gradients") if number else None,
        unanswered=unanswered,
    ),
    st.sampled_from([1.0, 10.0]),
    st.integers(0, 2),
    st.lists(st.integers(0, 4), max_size=2).map(tuple),
    st.sampled_from(TIMES),
)
living = st.sampled_from([RankState.ASSIGNED, RankState.STARTING, RankState.PARKED, RankState.RUNNING])


class AnyOrder(RuleBasedStateMachine):
    """One example: a cluster, and what happens to it."""

    template: Path
    folder: Path
    made = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1
        data = self.folder / str(self.made)
        shutil.copytree(self.template, data)
        self._runner = asyncio.Runner()
        self.cluster = AnyCluster(data)
        self._data = data

    def do(self, work: Any) -> Any:
        return self._runner.run(work)

    @initialize()
    def start(self) -> None:
        for slots in (1, 2, 2):
            self.do(self.cluster.add_node(slots))

    @rule(spec=st.sampled_from(SPECS), priority=st.sampled_from([0, 50, 99]))
    def submit(self, spec: dict[str, Any], priority: int) -> None:
        self.do(self.cluster.submit(**spec, priority=priority))

    @rule(seconds=st.sampled_from([0.1, 1.0, 1.0, 2.0, 12.0, 65.0]))
    def loops(self, seconds: float) -> None:
        self.do(self.cluster.step(seconds))

    @rule(number=any_number, state=living)
    def talk(self, number: int, state: RankState) -> None:
        self.do(self.cluster.talk(self._agent(number), state))

    @rule(state=living)
    def all_goes_on(self, state: RankState) -> None:
        """So that jobs get somewhere before the next thing happens."""
        for agent in self.cluster.agents:
            self.do(self.cluster.talk(agent, state))
        self.do(self.cluster.step(1.0))
        for agent in self.cluster.agents:
            self.do(self.cluster.talk(agent, RankState.RUNNING))
        self.do(self.cluster.step(1.0))

    @rule(
        number=any_number,
        which=any_number,
        failure=st.none() | any_failure,
        outcome=st.sampled_from(["failed", "completed", "paused", None]),
    )
    def a_rank_ends(self, number: int, which: int, failure: FailureReport | None, outcome: Any) -> None:
        self._change_rank(number, which, state=RankState.EXITED, outcome=outcome, failure=failure, drained=bool(which % 2))

    @precondition(lambda self: len(self.cluster.jobs) > 0)
    @rule(job=any_number, order=st.permutations([0, 1, 2]), failure=any_failure, between=st.sampled_from(["nothing", "loops", "talk"]))
    def ranks_of_one_job_end(self, job: int, order: list[int], failure: FailureReport, between: str) -> None:
        """One right after the other, before or after it is told of its next place."""
        job_id = self.cluster.jobs[job % len(self.cluster.jobs)]
        for number in order:
            for agent in self.cluster.agents:
                mine = [key for key, rank in agent.ranks.items() if key[0] == job_id and rank.rank == number]
                for key in mine:
                    end = {"state": RankState.EXITED, "outcome": "failed", "failure": msgspec.structs.replace(failure, rank=number)}
                    agent.ranks[key] = msgspec.structs.replace(agent.ranks[key], **end)
                if mine and agent.connected:
                    self.do(self.cluster.hear(agent, agent.report()))
            if between == "loops":
                self.do(self.cluster.step(0.1))
            if between == "talk":
                self.do(self.cluster.talk(self._agent(number), RankState.STARTING))

    @rule(number=any_number, which=any_number, failure=st.none() | any_failure, stall=st.none() | any_stall, suspended=st.booleans())
    def a_rank_is_in_trouble(self, number: int, which: int, failure: Any, stall: Any, suspended: bool) -> None:
        self._change_rank(number, which, failure=failure, stall=stall, suspended=suspended)

    @rule(number=any_number, which=any_number, state=living, step=st.integers(0, 100))
    def a_rank_goes_on(self, number: int, which: int, state: RankState, step: int) -> None:
        self._change_rank(number, which, state=state, step=step)

    @precondition(lambda self: any(agent.said for agent in self.cluster.agents))
    @rule(number=any_number, which=any_number)
    def an_old_report_comes_again(self, number: int, which: int) -> None:
        agent = self._agent(number)
        if agent.said:
            self.do(self.cluster.hear(agent, agent.said[which % len(agent.said)]))

    @rule(number=any_number, connected=st.booleans())
    def an_agent_leaves_or_comes_back(self, number: int, connected: bool) -> None:
        self.do(self.cluster.connect(self._agent(number), connected))

    @rule(number=any_number)
    def an_agent_forgets_everything(self, number: int) -> None:
        self._agent(number).ranks.clear()

    @rule(number=any_number, state=st.sampled_from([NodeState.READY, NodeState.READY, NodeState.CORDONED, NodeState.DRAINING]))
    def a_node_is_set(self, number: int, state: NodeState) -> None:
        self.do(self.cluster.set_node(self._agent(number), state))

    @precondition(lambda self: len(self.cluster.jobs) > 0)
    @rule(job=any_number, what=st.sampled_from(["pause", "resume", "cancel", "resize"]), nodes=st.integers(1, 4))
    def a_user_asks(self, job: int, what: str, nodes: int) -> None:
        self.do(self.cluster.ask(self.cluster.jobs[job % len(self.cluster.jobs)], what, nodes))

    @precondition(lambda self: len(self.cluster.jobs) > 0)
    @rule(job=any_number, damage=st.sampled_from(DAMAGES), garbage=st.sampled_from(GARBAGE))
    def a_row_is_damaged(self, job: int, damage: tuple[type[Any], str], garbage: Any) -> None:
        table, column = damage
        job_id = self.cluster.jobs[job % len(self.cluster.jobs)]
        where = JobRow.id == job_id if table is JobRow else table.job_id == job_id
        self.do(self.cluster.change(table, where, **{column: garbage}))

    def teardown(self) -> None:
        try:
            self._the_healthy_job_ends()
            assert self.do(self.cluster.held_up()) == []
            self.do(self.cluster.show_all())
        finally:
            self.do(self.cluster.close())
            self._runner.close()
            shutil.rmtree(self._data)

    def _the_healthy_job_ends(self) -> None:
        spare = self.do(self.cluster.add_node(1))
        job_id = self.do(self.cluster.submit(priority=100))
        self.do(self.cluster.step(0.1))
        (mine,) = [agent for agent in self.cluster.agents if self._told(agent, job_id)] or [spare]
        self.do(self.cluster.connect(mine, True))
        self.do(self.cluster.until(job_id, JobState.RUNNING, mine))
        for key, rank in list(mine.ranks.items()):
            if key[0] == job_id:
                mine.ranks[key] = msgspec.structs.replace(rank, state=RankState.EXITED, outcome="completed", exit_code=0, drained=True)
        self.do(self.cluster.until(job_id, JobState.COMPLETED, mine))

    def _told(self, agent: Agent, job_id: str) -> bool:
        return any(key[0] == job_id for key in self.do(self.cluster.places(agent)))

    def _agent(self, number: int) -> Agent:
        return self.cluster.agents[number % len(self.cluster.agents)]

    def _change_rank(self, number: int, which: int, **values: Any) -> None:
        """Of a rank that lives; and its agent says so, where it is connected."""
        agent = self._agent(number)
        alive = [key for key, rank in agent.ranks.items() if rank.state is not RankState.EXITED]
        if alive:
            key = alive[which % len(alive)]
            agent.ranks[key] = msgspec.structs.replace(agent.ranks[key], **values)
            if agent.connected:
                self.do(self.cluster.hear(agent, agent.report()))


def run(folder: Path, template: Path, **budget: Any) -> None:
    machine = type("AnyOrderHere", (AnyOrder,), {"template": template, "folder": folder})
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example]
    run_state_machine_as_test(machine, settings=settings(deadline=None, database=None, suppress_health_check=checks, **budget))


def test_in_any_order_a_healthy_job_is_placed_trains_and_ends(
    tmp_path: Path, sqlite_template: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    run(tmp_path, sqlite_template, max_examples=6, stateful_step_count=25, derandomize=True)
