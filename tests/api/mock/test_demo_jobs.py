"""The demo's jobs and experiments."""

from __future__ import annotations

from paceline.api.mock import people
from paceline.api.mock.demo_jobs import EXPERIMENTS, JOBS, DemoExperiment
from paceline.api.mock.nodes import NODES, SLOTS
from paceline.cluster.experiments import grid
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.cluster.simulation.faults import not_understood
from paceline.cluster.simulation.machines import H100
from paceline.cluster.simulation.step_times import cost_of
from paceline.training.spec.job import JobSpec


def test_every_job_is_valid_asks_for_real_faults_and_belongs_to_somebody_who_may_submit() -> None:
    for job in JOBS:
        spec = JobSpec.model_validate(job.spec)
        assert not_understood(spec.environment.variables) == []
        assert people.PEOPLE[job.owner] in ("admin", "member")


def test_there_is_a_job_of_every_kind_and_the_simulation_knows_what_its_steps_take() -> None:
    specs = [JobSpec.model_validate(job.spec) for job in JOBS]
    models = {spec.model.kind for spec in specs if spec.model is not None}
    assert models == {"gpt", "hf", "mlp", "resnet"}
    assert any(spec.script for spec in specs)
    assert any(spec.entrypoint for spec in specs)
    assert any(spec.communication.compresses for spec in specs)
    assert {"ddp", "fsdp", "parameter_server"} <= {spec.parallelism.strategy for spec in specs}
    for spec in specs:
        assert cost_of(spec, spec.world_size, spec.resources.slots_per_block, H100).computing > 0


def test_every_experiment_is_planned_without_a_refused_trial_and_belongs_to_somebody_who_may_submit() -> None:
    for experiment in EXPERIMENTS:
        cells = grid.expand(ExperimentSpec.model_validate(experiment.spec)).cells
        assert len(cells) > 4
        assert {cell.refusal for cell in cells} == {None}
        assert people.PEOPLE[experiment.owner] in ("admin", "member")


def most_slots(experiment: DemoExperiment) -> int:
    spec = ExperimentSpec.model_validate(experiment.spec)
    return (spec.at_once or len(spec.world_sizes)) * max(spec.world_sizes)


def test_all_but_one_of_them_find_room_at_once_and_leave_some_for_visitors() -> None:
    sizes = [JobSpec.model_validate(job.spec).world_size for job in JOBS]
    assert sum(size > NODES * SLOTS for size in sizes) == 1
    taken = sum(size for size in sizes if size <= NODES * SLOTS) + sum(map(most_slots, EXPERIMENTS))
    assert 0.6 < taken / (NODES * SLOTS) < 0.9
