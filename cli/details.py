"""One job on a terminal: first why it failed, then its state, how its time was spent, and its history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from paceline.cli.answers import parsed
from paceline.cli.api_types import AxisTraffic, BadLoss, Checkpoint, Failure, Goodput, Incident, Job, JobGradients, Node, Performance
from paceline.cli.job_facts import (
    TIME_LIMIT,
    WAY_TO_CURVES,
    code_origin,
    has_ended,
    is_script,
    packages_of,
    parked_rank_count,
    rank_count,
    removal_words,
    seconds_to_first_step,
)
from paceline.cli.render import failures, formats
from paceline.cli.render.gradient_words import gradient_words
from paceline.cli.render.output import fields, table
from paceline.cli.render.plan_choices import chosen

if TYPE_CHECKING:
    from paceline.cli.client import RestClient  # httpx costs 100 ms: --help does without

LAST_INCIDENTS = 5

Pairs = list[tuple[str, str]]


def details(client: RestClient, job: Job) -> str:
    goodput = parsed(client.get(f"/training/jobs/{job.id}/goodput"), Goodput) if job.started_at else None
    hurt = job.started_at is not None and (job.failure is not None or len(job.generations) > 1)
    incidents = parsed(client.get(f"/training/jobs/{job.id}/incidents"), list[Incident]) if hurt else []
    performance = parsed(client.get(f"/training/jobs/{job.id}/performance"), Performance) if job.started_at else None
    recorded = parsed(client.get(f"/training/jobs/{job.id}/gradients"), JobGradients) if (job.spec or {}).get("gradients") else None
    newest = newest_checkpoint(client, job.id) if job.progress.last_checkpoint_step is not None else None
    saved = _saved_file(job) if is_script(job) else _checkpoint(job, newest)
    blocks = [
        fields(
            [
                *_headline(job),
                ("page", client.job_page(job.id)),
                *_code(job),
                *_current_state(job, _nodes_that_matter(client, job)),
                *saved,
                *_performance(performance),
                *_recorded(job, recorded),
                *_goodput(goodput),
            ]
        ),
        ranks(job),
    ]
    if incidents:
        blocks.append(incidents_table(incidents[-LAST_INCIDENTS:]))
    return "\n\n".join(blocks)


def _headline(job: Job) -> Pairs:
    wanted = f", wanted: {job.desired}" if _heads_elsewhere(job) else ""
    reason = f", reason: {job.end_reason}" if job.end_reason not in (None, job.state) else ""
    state = [("job", f"{job.name} ({job.id})"), ("state", f"{job.state}{wanted}{reason}")]
    silent = [("silent", node.message) for node in job.silent_nodes]
    return [*state, *_hang(job), *silent, *_failure(job.failure), *_waiting(job), *_deleted(job)]


def _hang(job: Job) -> Pairs:
    if job.hang is None:
        return []
    then = "its ranks are ended" if job.hang.ends else f"it is left as it is; 'paceline stacks {job.name}' shows where its ranks are now"
    return [("hangs?", job.hang.message), ("", then)]


def _code(job: Job) -> Pairs:
    section = ((job.spec or {}).get("environment") or {}).get("code")
    return [*(code_origin(section) if section else []), *packages_of((job.spec or {}).get("environment") or {})]


def _heads_elsewhere(job: Job) -> bool:
    """Whether the job's state differs from what its user wants."""
    return not has_ended(job) and job.desired != ("pause" if job.state == "paused" else "run")


def _deleted(job: Job) -> Pairs:
    """The reason why its curves and log are empty."""
    return [] if job.data_removal is None else [("data", removal_words(job.data_removal))]


def _failure(failure: Failure | None) -> Pairs:
    """The culprit with its traceback and last lines; then the other ranks, in one line each: those of the same failure, those of a failure of their
    own, and those that it dragged down."""
    if failure is None:
        return []
    lines = [("failure", _failure_text(failure))]
    lines += [("", f"  {line}".rstrip()) for line in failures.message_lines(failure)[1:]]
    lines += [("", line) for line in (*failures.traceback_lines(failure), *failures.last_lines(failure))]
    same, dragged = (_listed(failure, share) for share in ("same", "victim"))
    lines += [("", f"the same on rank {same}")] if same else []
    lines += [("", f"also {_failure_text(other)}") for other in failure.victims if other.share == "also"]
    return [*lines, ("", f"failed as a result: rank {dragged}")] if dragged else lines


