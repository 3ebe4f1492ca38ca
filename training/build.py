"""The one place where a generation is put together: whatever depends on the world is made here and thrown away as one.

`TrainState` outlives it. A resize or a recovery drops the `Generation` and builds another around the same state.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from distributed.abort import Fence
from distributed.process_group import Group, Remains, join, set_aside_group
from parallelism import mesh
from parallelism.apply import parallelize
from parallelism.plan import Choices, Coordinates, parts_of
from training import elastic
from training.elastic import Rebuilt
from training.errors import CheckpointCorruptError, CheckpointUnreachableError, NoUsableCheckpointError
from training.link import World
from training.reporting.telemetry import Telemetry
from training.saving import checkpoint
from training.saving.manifest import Committed
from training.saving.saves import Saves
from training.saving.vault import Vault, clear_debris, open_vault
from training.saving.weights import load_initial
from training.saving.writers import AtOnce, Behind
from training.spec.job import JobSpec
from training.state import TrainState, follow_model
from training.steps import micro_batch
from training.steps.pipelined import PipelineStepper, staged
from training.steps.step import Stepper
from training.steps.stepping import Stepping, StepsFrom


@dataclass
class Generation:
    """One membership of the gang, as this rank sees it."""

    spec: JobSpec
    state: TrainState
    group: Group
    stepper: Stepping
    vault: Vault
    saves: Saves
    telemetry: Telemetry
    rebuilt: Rebuilt | None  # None: all its processes are new

    def close(self) -> None:
        """End the group; the wrapper goes first, since it holds on to the group."""
        del self.stepper
        self.saves.close()
        self.group.close()

    def leave(self) -> Remains:
        """Make room for the next generation."""
        del self.stepper
        self.saves.close()
        return set_aside_group()


def build_generation(spec: JobSpec, world: World, state: TrainState, telemetry: Telemetry, fence: Fence) -> Generation:
    """Meet the other ranks, make the model ready for this world, come to one state with them."""
    entered_at = time.time()
    sizes = spec.parallelism.degrees(world.world_size)
    group = join(world, fence, mesh.lines(sizes))
    joined_at = time.time()
    vault = Vault(Path(world.checkpoint_directory), world.job_id, world.generation, spec, group)
    standings = group.gather(elastic.standing(state, led=telemetry.led_before))
    agreement = elastic.agree(standings, parts_of(sizes))
    if agreement is None or agreement.newcomers:
        open_vault(vault, agreement.newcomers if agreement else ())  # the others have seen it
    else:
        clear_debris(vault)
    untold = checkpoint.untold(vault, world.restore_from)
    for found in untold:
        telemetry.event("checkpoint_committed", **found.announcement)
    coordinates = Coordinates(sizes, world.rank)
    steps_from = make_ready(spec, state, group, coordinates)
    follow_model(state, spec)
    lived = max(each.generation for each in standings)
    if agreement is None:
        state.forget()
        restore(vault, newest_first(vault, untold, lived, world), state, telemetry, required=world.restore_required)
    else:
        elastic.take(state, group, agreement)
    rebuilt = Rebuilt(agreement, state.step, entered_at, joined_at, agreed_at=time.time()) if lived else None
    if spec.initial_weights is not None and state.step == 0:  # newcomers too: at step 0 nothing is transferred
        load_initial(state.model, Path(spec.initial_weights), group)
        telemetry.say(f"starts with the weights in {spec.initial_weights}")
    state.begun, state.generation = True, world.generation
    spec = micro_batch.settle(vault, world, state, steps_from, coordinates, telemetry)
    stepper = steps_from(spec, elastic.first_deal(spec.micro_batches, coordinates, agreement))
    writer = Behind(world.local_world_size, telemetry.say) if spec.checkpoint.asynchronous else AtOnce()
    return Generation(spec, state, group, stepper, vault, Saves(vault, state, telemetry, writer), telemetry, rebuilt)


def make_ready(spec: JobSpec, state: TrainState, group: Group, coordinates: Coordinates, choices: Choices | None = None) -> StepsFrom:
    """The model for this world. The answer makes its steps, once the state is complete, from the spec and the deal of the first one. `choices`:
    default: the spec's."""
    choices = choices or choices_of(spec)
    if coordinates.degrees.pipeline > 1:
        stages = staged(spec, state, group, coordinates.degrees, choices)
        return lambda spec, first: PipelineStepper(spec, state, group, stages, coordinates, first)
    wrapped = parallelize(
        state.task.model,
        coordinates.degrees,
        state.device,
        group,
        reproducible=spec.is_reproducible,
        shard=state.task.shard,
        choices=choices,
    )
    return lambda spec, first: Stepper(spec, state, group, wrapped, coordinates, first)


def choices_of(spec: JobSpec) -> Choices:
    return Choices(
        precision=spec.precision,
        activation_checkpointing=spec.parallelism.activation_checkpointing,
        reshard_after_forward=spec.parallelism.reshard_after_forward,
        cpu_offload=spec.parallelism.cpu_offload,
    )


def newest_first(vault: Vault, untold: Sequence[Committed], lived: int, world: World) -> list[Path]:
    """What may be restored; rank 0 knows `untold`. What the living processes themselves saved in generation `lived` the coordinator may not
    have heard of yet. Older ones that are untold may be debris: a restart that did not know of them has gone another way since."""
    ours = sorted((each for each in untold if each.manifest.generation == lived), key=lambda each: each.manifest.step, reverse=True)
    return [*vault.group.gather([each.directory for each in ours])[0], *map(Path, world.restore_from)]


def restore(vault: Vault, candidates: Sequence[Path], state: TrainState, telemetry: Telemetry, *, required: bool) -> None:
    """Load the first candidate that verifies; without candidates, start at step 0. One that is out of reach is given up only where the run
    goes on from an older one."""
    out_of_reach: dict[Path, str] = {}
    for folder in candidates:
        try:
            checkpoint.load(vault.group, state, folder, checkpoint.verify(vault.group, folder))
        except CheckpointUnreachableError as error:
            out_of_reach[folder] = str(error)
            telemetry.say(f"WARNING checkpoint {folder.name} is out of reach, trying an older one: {error}")
            continue
        except CheckpointCorruptError as error:
            telemetry.event("checkpoint_damaged", directory=str(folder), reason=str(error))
            telemetry.say(f"WARNING checkpoint {folder.name} is damaged, trying an older one: {error}")
            continue
        for given_up, why in out_of_reach.items():
            telemetry.event("checkpoint_damaged", directory=str(given_up), reason=why)
        telemetry.event("checkpoint_restored", directory=str(folder), step=state.step)
        telemetry.say(f"restored step {state.step} from {folder}")
        return
    if required:
        tried = ", ".join(map(str, candidates)) or "none was named"
        if out_of_reach:
            raise CheckpointUnreachableError(
                f"no checkpoint can be read here: tried {tried}; make their folder readable on this node, or set checkpoint.directory to one "
                "that all nodes share; nothing is lost, and they can be restored once they are in reach"
            )
        raise NoUsableCheckpointError(f"no usable checkpoint: tried {tried}; restore from another one, or start a new job")
