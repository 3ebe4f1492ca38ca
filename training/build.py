"""The one place where a generation is put together: whatever depends on the world is made here and thrown away as one.

`TrainState` outlives it. A resize or a recovery drops the `Generation` and builds another around the same state.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from distributed.abort import Fence
from distributed.process_group import Group, Remains, join, set_aside_group
from parallelism import mesh
from parallelism.apply import parallelize
from parallelism.plan import Choices
from training import checkpoint, elastic
from training.elastic import Rebuilt
from training.errors import CheckpointCorruptError, NoUsableCheckpointError
from training.link import World
from training.spec import JobSpec
from training.state import TrainState, follow_model
from training.step import Stepper
from training.telemetry import Telemetry
from training.vault import Vault, clear_debris, open_vault


@dataclass
class Generation:
    """One membership of the gang, as this rank sees it."""

    spec: JobSpec
    state: TrainState
    group: Group
    stepper: Stepper
    vault: Vault
    telemetry: Telemetry
    rebuilt: Rebuilt | None  # None: begun afresh or from a checkpoint

    def close(self) -> None:
        """End the group; the wrapper goes first, since it holds on to the group."""
        del self.stepper
        self.group.close()

    def leave(self) -> Remains:
        """Make room for the next generation."""
        del self.stepper
        return set_aside_group()


def build_generation(spec: JobSpec, world: World, state: TrainState, telemetry: Telemetry, fence: Fence) -> Generation:
    """Meet the other ranks, make the model ready for this world, come to one state with them."""
    entered_at = time.time()
    sizes = spec.parallelism.degrees(world.world_size)
    group = join(world, fence, mesh.lines(sizes))
    joined_at = time.time()
    vault = Vault(Path(world.checkpoint_directory), world.job_id, world.generation, spec, group)
    agreement = elastic.agree(group.gather(elastic.standing(state, led=telemetry.led_before)))
    if agreement is None or agreement.newcomers:
        open_vault(vault, agreement.newcomers if agreement else ())  # the others have seen it
    else:
        clear_debris(vault)
    for found in checkpoint.untold(vault, world.restore_from):
        telemetry.event("checkpoint_committed", **found.announcement)
    wrapped = parallelize(state.task.model, sizes, state.device, group, reproducible=spec.is_reproducible, choices=choices_of(spec))
    follow_model(state, spec)
    rebuilt = None
    if agreement is None:
        restore(vault, world, state, telemetry)
    else:
        elastic.take(state, group, agreement)
        rebuilt = Rebuilt(agreement, entered_at, joined_at, agreed_at=time.time())
    state.begun = True
    stepper = Stepper(spec, state, group, wrapped, elastic.first_deal(spec.micro_batches, group, agreement))
    return Generation(spec, state, group, stepper, vault, telemetry, rebuilt)


def choices_of(spec: JobSpec) -> Choices:
    return Choices(
        precision=spec.precision,
        activation_checkpointing=spec.parallelism.activation_checkpointing,
        reshard_after_forward=spec.parallelism.reshard_after_forward,
        cpu_offload=spec.parallelism.cpu_offload,
    )


def restore(vault: Vault, world: World, state: TrainState, telemetry: Telemetry) -> None:
    """Load the first candidate that verifies; without candidates, start at step 0."""
    for folder in map(Path, world.restore_from):
        try:
            checkpoint.load(vault.group, state, folder, checkpoint.verify(vault.group, folder))
        except CheckpointCorruptError as error:
            telemetry.event("checkpoint_damaged", directory=str(folder), reason=str(error))
            telemetry.say(f"WARNING checkpoint {folder.name} is damaged, trying an older one: {error}")
            continue
        telemetry.event("checkpoint_restored", directory=str(folder), step=state.step)
        telemetry.say(f"restored step {state.step} from {folder}")
        return
    if world.restore_required:
        tried = ", ".join(world.restore_from) or "none was named"
        raise NoUsableCheckpointError(f"no usable checkpoint: tried {tried}; restore from another one, or start a new job")
