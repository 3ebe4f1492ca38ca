"""The uncaught exception of a script, read from the last lines of its output: by its traceback, as Python, torch and launchers print one. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.training.reporting.lost_peers import is_lost_peer
from paceline.training.reporting.users_code import innermost, raised_in

#: In so many last lines an exception is looked for; a launcher prints some thirty after that of its worker.
NEAR, FAR = 30, 400
MOST_OF_A_MESSAGE = 20  # lines
_HEADER = "Traceback (most recent call last):"
_FRAME = re.compile(r'^  File ".*", line \d+')
#: What torch puts before each line of a traceback once there is a process group, and torchrun's `--tee` before each line.
_OF_RANK = re.compile(r"(?P<rank>(?:\[default\d+\]:)?(?:\[rank\d+\]: ?)?)(?P<line>.*)", re.DOTALL)
#: What torch puts before the traceback of a DataLoader's worker, within the message of what it raises for it.
_CARRIED = re.compile(r"^.*\bCaught \w+ (?P<where>in .+)\.")
_RAISED = re.compile(r"^(?P<exception>[^\W\d]\w*(?:\.\w+)*)(?:: (?P<message>.*)|:)?")
#: An exception group begins so; its own lines stand behind `  | `, those of its members behind `    | `.
_GROUP = "+ Exception Group Traceback (most recent call last):"
_GROUPS_OWN, _MEMBERS_OWN = re.compile(r"^  \| (?P<line>\S.*)"), re.compile(r"^    \| (?P<line>\S.*)")
#: torchrun and accelerate raise these for a worker that has failed and printed why.
_OF_LAUNCHERS = frozenset({"ChildFailedError", "CalledProcessError"})
_OF_TORCHRUN = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"  # a table of all its workers follows
#: What the C++ of torch logs, as it does at exit.
_LOGGED = re.compile(r"^\[[IWEF]\d{4} ")
#: The frame that rich draws around a text, as typer does around what is wrong with an argument.
_BOX = " ─│╭╮╰╯"
#: What Python, torchrun and the C++ runtime print of themselves after a traceback, where a message of several lines would go on.
PRINTED_AFTER = re.compile(r"^(\[?[IWEF]\d{4} |terminate called |Fatal Python error: |Exception ignored |\S+:\d+: \w*Warning: )")


@dataclass(frozen=True)
class UncaughtException:
    exception: str  # its class, with the module
    message: str  # at most MOST_OF_A_MESSAGE lines
    traceback: str  # the lines up to its end, without what torch puts before each


def uncaught(lines: Sequence[str]) -> UncaughtException | None:
    """The last exception in a rank's output. Where a launcher only says that its worker has failed, the exception of the worker; of several
    workers' the first that did not merely lose another one."""
    far = [without_rank(line) for line in lines[-FAR:]]
    if any(line.startswith(("  | ", "    | ")) for line in far[-NEAR:]) and (group := _last_group(far)):
        return group
    found = _last(lines[-FAR:] if any(line.startswith(_OF_TORCHRUN) for line in far) else lines[-NEAR:])
    if found is None or not _is_launchers(found):
        return found
    streams: dict[str, list[str]] = {}
    for line in lines[-FAR:]:
        if (split := _OF_RANK.fullmatch(line)) is not None:
            streams.setdefault(split["rank"], []).append(split["line"])
    workers = [worker for stream in streams.values() if (worker := _of_worker(stream)) is not None]
    own = [worker for worker in workers if not is_lost_peer(worker.exception, worker.message, raised_in(worker.traceback), 2)]
    return next(iter(own or workers), found)


def without_rank(line: str) -> str:
    """A line without the rank that torch or torchrun puts before it."""
    split = _OF_RANK.fullmatch(line)
    return split["line"] if split is not None else line


def without_traceback(lines: Sequence[str], traceback: str) -> list[str]:
    """Return the lines of a rank's output without the last one that shows `traceback`, also with a rank before each line, and with frames before
    those of `traceback`: torch's `record` catches an exception on its way to where Python prints it."""
    plain, frames = [without_rank(line) for line in lines], traceback.strip().splitlines()[1:]
    for begin in range(len(plain) - len(frames), 0, -1) if frames else ():
        if plain[begin : begin + len(frames)] == frames:
            header = begin - 1
            while header > 0 and plain[header].startswith("  "):
                header -= 1
            after = begin + len(frames)
            while after < len(plain) and not plain[after]:
                after += 1
            return [*lines[: header if plain[header] == _HEADER else begin], *lines[after:]]
    return list(lines)


