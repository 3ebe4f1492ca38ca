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
from paceline.objects.location import Place, place_at
from paceline.parallelism import mesh
from paceline.parallelism.apply import parallelize, parallelize_served
from paceline.parallelism.communication.reducers import Reducer
from paceline.parallelism.plan import Coordinates, ParallelizeOptions, state_shards
from paceline.training import elastic, server_state
from paceline.training.autotune import micro_batch
from paceline.training.elastic import RecoveryReport
from paceline.training.errors import CheckpointCorruptError, CheckpointUnreachableError, NoUsableCheckpointError
from paceline.training.gradient_sums import ChosenSums, FixedSums, gradient_sums
from paceline.training.gradients.recorder import GradientRecording, recording_for
from paceline.training.link import RankPlace
from paceline.training.rank_folder import RankFolder
from paceline.training.reporting.telemetry import Telemetry
from paceline.training.saving import checkpoint, left_out, stored_weights, unsent
from paceline.training.saving import manifest as manifests
from paceline.training.saving.checkpoint_directory import CheckpointDirectory, clear_debris, open_directory, storage_at
from paceline.training.saving.manifest import CommittedCheckpoint
from paceline.training.saving.saves import Saves
from paceline.training.saving.storage import CheckpointStorage
from paceline.training.saving.weights import load_initial
from paceline.training.saving.writers import BackgroundWriter, BlockingWriter
from paceline.training.schema.object_store import options_of
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
    gradients: GradientRecording
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
        """Give what ranks that leave have not sent to one that stays. Shards are left out: they go by the checkpoint. Collective."""
        if self.spec.communication.leaves_out and "shard" not in self.group.axis_groups:
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


def build_generation(spec: JobSpec, world: RankPlace, state: TrainState, telemetry: Telemetry, aborter: GroupAborter) -> JoinedGeneration:
    """Join the group of `world`, prepare the model for it, and bring all its ranks to one state. Collective."""
    entered_at = time.time()
    sizes = spec.parallelism.degrees(world.world_size)
    group = join(world, aborter, mesh.axis_group_ranks(sizes), reduces=spec.communication.algorithms_on(world.device))
    joined_at = time.time()
    checkpoints = CheckpointDirectory(storage_of(spec, world, telemetry.folder), world.job_id, world.generation, spec, group)
    summaries = group.all_gather_object(elastic.summarize_state(state, was_leader=telemetry.was_leader))
    agreement = server_state.agree(summaries, sizes.servers) if sizes.servers else elastic.agree(summaries, state_shards(sizes))
    if agreement is None or agreement.newcomers:
        open_directory(checkpoints, agreement.newcomers if agreement else ())  # the others have seen it
    else:
        clear_debris(checkpoints)
    unreported = checkpoint.unreported(checkpoints, world.restore_from)
    for found in unreported:
        telemetry.event("checkpoint_committed", **found.announcement)
    coordinates = Coordinates(sizes, world.rank)
    sums = gradient_sums(spec, world, state, group)
    steps_from = make_ready(spec, state, group, coordinates, reducer=sums.reducer)
    rebuild_optimizer(state, spec)
    if sizes.servers:
        server_state.take_part(spec, state, coordinates)
    newest_generation = max(each.generation for each in summaries)
    updates = state.updates
    if agreement is None:
        if sizes.servers and newest_generation:
            server_state.start_over(spec, state)
        state.reset()
        restore(
            checkpoints, newest_first(checkpoints, unreported, newest_generation, world), state, telemetry, required=world.restore_required
        )
    else:
        server_state.finish_update(spec, state, agreement)
        elastic.apply_agreement(state, group, agreement)
        kept = state.unsent_next if state.updates > updates else state.unsent  # the others may have applied one more
        state.unsent = unsent.with_newcomers(kept, agreement.newcomers)
    sums.reducer.load_state(state.unsent)
    rebuilt = RecoveryReport(agreement, state.step, entered_at, joined_at, agreed_at=time.time()) if newest_generation else None
    if spec.initial_weights is not None and state.step == 0:  # newcomers too: at step 0 nothing is transferred
        load_initial(state.model, stored_weights.on_this_node(spec, spec.initial_weights), group)
        telemetry.log(f"starts with the weights in {spec.initial_weights}")
    state.started, state.generation = True, world.generation
    spec = micro_batch.resolve_micro_batch(checkpoints, world, state, steps_from, coordinates, telemetry)
    step_runner = steps_from(spec, elastic.first_assignment(derived.micro_batches(spec), coordinates, agreement))
    if spec.fault_tolerance.rolls_back:
        step_runner.left_out = left_out.read(checkpoints)
    writer = BackgroundWriter(world.local_world_size, telemetry.log) if spec.checkpoint.asynchronous else BlockingWriter()
    saves = Saves(checkpoints, state, telemetry, writer)
    gradients = recording_for(spec.gradients, state, group, telemetry.artifacts, telemetry.leave_step)
    return JoinedGeneration(spec, state, group, step_runner, checkpoints, saves, telemetry, rebuilt, sums, gradients)