def _failure_text(failure: Failure) -> str:
    rank = f"rank {failure.rank} on {failure.node_name}"
    predicate = failures.predicate(failure)
    return f"{rank} {predicate}" if predicate else f"{failures.error_name(failure)}: {rank}: {failures.first_line(failure)}"


def _listed(failure: Failure, share: str) -> str:
    return ", ".join(f"{other.rank} on {other.node_name}" for other in failure.victims if other.share == share)


def _waiting(job: Job) -> Pairs:
    if job.pending is None:
        return []
    parts = [
        ("lacks" if job.state == "running" else "waiting", job.pending.text),
        ("would fit", job.pending.nearest_fit),
        ("next step", job.pending.next_step),
        ("no new node", job.pending.no_launch),
    ]
    return [(name, text) for name, text in parts if text]


def _current_state(job: Job, nodes: Mapping[str, Node]) -> Pairs:
    progress = job.progress
    loss = formats.number(progress.loss)
    if progress.not_finite_step is not None:
        kept = "" if is_script(job) else "; the last checkpoint from before it is kept"
        finite_again = is_script(job) and not isinstance(progress.loss, str)  # it may have left out that step's update
        loss += f": {'was not finite at' if finite_again else 'not finite since'} step {progress.not_finite_step}{kept}"
    bad = progress.bad_loss
    return [
        ("step", formats.steps(progress.step, progress.total_steps)),
        ("loss", loss),
        *([] if bad is None or progress.not_finite_step is not None else [("bad loss", f"{bad.what}: {bad.done}")]),
        *([] if bad is None else _bad_samples(bad)),
        *_curves(job),
        ("throughput", formats.throughput(progress.tokens_per_second, progress.samples_per_second)),
        ("world", f"{world(job)}, {job.strategy}, generation {job.generation}, {formats.count(job.restarts, 'restart')}"),
        *chosen(job.choice),
        *_gradients(job, nodes),
        *_time_limit(job),
        ("first step", _first_step(job)),
    ]


def _curves(job: Job) -> Pairs:
    """Where a script's curves come from, if not from itself, and the way to some where it has none."""
    if job.printed_curves:
        return [("curves", "read from printed lines, since nothing else tells any")]
    has_none = len(job.generations) > 0 and job.progress.updated_at is None and job.data_removal is None
    return [("curves", f"none{'' if has_ended(job) else ' yet'}: {WAY_TO_CURVES}")] if is_script(job) and has_none else []


def _gradients(job: Job, nodes: Mapping[str, Node]) -> Pairs:
    """How replicas sum their gradients, where the job asks for another way than the default."""
    if (job.actual_world_size or job.world_size) == 1:  # one rank sums nothing
        return []
    if job.communication is not None:
        return [("gradients", job.communication.text), ("links", job.communication.links)]
    asked = _asked_communication(job)
    told = gradient_words(asked, job.ranks, nodes) if asked else ""
    return [("gradients", told)] if told else []


def _asked_communication(job: Job) -> Mapping[str, object]:
    """Return the spec's `communication` section; empty where the spec has none, or one that this version does not know."""
    asked = (job.spec or {}).get("communication")
    return asked if isinstance(asked, Mapping) else {}


def _nodes_that_matter(client: RestClient, job: Job) -> dict[str, Node]:
    """The nodes by id, where it depends on the hosts of the ranks what is done with their gradients."""
    algorithm = _asked_communication(job).get("algorithm")
    found = parsed(client.pages("/cluster/nodes"), list[Node]) if algorithm in ("ring", "hierarchical") and job.ranks else []
    used = {rank.node_id for rank in job.ranks}
    return {node.id: node for node in found if node.id in used}


def _recorded(job: Job, found: JobGradients | None) -> Pairs:
    """The steps whose gradients are recorded, where the job asks for it."""
    if found is None:
        return []
    newest = f", the newest {found.steps[-1].step}: 'paceline gradients {job.name}'" if found.steps else ", and none is done yet"
    return [("recorded", f"gradients of {formats.count(len(found.steps), 'step')}{newest}")]