def last_words(lines: Sequence[str]) -> str:
    """The last line of a rank's output that it may have meant as the reason of its end: not what torch logs at exit. Empty where there is none."""
    plain = (without_rank(line).strip().strip(_BOX) for line in reversed(lines))
    return next((line for line in plain if line and not _LOGGED.match(line)), "")


def _is_launchers(found: UncaughtException) -> bool:
    """Whether a launcher has raised the exception, and not a program that runs another one by itself."""
    name = found.exception.rpartition(".")[2]
    return name in _OF_LAUNCHERS and not innermost(found.traceback.rpartition(_HEADER)[2])


def _of_worker(stream: Sequence[str]) -> UncaughtException | None:
    """The last exception of a stream of lines that no launcher has raised."""
    lines = list(stream)
    while (found := _last(lines)) is not None and _is_launchers(found):
        begins = [number for number, line in enumerate(lines) if line == _HEADER]
        if not begins:
            return None
        lines = lines[: begins[-1]]
    return found


def _last(lines: Sequence[str]) -> UncaughtException | None:
    """The exception of the last traceback: the first line after its frames that is not indented, and those by which its message goes on."""
    plain = [without_rank(line) for line in lines]
    frames = [number for number, line in enumerate(plain) if _FRAME.match(line)]
    if not frames:
        return None
    after = ((number, line) for number, line in enumerate(plain) if number > frames[-1] and line and not line[0].isspace())
    number, line = next(after, (0, ""))
    found = _RAISED.fullmatch(line)
    if found is None:
        return None
    more = [] if found["exception"].rpartition(".")[2] in _OF_LAUNCHERS else _rest_of_message(lines[number:])
    first = f"{(found['message'] or '').strip()}{_carried_from(plain[: frames[-1]])}"
    return UncaughtException(found["exception"], "\n".join([first, *more]).strip(), "\n".join([*plain[: number + 1], *more]))


def _rest_of_message(lines: Sequence[str]) -> list[str]:
    """The lines after the first one by which an exception's message goes on. Where torch has put the rank before the first line, these are the lines
    with the same, and empty ones. Elsewhere nothing tells them from what the process printed afterwards: they end at an empty line, and at what is
    known to be printed at exit."""
    rank = _rank_before(lines[0])
    more: list[str] = []
    for line in lines[1:MOST_OF_A_MESSAGE]:
        plain = without_rank(line)
        if PRINTED_AFTER.match(plain) or (not line if not rank else line and _rank_before(line) != rank):
            break
        more.append(plain)
    while more and not more[-1]:
        more.pop()
    return more


def _rank_before(line: str) -> str:
    split = _OF_RANK.fullmatch(line)
    return split["rank"] if split is not None else ""


def _carried_from(before: Sequence[str]) -> str:
    """The text ` (in DataLoader worker process 0)` where torch has carried the last traceback in these lines over from that process."""
    begins = [number for number, line in enumerate(before) if line.endswith(_HEADER)]
    if not begins or not before[begins[-1]].startswith("Original ") or begins[-1] == 0:
        return ""
    found = _CARRIED.fullmatch(before[begins[-1] - 1])
    return f" ({found['where']})" if found else ""


def _last_group(plain: Sequence[str]) -> UncaughtException | None:
    """The last exception group, in whose message its members are named."""
    begins = [number for number, line in enumerate(plain) if line.strip() == _GROUP]
    if not begins:
        return None
    lines = plain[begins[-1] :]
    own = next((found for line in lines[1:] if (split := _GROUPS_OWN.match(line)) and (found := _RAISED.fullmatch(split["line"]))), None)
    if own is None:
        return None
    members: list[str] = []
    is_next = False
    for line in lines:
        split = _MEMBERS_OWN.match(line)
        if "+---" in line or "+-+-" in line:
            is_next = True
        elif is_next and split is not None and _RAISED.fullmatch(split["line"]) and not split["line"].endswith("(most recent call last):"):
            members.append(split["line"])
            is_next = False
    return UncaughtException(own["exception"], f"{own['message'] or ''}: {'; '.join(members)}", "\n".join(lines))