def storage_of(spec: JobSpec, world: RankPlace, folder: RankFolder) -> CheckpointStorage:
    """The place of the job's checkpoints, as this rank reaches it. Raises InvalidInputError for a URL that cannot be used."""
    return storage_at(world.checkpoint_directory, options_of(spec.checkpoint.options), folder.staging, world.generation, world.rank)


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


def newest_first(
    checkpoints: CheckpointDirectory, unreported: Sequence[CommittedCheckpoint], newest_generation: int, world: RankPlace
) -> list[Place]:
    """Return the checkpoints that may be restored, newest first.

    Rank 0 knows the `unreported` ones. Those that the living processes saved in `newest_generation` after all that the coordinator knows come
    first: it may not have heard of them. Older unreported ones are left out: they are being deleted, or a restart that did not know of them has gone
    another way since.
    """
    known, here = [place_at(each) for each in world.restore_from], place_at(world.checkpoint_directory)
    names = [manifests.NAME.fullmatch(place.name) for place in known if place.parent == here]  # not what the job was started from
    known_steps = [int(name["step"]) for name in names if name is not None and int(name["generation"]) == newest_generation]
    newer = [
        each for each in unreported if each.manifest.generation == newest_generation and each.manifest.step > max(known_steps, default=-1)
    ]
    ours = sorted(newer, key=lambda each: each.manifest.step, reverse=True)
    return [*checkpoints.group.all_gather_object([each.directory for each in ours])[0], *known]


def restore(
    checkpoints: CheckpointDirectory, candidates: Sequence[Place], state: TrainState, telemetry: Telemetry, *, required: bool
) -> None:
    """Load the first of `candidates` that verifies; without candidates, start at step 0.

    An unreachable checkpoint is given up only where an older one is restored. Raises CheckpointUnreachableError or NoUsableCheckpointError
    if `required` and none can be loaded.
    """
    out_of_reach: dict[Place, str] = {}
    for folder in candidates:
        try:
            with checkpoint.on_this_node(checkpoints, folder) as here:
                checkpoint.load(checkpoints.group, state, here, checkpoint.verify(checkpoints.group, here))
        except CheckpointUnreachableError as error:
            out_of_reach[folder] = str(error)
            telemetry.log(f"WARNING checkpoint {folder.name} is out of reach, trying an older one: {error}")
            continue
        except CheckpointCorruptError as error:
            telemetry.event("checkpoint_damaged", directory=str(folder), reason=str(error))
            telemetry.log(f"WARNING checkpoint {folder.name} is damaged, trying an older one: {error}")
            continue
        for given_up, why in out_of_reach.items():
            telemetry.event("checkpoint_damaged", directory=str(given_up), reason=why)
        telemetry.event("checkpoint_restored", directory=str(folder), step=state.step)
        telemetry.log(f"restored step {state.step} from {folder}")
        return
    if required:
        tried = ", ".join(map(str, candidates)) or "none was named"
        if out_of_reach:
            raise CheckpointUnreachableError(
                f"no checkpoint can be read here: tried {tried}; make their folder or their store readable on this node, or set checkpoint.directory "
                "to one that all nodes share; nothing is lost, and they can be restored once they are in reach"
            )
        raise NoUsableCheckpointError(f"no usable checkpoint: tried {tried}; restore from another one, or start a new job")