def _first_step(job: Job) -> str:
    seconds = seconds_to_first_step(job)
    return _none(job) if seconds is None else f"{seconds:.2f} s after submission"


def _bad_samples(bad: BadLoss) -> Pairs:
    if not bad.sample_ids:
        return []
    more = bad.samples - len(bad.sample_ids)
    return [("", f"its samples: {', '.join(map(str, bad.sample_ids))}{f' and {more} more' if more > 0 else ''}")]


def _time_limit(job: Job) -> Pairs:
    """The used part of the time limit; where that was all, the way out."""
    if job.time_limit_seconds is None:
        return []
    ran = f"ran {formats.duration(job.ran_seconds)} of {formats.duration(job.time_limit_seconds)}"
    if job.time_left_seconds is not None:
        return [("time limit", f"{ran}, {formats.duration(job.time_left_seconds)} left")]
    return [("time limit", ran), *([("next step", more_time(job))] if job.end_reason == TIME_LIMIT else [])]


def more_time(job: Job) -> str:
    """The way out for a job that has reached its time limit."""
    if job.progress.last_checkpoint_step is None:
        return "submit it again with a longer time_limit"
    if (bad := job.progress.not_finite_step) is not None:
        return f"paceline checkpoints {job.name}, then paceline restore CHECKPOINT, one of a step before {bad}, whose loss is not finite"
    return f"paceline checkpoints {job.name}, then paceline restore CHECKPOINT: it goes on from there, for as long again"


def newest_checkpoint(client: RestClient, job_id: str) -> Checkpoint | None:
    found = parsed(client.pages(f"/checkpoints/jobs/{job_id}", limit=1), list[Checkpoint])
    return found[0] if found else None


def _none(job: Job) -> str:
    return "none" if has_ended(job) else "none yet"


def _checkpoint(job: Job, newest: Checkpoint | None) -> Pairs:
    """The newest checkpoint, with the time that it cost the steps around it."""
    if newest is None:
        return [("checkpoint", _none(job))]
    if newest.stall_seconds is None:
        return [("checkpoint", f"step {newest.step}")]
    slower = f", steps meanwhile {formats.times(newest.slowdown)}" if newest.slowdown is not None else ""
    waited, written = formats.seconds(newest.stall_seconds), formats.seconds(newest.write_seconds)
    return [("checkpoint", f"step {newest.step}: training waited {waited}, written in {written}{slower}")]


def _saved_file(job: Job) -> Pairs:
    """The newest file of a script that looks like a checkpoint: a script saves by itself, and no more is known."""
    saved = job.progress.saved_file
    if saved is None:
        return [("saved", "no checkpoint was seen below the working directory; the script may have saved elsewhere")]
    step = "" if saved.step is None else f"step {saved.step} by its name, "
    return [("saved", f"newest in its folder: {saved.path}: {step}{formats.quantity(saved.bytes, 'B')}, {formats.age(saved.time)} ago")]


def _performance(performance: Performance | None) -> Pairs:
    """MFU with its inputs, the waits within a step, and the rank that took the most memory."""
    if performance is None or performance.steps == 0:
        return []
    mfu = performance.mfu
    basis = f"{mfu.formula}; peak {formats.quantity(mfu.peak_flops)}FLOP/s, {', '.join(mfu.sources)}" if mfu.peak_flops else mfu.formula
    pairs = [("MFU", mfu.text), *([("", basis)] if basis else [])]
    if mfu.flops_per_second is not None:
        pairs.append(("model FLOP/s", f"{formats.quantity(mfu.flops_per_second, 'FLOP/s')}, forward and backward, on all ranks"))
    if performance.exposed_communication is not None and performance.step_seconds is not None:
        exposed = f"{performance.exposed_communication:.1%} of a step of {performance.step_seconds:.3f} s waits for other ranks"
        beside = performance.overlapped_communication
        rank = f"rank {performance.timed_rank}"
        pairs.append(("exposed comm.", exposed if beside is None else f"{exposed}; {beside:.1%} more passes while {rank} computes"))
    elif performance.parts:
        pairs.append(("exposed comm.", "not known: with fsdp and tensor parallelism on GPUs torch itself starts what is waited for"))
    sent = [*map(sent_along, performance.traffic), *(f"{axis}: not counted, torch itself sends along it" for axis in performance.uncounted)]
    pairs += [("sent" if index == 0 else "", words) for index, words in enumerate(sent)]
    if performance.bubble is not None and performance.bubble.measured is not None:
        bubble = performance.bubble
        pairs.append(("bubble", f"{bubble.measured:.1%} of a step, {bubble.formula:.1%} by the formula: {bubble.text}"))
    most = max(performance.peak_memory, key=lambda each: each.bytes, default=None)
    return [*pairs, *([("peak memory", f"{formats.quantity(most.bytes, 'B')}, rank {most.rank}")] if most else [])]


