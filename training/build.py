"""The one place where a generation is put together: whatever depends on the world is made here and thrown away as one.

`TrainState` outlives it. A resize or a recovery drops the `Generation` and builds another around the same state.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from distributed.process_group import Group, join
from parallelism.apply import parallelize
from parallelism.plan import Deal, degrees
from training import checkpoint
from training.checkpoint import Vault
from training.errors import CheckpointCorruptError, NoUsableCheckpointError
from training.link import World
from training.spec import JobSpec
from training.state import TrainState
from training.step import Stepper
from training.telemetry import Telemetry


@dataclass
class Generation:
    """One membership of the gang, as this rank sees it."""

    spec: JobSpec
    state: TrainState
    group: Group
    stepper: Stepper
    vault: Vault
    telemetry: Telemetry

    def close(self) -> None:
        """Leave the group; the wrapper goes first, since it holds on to the group."""
        del self.stepper
        self.group.close()


def build_generation(spec: JobSpec, world: World, state: TrainState, telemetry: Telemetry) -> Generation:
    """Meet the other ranks, load the state if there is one to load, wrap the model."""
    group = join(world)
    vault = Vault(Path(world.checkpoint_directory), world.job_id, world.generation, spec, group)
    checkpoint.open_vault(vault)
    restore(vault, world, state, telemetry)
    deal = Deal(spec.micro_batches, group.rank, group.world_size)
    sizes = degrees(spec.parallelism.strategy, world.world_size)
    wrapped = parallelize(state.task.model, sizes, state.device, deal, reproducible=spec.is_reproducible)
    return Generation(spec, state, group, Stepper(spec, state, group, wrapped), vault, telemetry)


def restore(vault: Vault, world: World, state: TrainState, telemetry: Telemetry) -> None:
    """Load the first candidate that verifies; without candidates, start at step 0."""
    for folder in map(Path, world.restore_from):
        try:
            manifest = checkpoint.verify(vault.group, folder)
        except CheckpointCorruptError as error:
            telemetry.event("checkpoint_damaged", directory=str(folder), reason=str(error))
            telemetry.say(f"WARNING checkpoint {folder.name} is damaged, trying an older one: {error}")
            continue
        checkpoint.load(vault.group, state, folder, manifest)
        telemetry.event("checkpoint_restored", directory=str(folder), step=state.step)
        telemetry.say(f"restored step {state.step} from {folder}")
        return
    if world.restore_required:
        tried = ", ".join(world.restore_from) or "none was named"
        raise NoUsableCheckpointError(f"no usable checkpoint: tried {tried}; restore from another one, or start a new job")
