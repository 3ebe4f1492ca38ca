"""Shows what a spec would do if it were submitted now."""

from __future__ import annotations

import shlex

from paceline.cli.answers import parsed
from paceline.cli.api_types import MemoryEstimate, Plan
from paceline.cli.commands.submit import Changes, Spec
from paceline.cli.render import formats
from paceline.cli.render.output import fields
from paceline.cli.render.plan_choices import chosen, rejected
from paceline.cli.session import Session, with_session
from paceline.cli.waiting import NEVER_FITS

#: Largest concerns first: what a smaller micro-batch changes, then what it does not.
MEMORY_PARTS = ("activations", "parameters", "gradients", "optimizer", "buffers")


@with_session
def plan(session: Session, file: Spec, changes: Changes = None) -> None:
    """Show what the job in FILE would do: placement, batch arithmetic, memory. Nothing is submitted."""
    from paceline.cli.documents import whole_refusals
    from paceline.cli.job_folder import in_its_folder, require_files
    from paceline.cli.requirement_files import with_requirements

    with session.client() as client, whole_refusals(client, "/training/plan") as reader:
        spec = in_its_folder(reader.read(file, changes or []), file)
        require_files(client, spec, file)
        spec = with_requirements(spec, file)
        document = client.create("/training/plan", spec)
    answer = parsed(document, Plan)
    session.emit(document, lambda: _report(answer))
    if answer.pending is None or answer.pending.code != NEVER_FITS:
        same = shlex.join([file, *(f"--set={change}" for change in changes or [])])
        session.next_steps(f"paceline submit {same} --plan-hash {answer.plan_hash}")


def _report(answer: Plan) -> str:
    pairs = [
        ("strategy", f"{answer.strategy} over {formats.count(answer.world_size, 'rank')}"),
        *chosen(answer.choice),
        ("batch", _batch(answer)),
        ("reproducible", "to the last bit, on any number of replicas" if answer.reproducible else "to rounding"),
        ("parameters", "unknown" if answer.parameter_count is None else formats.quantity(answer.parameter_count)),
        *((f"stage {number}", f"{stage.layers} (place {stage.place})") for number, stage in enumerate(answer.stages)),
        *_memory(answer.memory_per_rank),
        ("placement", _placement(answer)),
        *((("network", answer.network.text),) if answer.network else ()),
        *(("warning", warning) for warning in answer.warnings),
    ]
    if answer.pending is not None and answer.pending.next_step:
        pairs.append(("next step", answer.pending.next_step))
    return "\n\n".join([fields(pairs), *rejected(answer.choice)])


def _memory(memory: MemoryEstimate | None) -> list[tuple[str, str]]:
    """The memory estimate: the sum, then its parts, and the sizes that it was made from."""
    if memory is None:
        return [("memory", formats.UNKNOWN)]
    parts = ", ".join(f"{name} {formats.quantity(getattr(memory, name), 'B')}" for name in MEMORY_PARTS if getattr(memory, name))
    rows = [("memory", f"{formats.quantity(memory.total, 'B')} a rank {memory.moment}".rstrip()), ("of which", parts)]
    return [(name, text) for name, text in [*rows, ("estimated", f"from {memory.made_from}" if memory.made_from else "")] if text]


def _batch(answer: Plan) -> str:
    if answer.global_batch_size is None:
        return "as the script decides"
    if answer.micro_batches is None:
        return f"{answer.global_batch_size} samples a step, in the largest micro-batches that fit: the job tries before its first step"
    count = "1 micro-batch" if answer.micro_batches == 1 else f"{answer.micro_batches} micro-batches"
    return f"{answer.global_batch_size} samples a step in {count} of {answer.micro_batch_size}"


def _placement(answer: Plan) -> str:
    if answer.placement is None:
        return answer.pending.text if answer.pending else "none"
    return ", ".join(f"rank {place.rank} on {place.node_name} slot {place.slot}" for place in answer.placement)
