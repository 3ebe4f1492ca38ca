"""The one place where a generation is put together: whatever depends on the world is made here and thrown away as one.

`TrainState` outlives it. A resize or a recovery drops the `JoinedGeneration` and builds another around the same state.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.process_group import Group
from paceline.distributed.retired_groups import RetiredGroups, retire_group
from paceline.parallelism import mesh
from paceline.parallelism.apply import parallelize, parallelize_served
from paceline.parallelism.communication.reducers import Reducer
from paceline.parallelism.options import ParallelizeOptions
from paceline.parallelism.plan import Coordinates, Degrees, state_shards
from paceline.training import elastic, server_state
from paceline.training.autotune import micro_batch
from paceline.training.data.sizes import require_same_on_all
from paceline.training.elastic import RecoveryReport, StateAgreement
from paceline.training.gradient_sums import ChosenSums, FixedSums, gradient_sums
from paceline.training.gradients.recorder import GradientRecorder, recorder_for
from paceline.training.link import RankPlace
from paceline.training.reporting.telemetry import Telemetry
from paceline.training.restoring import newest_first, restore, storage_of
from paceline.training.saving import checkpoint, left_out, stored_weights, unsent
from paceline.training.saving.checkpoint_directory import CheckpointDirectory, clear_debris, open_directory
from paceline.training.saving.manifest import CommittedCheckpoint
from paceline.training.saving.saves import Saves
from paceline.training.saving.weights import load_initial
from paceline.training.saving.writers import BackgroundWriter, BlockingWriter
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import TrainState, rebuild_optimizer
from paceline.training.steps.parameter_server import ServedStepRunner
from paceline.training.steps.pipelined import PipelineStepRunner, staged
from paceline.training.steps.step import LocalStepRunner
from paceline.training.steps.stepping import StepRunner, StepsFrom
from paceline.training.unsent_inheritance import inherited, with_inherited


@dataclass
class JoinedGeneration:
    """One membership of the gang, as this rank sees it: everything that depends on the world."""

    spec: JobSpec
    state: TrainState
    group: Group
    step_runner: StepRunner
    checkpoints: CheckpointDirectory
    saves: Saves
    telemetry: Telemetry
    rebuilt: RecoveryReport | None  # None: all its processes are new
    sums: FixedSums | ChosenSums
    gradients: GradientRecorder
    taken_over: Mapping[str, Tensor] = field(default_factory=dict)  # what ranks that leave have not sent

    @property
    def reducer(self) -> Reducer:
        return self.sums.reducer

    def remember_unsent(self) -> None:
        """Take what the sums of gradients have left out so far into the state, and what they would have left out with the step under way."""
        self.state.unsent = with_inherited(self.reducer.state(), self.taken_over)
        self.reducer.commit()
        self.state.unsent_next = with_inherited(self.reducer.state(), self.taken_over)

    def hand_over_unsent(self, *, leaves: bool) -> None:
        """Give what ranks that leave have not sent to one that stays. Collective."""
        if self.spec.communication.leaves_out:
            self.taken_over = inherited(self.group, self.reducer.state(), leaves=leaves)

    def close(self) -> None:
        """End the group; the wrapper goes first, since it holds on to the group."""
        del self.step_runner
        self.saves.close()
        self.group.close()

    def leave(self) -> RetiredGroups:
        """Drop the step runner and retire the group, so that the next generation can be built. The returned sockets stay open until
        dropped."""
        self.remember_unsent()
        del self.step_runner
        self.saves.close()
        return retire_group()


@dataclass(frozen=True)
class StateMeeting:
    """The states of a generation's ranks, compared once they have met; the same on every rank, but for `unreported`."""

    agreement: StateAgreement | None  # None: they have no state between them, or a part of it is missing
    newest_generation: int  # in which any of them had begun; 0: all processes are new
    unreported: Sequence[CommittedCheckpoint]  # found by rank 0, and unknown to the coordinator