def sent_along(traffic: AxisTraffic) -> str:
    """The traffic along an axis: "tensor: 1.2 MB a step from rank 0, 24.1 MB/s"."""
    rate = "" if traffic.bytes_per_second is None else f", {formats.quantity(traffic.bytes_per_second, 'B')}/s"
    return f"{traffic.axis}: {formats.quantity(traffic.bytes_per_step, 'B')} a step from rank {traffic.rank}{rate}"


def world(job: Job) -> str:
    """The size of the world: "runs with 1 of 2 ranks, 1 more parked"."""
    now, parked = rank_count(job), parked_rank_count(job)
    size = formats.count(now, "rank")
    if now != job.world_size:
        size = f"{'ran' if has_ended(job) else 'runs'} with {now} of {job.world_size} ranks"
    return f"{size}, {parked} more parked" if parked else size


def _goodput(goodput: Goodput | None) -> Pairs:
    """The useful part of the time, then the causes that took at least a hundredth of it, the largest first."""
    if goodput is None:
        return []
    rest = sorted((part for part in goodput.parts if part.cause != "stepping" and part.share >= 0.01), key=lambda part: -part.share)
    costs = ", ".join(f"{part.cause.replace('_', ' ')} {part.seconds:.1f} s ({part.share:.0%})" for part in rest)
    return [("goodput", goodput.text), *([("", f"the rest: {costs}")] if costs and goodput.goodput is not None else [])]


def ranks(job: Job) -> str:
    axes = mesh_axes(job)
    headers = ["RANK", *map(str.upper, axes), "NODE", "SLOT", "STATE", "STEP", "PID", "HEARTBEAT", "EXIT"]
    rows = [
        [
            str(rank.rank),
            *(str(rank.place.get(axis, formats.UNKNOWN)) for axis in axes),
            rank.node_name,
            str(rank.slot),
            rank.state,
            formats.UNKNOWN if job.strategy == "script" and rank.step == 0 else str(rank.step),  # only what it logs is known
            str(rank.pid or formats.UNKNOWN),
            formats.duration(rank.heartbeat_age_seconds),
            rank.signal or (formats.UNKNOWN if rank.exit_code is None else str(rank.exit_code)),
        ]
        for rank in job.ranks
    ]
    return table(headers, rows, empty="no ranks" if has_ended(job) else "no ranks yet")


def mesh_axes(job: Job) -> list[str]:
    """The axes along which the job's ranks stand. Replicas alone need none: their number is the rank."""
    axes = list(dict.fromkeys(axis for rank in job.ranks for axis in rank.place))
    return [] if axes == ["replicate"] else axes


def incidents_table(incidents: list[Incident]) -> str:
    headers = ["FAULT", "OUTCOME", "OUTAGE", "LOST", "WHAT HAPPENED", "WHAT WAS DONE"]
    rows = [
        [formats.age(each.fault_at) + " ago", each.outcome, f"{each.age_seconds:.2f} s", lost(each), each.what, each.done]
        for each in incidents
    ]
    return table(headers, rows, empty="no incidents")


def lost(incident: Incident) -> str:
    """The lost work of an incident: "3 steps, 1.2 s of work". Of a script that runs again it may never be known."""
    if incident.steps_lost is None:
        return "unknown" if incident.outcome == "recovered" else formats.UNKNOWN
    work = f", {incident.seconds_lost:.1f} s" if incident.seconds_lost else ""
    return f"{incident.steps_lost} {'step' if incident.steps_lost == 1 else 'steps'}{work}"
