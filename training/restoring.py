"""From checkpoints to a state: which may be restored, which is, and what is said of those that cannot be."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.objects.location import Place, place_at
from paceline.training.data.sizes import require_as_saved
from paceline.training.errors import CheckpointCorruptError, CheckpointUnreachableError, NoUsableCheckpointError
from paceline.training.link import RankPlace
from paceline.training.rank_folder import RankFolder
from paceline.training.reporting.telemetry import Telemetry
from paceline.training.saving import checkpoint
from paceline.training.saving import manifest as manifests
from paceline.training.saving.checkpoint_directory import CheckpointDirectory, storage_at
from paceline.training.saving.manifest import CommittedCheckpoint
from paceline.training.saving.storage import CheckpointStorage
from paceline.training.schema.object_store import options_of
from paceline.training.spec.job import JobSpec
from paceline.training.state import TrainState


def storage_of(spec: JobSpec, world: RankPlace, folder: RankFolder) -> CheckpointStorage:
    """The place of the job's checkpoints, as this rank reaches it. Raises InvalidInputError for a URL that cannot be used."""
    return storage_at(world.checkpoint_directory, options_of(spec.checkpoint.options), folder.staging, world.generation, world.rank)


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
    if `required` and none can be loaded, and InvalidInputError where the job's data have another size than when it was saved.
    """
    out_of_reach: dict[Place, str] = {}
    for folder in candidates:
        try:
            with checkpoint.on_this_node(checkpoints, folder) as here:
                manifest = checkpoint.verify(checkpoints.group, here)
                if manifest.job_id == checkpoints.job_id:  # a new job may go on with other data
                    require_as_saved(manifest.data, state.task.train, manifest.step)
                checkpoint.load(checkpoints.group, state, here, manifest)
                if manifest.job_id == checkpoints.job_id and manifest.gave_up_lossy:
                    state.give_up_lossy()
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
        if not candidates:
            raise NoUsableCheckpointError(
                "no usable checkpoint: those that this job could start from were deleted or are damaged; restore from another one, or start a new job"
            )
        tried = ", ".join(map(str, candidates))
        if out_of_reach:
            raise CheckpointUnreachableError(
                f"no checkpoint can be read here: tried {tried}; make their folder or their store readable on this node, or set checkpoint.directory "
                "to one that all nodes share; nothing is lost, and they can be restored once they are in reach"
            )
        raise NoUsableCheckpointError(f"no usable checkpoint: tried {tried}; restore from another one, or start a new job")