def build_generation(spec: JobSpec, world: RankPlace, state: TrainState, telemetry: Telemetry, aborter: GroupAborter) -> JoinedGeneration:
    """Join the group of `world`, prepare the model for it, and bring all its ranks to one state. Collective."""
    entered_at = time.time()
    coordinates = Coordinates(spec.parallelism.degrees(world.world_size), world.rank)
    group = join(world, aborter, mesh.axis_group_ranks(coordinates.degrees), reduces=spec.communication.algorithms_on(world.device))
    joined_at = time.time()
    checkpoints = CheckpointDirectory(storage_of(spec, world, telemetry.folder), world.job_id, world.generation, spec, group)
    meeting = meet(world, state, checkpoints, coordinates.degrees, telemetry)
    sums = gradient_sums(spec, world, state, group)
    steps_from = make_ready(spec, state, group, coordinates, reducer=sums.reducer)
    rebuild_optimizer(state, spec)
    if coordinates.degrees.servers:
        server_state.take_part(spec, state, coordinates)
    if meeting.agreement is None:
        start_or_restore(spec, world, state, checkpoints, meeting, telemetry)
    else:
        take_over(spec, state, group, meeting.agreement)
    sums.reducer.load_state(state.unsent)
    rebuilt = (
        RecoveryReport(meeting.agreement, state.step, entered_at, joined_at, agreed_at=time.time()) if meeting.newest_generation else None
    )
    if spec.initial_weights is not None and state.step == 0:  # newcomers too: at step 0 nothing is transferred
        load_initial(state.model, stored_weights.on_this_node(spec, spec.initial_weights), group)
        telemetry.log(f"starts with the weights in {spec.initial_weights}")
    state.started, state.generation = True, world.generation
    spec = micro_batch.resolve_micro_batch(checkpoints, world, state, steps_from, coordinates, telemetry)
    step_runner = steps_from(spec, elastic.first_assignment(derived.micro_batches(spec), coordinates, meeting.agreement))
    if spec.fault_tolerance.rolls_back:
        step_runner.left_out = left_out.read(checkpoints)
    writer = BackgroundWriter(world.local_world_size, telemetry.log) if spec.checkpoint.asynchronous else BlockingWriter()
    saves = Saves(checkpoints, state, telemetry, writer)
    gradients = recorder_for(spec.gradients, state, group, telemetry.artifacts, telemetry)
    return JoinedGeneration(spec, state, group, step_runner, checkpoints, saves, telemetry, rebuilt, sums, gradients)


def meet(world: RankPlace, state: TrainState, checkpoints: CheckpointDirectory, degrees: Degrees, telemetry: Telemetry) -> StateMeeting:
    """Tell the other ranks of one's state and data, agree on the one to go on from, and make the checkpoints' directory ready. Collective."""
    summaries = checkpoints.group.all_gather_object(elastic.summarize_state(state, was_leader=telemetry.was_leader))
    require_same_on_all([each.data for each in summaries], [each.generation for each in summaries], world.rank)
    agreement = server_state.agree(summaries, degrees.servers) if degrees.servers else elastic.agree(summaries, state_shards(degrees))
    if agreement is None or agreement.newcomers:
        open_directory(checkpoints, agreement.newcomers if agreement else ())  # the others have seen it
    else:
        clear_debris(checkpoints)
    unreported = checkpoint.unreported(checkpoints, world.restore_from)
    for found in unreported:
        telemetry.event("checkpoint_committed", **found.announcement)
    return StateMeeting(agreement, max(each.generation for each in summaries), unreported)


def start_or_restore(
    spec: JobSpec, world: RankPlace, state: TrainState, checkpoints: CheckpointDirectory, meeting: StateMeeting, telemetry: Telemetry
) -> None:
    """Bring ranks without a common state to that of the newest checkpoint, or to step 0. Collective; raises as `restore`."""
    if spec.parallelism.degrees(world.world_size).servers and meeting.newest_generation:
        server_state.start_over(spec, state)
    state.reset()
    candidates = newest_first(checkpoints, meeting.unreported, meeting.newest_generation, world)
    restore(checkpoints, candidates, state, telemetry, required=world.restore_required)


def take_over(spec: JobSpec, state: TrainState, group: Group, agreement: StateAgreement) -> None:
    """Bring this rank to the state that all have agreed on. Collective."""
    updates = state.updates
    server_state.finish_update(spec, state, agreement)
    elastic.apply_agreement(state, group, agreement)
    kept = state.unsent_next if state.updates > updates else state.unsent  # the others may have applied one more
    state.unsent = unsent.with_newcomers(kept, agreement.newcomers)


def make_ready(
    spec: JobSpec,
    state: TrainState,
    group: Group,
    coordinates: Coordinates,
    choices: ParallelizeOptions | None = None,
    reducer: Reducer | None = None,
) -> StepsFrom:
    """Prepare the model for this world: shard it, wrap it, or split it into stages.

    The returned function makes the step runner, once the state is complete, from the spec and the assignment of the first step. `choices`
    default to the spec's.
    """
    choices = choices or choices_of(spec)
    if coordinates.degrees.pipeline > 1:
        stages = staged(spec, state, group, coordinates.degrees, choices)
        return lambda spec, first: PipelineStepRunner(spec, state, group, stages, coordinates, first)
    if coordinates.degrees.servers:
        served = parallelize_served(state.task.model, coordinates.degrees.servers, lambda: state.step + 1, state.device, group, choices)
        return lambda spec, first: ServedStepRunner(spec, state, group, served, coordinates, first)
    wrapped = parallelize(
        state.task.model,
        coordinates.degrees,
        state.device,
        group,
        reproducible=derived.is_reproducible(spec),
        shard=state.task.shard,
        choices=choices,
        reducer=reducer,
    )
    return lambda spec, first: LocalStepRunner(spec, state, group, wrapped, coordinates, first)


def choices_of(spec: JobSpec) -> ParallelizeOptions:
    return ParallelizeOptions(
        precision=spec.precision,
        activation_checkpointing=spec.parallelism.activation_checkpointing,
        reshard_after_forward=spec.parallelism.reshard_after_forward,
        cpu_offload=spec.parallelism.cpu_offload,
        communication=derived.communication_options(spec),
    )
