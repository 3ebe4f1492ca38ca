"""Whatever happens to jobs, ranks and nodes, and to what is stored of them, in whatever order: none of the coordinator's loops raises, nothing is
held up but what was damaged on purpose, and a healthy job beside it is placed, trains, ends, and is told of."""

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

from paceline.cluster.history.notifications import TYPES
from paceline.cluster.states import CheckpointState, JobState, NodeState, RankState
from paceline.db.models.experiments import ExperimentRow
from paceline.db.models.incidents import IncidentRow
from paceline.db.models.jobs import JobRow, RankRow
from paceline.db.models.metrics import MetricRecordRow
from paceline.db.models.provisioning import PoolRow
from paceline.db.models.readings import NodeReadingRow
from paceline.training.link import FailureReport, GroupCall, Stalled
from paceline.training.spec.stored import StoredSpec
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
POOL_DAMAGES: list[dict[str, Any]] = [{"autoscale": {"nonsense": 1}}, {"autoscale": {}}, {"spent": {"nonsense": 1}}, {"settings": {}}]
TIMES = [0.0, 1.0, -1.0, 1e18, float("nan"), float("inf")]
Found = TypeVar("Found")
any_number = st.integers(0, 999)
any_value = st.sampled_from(["not JSON", "{}", "[]", '{"loss": null}', '{"loss": "x"}'])


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
        #: The tasks that cannot be carried out for what was damaged on purpose; all others can.
        self._impossible: set[str] = set()

    def do(self, work: Any) -> Any:
        return self._runner.run(work)

    @initialize()
    def start(self) -> None:
        for slots in (1, 2, 2):
            self.do(self.cluster.add_node(slots))
        self.do(self.cluster.step(0.0))  # what was before the first start is not told
        self.do(self.cluster.data.channel())

    @rule(spec=st.sampled_from(SPECS), priority=st.sampled_from([0, 50, 99]))
    def submit(self, spec: dict[str, Any], priority: int) -> None:
        self.do(self.cluster.submit(**spec, priority=priority))

    @rule(seconds=st.sampled_from([0.1, 1.0, 1.0, 2.0, 12.0, 65.0]), first=any_number)
    def loops(self, seconds: float, first: int) -> None:
        self.do(self.cluster.step(seconds, first))

    @rule(days=st.sampled_from([0.1, 1, 31, 400]))
    def a_long_time_passes(self, days: float) -> None:
        """So that data, files, launches and checkpoints are old enough to go. Nothing is deleted by its age in the first hour."""
        for seconds in (3600.0, days * 86400):
            self.do(self.cluster.step(seconds))

    @rule(number=any_number)
    def a_loop_takes_a_turn(self, number: int) -> None:
        self.do(self.cluster.take_turn(self.cluster.loops[number % len(self.cluster.loops)]))

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
        self.do(self.cluster.change(table, where, **{column: StoredSpec(garbage) if column == "spec" else garbage}))

    # --- what the loops over data, pools and news have to do

    @precondition(lambda self: len(self.cluster.jobs) > 0)
    @rule(job=any_number, rank=st.integers(0, 2), first=st.integers(0, 1000), count=st.integers(1, 40), damage=st.none() | any_value)
    def points_come(self, job: int, rank: int, first: int, count: int, damage: Any) -> None:
        job_id = self._job(job)
        self.do(self.cluster.data.points(job_id, rank, first, count))
        if damage is not None:
            self._impossible.add("put its points into its curves")
            where = (MetricRecordRow.job_id == job_id) & (MetricRecordRow.step == first)
            self.do(self.cluster.data.damage(MetricRecordRow, where, values=damage))

    @rule(number=any_number, damaged=st.booleans())
    def readings_come(self, number: int, damaged: bool) -> None:
        node_id = self._agent(number).node_id
        self.do(self.cluster.data.readings(node_id))
        if damaged:
            self._impossible.add("roll its readings up")
            self.do(self.cluster.data.damage(NodeReadingRow, NodeReadingRow.node_id == node_id, data=b"damaged"))

    @precondition(lambda self: len(self.cluster.jobs) > 0)
    @rule(job=any_number, number=any_number, step=st.integers(0, 3), state=st.sampled_from(CheckpointState))
    def a_checkpoint_is_there(self, job: int, number: int, step: int, state: CheckpointState) -> None:
        self.do(self.cluster.data.checkpoint(self._job(job), self._agent(number).node_id, step, state))

    @precondition(lambda self: len(self.cluster.jobs) > 0)
    @rule(job=any_number, number=any_number, kind=st.sampled_from(["trace", "gradients", "media", "file"]), arrived=st.booleans())
    def a_file_comes(self, job: int, number: int, kind: str, arrived: bool) -> None:
        self.do(self.cluster.data.artifact(self._job(job), self._agent(number).node_id, kind, arrived=arrived))

    @precondition(lambda self: len(self.cluster.jobs) > 0)
    @rule(
        job=any_number,
        type=st.sampled_from(sorted(TYPES)),
        data=st.sampled_from([*GARBAGE, {"from": "running", "to": "of a later version"}]),
    )
    def an_event_is_recorded(self, job: int, type: str, data: Any) -> None:
        self._impossible |= {"send notifications of its events", "compute its goodput for notifications"}
        self.do(self.cluster.data.event(self._job(job), type, data))

    @precondition(lambda self: len(self.cluster.jobs) > 0)
    @rule(job=any_number, with_checkpoints=st.booleans())
    def data_is_unwanted(self, job: int, with_checkpoints: bool) -> None:
        self.do(self.cluster.ask(self._job(job), "cancel"))
        self.do(self.cluster.step(1.0))
        self.do(self.cluster.data.remove(self._job(job), with_checkpoints=with_checkpoints))

    @rule(asked=st.booleans(), damage=st.none() | st.sampled_from(POOL_DAMAGES))
    def a_pool_is_there(self, asked: bool, damage: dict[str, Any] | None) -> None:
        """Which grows by itself, and because somebody asks; as another version may have left it."""
        self.do(self.cluster.data.pool())
        if asked:
            self.do(self.cluster.data.ask_for_node())
        if damage is not None:
            self._impossible |= {"count its node-hours", "decide how many nodes it has"}
            self.do(self.cluster.data.damage(PoolRow, PoolRow.name == "lab", **damage))

    @rule(what=st.none() | st.sampled_from(["pause", "resume", "cancel", "end"]), damaged=st.booleans())
    def an_experiment_is_there(self, what: str | None, damaged: bool) -> None:
        experiment_id = self.do(self.cluster.data.experiment())
        self.do(self.cluster.step(1.0))
        if what == "end":
            self.do(self.cluster.data.end_experiments())
        elif what is not None:
            self.do(self.cluster.data.ask_of_experiments(what))
        if damaged:
            self._impossible |= {"move its trials along", "analyze it"}
            self.do(self.cluster.data.damage(ExperimentRow, ExperimentRow.id == experiment_id, spec={"nonsense": 1}))

    def _job(self, number: int) -> str:
        return self.cluster.jobs[number % len(self.cluster.jobs)]

    def teardown(self) -> None:
        try:
            self._the_healthy_job_ends()
            told = self.do(self.cluster.held_up())
            assert [each for each in told if not any(f"held up: cannot {task}: " in each for task in self._impossible)] == []
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
        self.do(self.cluster.data.points(job_id, 0, 1, 20))
        for key, rank in list(mine.ranks.items()):
            if key[0] == job_id:
                mine.ranks[key] = msgspec.structs.replace(rank, state=RankState.EXITED, outcome="completed", exit_code=0, drained=True)
        self.do(self.cluster.until(job_id, JobState.COMPLETED, mine))
        for _ in range(2):
            self.do(self.cluster.step(40.0))
        assert self.do(self.cluster.data.curves_of(job_id)) > 0
        assert "finished" in self.do(self.cluster.data.told_of(job_id))

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


@pytest.mark.slow("a property: many random orders of events through all loops")
def test_in_any_order_a_healthy_job_is_placed_trains_and_ends(
    tmp_path: Path, sqlite_template: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    run(tmp_path, sqlite_template, max_examples=6, stateful_step_count=25, derandomize=True)


@pytest.mark.release
@pytest.mark.slow("a hundred random orders of forty events each")
@pytest.mark.timeout(1800)
def test_in_many_more_orders_a_healthy_job_is_placed_trains_and_ends(
    tmp_path: Path, sqlite_template: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Other orders in each run."""
    caplog.set_level("CRITICAL")
    run(tmp_path, sqlite_template, max_examples=100, stateful_step_count=40)
