"""torchrun's command line, as `paceline run` reads it. Pure: words in, a frozen `Launch` out.

The options are those of `torch/distributed/run.py` in torch 2.13, with dashes or underscores, shortened as argparse allows, and preset by
`PET_*` variables. Each is honoured, done by Paceline itself, without effect (a note says so), or refused with the way out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from paceline.cli.errors import UsageProblem

MOST_RESTARTS = 1000
LONGEST_GRACE_SECONDS = 3600
PRESET = "PET_"
#: Forms of --nproc-per-node that ask for as many ranks as a node has slots.
DEVICES = ("auto", "cpu", "gpu", "xpu")
_SCRIPT_LAST = "write: paceline run [OPTIONS] SCRIPT [ARGUMENTS OF THE SCRIPT]"


class Treatment(Enum):
    """How `paceline run` handles an option of torchrun."""

    HONOURED = "honoured"
    OURS = "done by Paceline itself, as the one note about all of these says"
    NO_EFFECT = "accepted, with a note on what is lost"
    FILES = "asks for log files of each rank, which a coordinator that stays has by itself"
    REFUSED = "refused, because the script would behave otherwise"


@dataclass(frozen=True)
class Option:
    name: str
    treatment: Treatment
    why: str = ""  # NO_EFFECT: the note; REFUSED: the reason and the way out
    short: str = ""
    is_flag: bool = False
    default: str = ""  # a value that asks for nothing

    @property
    def spellings(self) -> tuple[str, ...]:
        long = f"--{self.name}"
        return (long, long.replace("-", "_").replace("__", "--", 1), *((self.short,) if self.short else ()))

    @property
    def variable(self) -> str:
        return PRESET + self.name.replace("-", "_").upper()


_HONOURED, _OURS, _NO_EFFECT, _FILES, _REFUSED = Treatment

OPTIONS = (
    Option("nnodes", _HONOURED),
    Option("nproc-per-node", _HONOURED),
    Option("max-restarts", _HONOURED),
    Option("module", _HONOURED, short="-m", is_flag=True),
    Option("no-python", _HONOURED, is_flag=True),
    Option("run-path", _HONOURED, is_flag=True),
    Option("local-ranks-filter", _HONOURED),
    Option("node-rank", _HONOURED, default="0"),
    Option("rdzv-backend", _OURS),
    Option("rdzv-endpoint", _OURS),
    Option("rdzv-id", _OURS),
    Option("rdzv-conf", _OURS),
    Option("standalone", _OURS, is_flag=True),
    Option("master-addr", _OURS),
    Option("master-port", _OURS),
    Option("local-addr", _OURS),
    Option("monitor-interval", _OURS),
    Option("start-method", _OURS),
    Option("signals-to-handle", _NO_EFFECT, "ranks are always ended with SIGTERM"),
    Option("shutdown-timeout", _HONOURED),
    Option("virtual-local-rank", _HONOURED, is_flag=True),
    Option("event-log-handler", _NO_EFFECT, "'paceline show JOB' has the history of a job", default="null"),
    Option("numa-binding", _NO_EFFECT, "ranks are not bound to CPUs; bind them in the script where it matters"),
    Option("role", _NO_EFFECT, "ROLE_NAME is 'default' for every rank", default="default"),
    Option("log-dir", _FILES),
    Option("redirects", _FILES, short="-r", default="0"),
    Option("tee", _FILES, short="-t", default="0"),
    Option("duplicate-stdout-filters", _FILES),
    Option("duplicate-stderr-filters", _FILES),
    Option("logs-specs", _REFUSED, "Paceline keeps the logs itself and loads no plugin for them; leave it out"),
)
_BY_SPELLING = {spelling: option for option in OPTIONS for spelling in option.spellings}


@dataclass(frozen=True)
class Launch:
    """A parsed command line: the ranks to launch, and their program."""

    form: Literal["path", "module", "command"]
    target: str  # a file, a module or a program
    arguments: tuple[str, ...]
    nodes: int = 1
    min_nodes: int | None = None  # it starts with as few; None: with `nodes` and nothing less
    ranks_per_node: int | str = 1  # a number, or one of DEVICES
    max_restarts: int = 0
    grace_seconds: int | None = None  # between SIGTERM and SIGKILL; None: as torchrun's own default
    virtual_local_rank: bool = False
    local_ranks: tuple[int, ...] = ()  # the ranks with printed output; empty: all
    log_files: tuple[str, ...] = ()  # options that ask for files, as they were typed
    notes: tuple[str, ...] = ()

    @property
    def fewest_nodes(self) -> int:
        return self.min_nodes or self.nodes


def divide(words: Sequence[str], own: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """Separate Paceline's own options from torchrun's words. `own` says of each spelling whether it is a flag.

    The script ends the options; `--` ends Paceline's own ones, and is dropped."""
    mine: list[str] = []
    left = list(words)
    launcher: list[str] = []
    while left and _is_option(left[0]) and left[0] != "--":
        word = left[0]
        is_own = word.partition("=")[0] in own
        is_flag = own[word.partition("=")[0]] if is_own else _takes_no_word(word)
        taken = 1 if is_flag or "=" in word else 2
        (mine if is_own else launcher).extend(left[:taken])
        left = left[taken:]
    return mine, launcher + (left[1:] if left[:1] == ["--"] else left)


def parse(words: Sequence[str], variables: Mapping[str, str] | None = None) -> Launch:
    """Read torchrun's words. `variables`: the environment, of which `PET_*` presets options. Raises UsageProblem."""
    given = _preset(variables or {})
    left = list(words)
    while left and _is_option(left[0]):
        word = left.pop(0)
        if word == "--":
            break
        option, value = _option(word)
        if value is None:
            value = "1" if option.is_flag else _value(word, left)
        given[option.name] = (word.partition("=")[0], value)
    if not left or not left[0]:
        raise UsageProblem("there is no script to run", _SCRIPT_LAST)
    return _launch(given, left[0], tuple(left[1:]))


#: By the option's name: how it was spelled, and its value. A flag that is set has the value 1.
_Given = dict[str, tuple[str, str]]


def _launch(given: _Given, target: str, arguments: tuple[str, ...]) -> Launch:
    _refuse(given)
    form: Literal["path", "module", "command"] = "path"
    if "run-path" not in given:
        form = "module" if "module" in given else "command" if "no-python" in given else "path"
    if "module" in given and "no-python" in given:
        raise UsageProblem("--module and --no-python rule each other out", "use --module for a Python module, --no-python for a program")
    least, most = _nodes(given)
    return Launch(
        form,
        target,
        arguments,
        nodes=most,
        min_nodes=least if least < most else None,
        ranks_per_node=_ranks_per_node(given),
        max_restarts=_whole(given, "max-restarts", 0, at_least=0, at_most=MOST_RESTARTS),
        grace_seconds=_grace(given),
        virtual_local_rank="virtual-local-rank" in given,
        local_ranks=_local_ranks(given),
        log_files=tuple(spelled for _, spelled in _with_treatment(given, Treatment.FILES)),
        notes=tuple(_notes(given)),
    )


def _refuse(given: _Given) -> None:
    for option, spelled in _with_treatment(given, Treatment.REFUSED):
        raise UsageProblem(f"{spelled} cannot be honoured: {option.why}")
    if (rank := _whole(given, "node-rank", 0, at_least=0)) > 0:
        raise UsageProblem(
            f"{given['node-rank'][0]}={rank}: 'paceline run' starts the ranks of all nodes, and a second one would train a second time",
            "type it once, on one machine; the nodes are those where 'paceline worker' runs",
        )


def _notes(given: _Given) -> Iterator[str]:
    ours = [spelled for _, spelled in _with_treatment(given, Treatment.OURS)]
    if "node-rank" in given:
        ours.append(given["node-rank"][0])
    if ours:
        yield f"note: {', '.join(ours)}: not needed, Paceline brings the ranks together by itself"
    for option, spelled in _with_treatment(given, Treatment.NO_EFFECT):
        yield f"note: {spelled} has no effect: {option.why}"


def _with_treatment(given: _Given, treatment: Treatment) -> list[tuple[Option, str]]:
    """The options of this treatment that are set, with their spelling."""
    found = [(_BY_SPELLING[f"--{name}"], spelled, value) for name, (spelled, value) in given.items()]
    return [(option, spelled) for option, spelled, value in found if option.treatment is treatment and value != option.default]


def _nodes(given: _Given) -> tuple[int, int]:
    """(the fewest nodes, the most nodes)."""
    spelled, text = given.get("nnodes", ("--nnodes", "1"))
    try:
        counts = [int(part) for part in text.split(":")]
    except ValueError:
        counts = []
    if len(counts) not in (1, 2) or min(counts) < 1:
        raise UsageProblem(f"{spelled}={text} is neither a number of nodes nor MIN:MAX", "write for example --nnodes 2 or --nnodes 1:4")
    if counts[0] > counts[-1]:
        raise UsageProblem(f"{spelled}={text}: the fewest nodes are more than the most", f"write --nnodes {counts[-1]}:{counts[0]}")
    return counts[0], counts[-1]


def _grace(given: _Given) -> int | None:
    if "shutdown-timeout" not in given:
        return None
    return _whole(given, "shutdown-timeout", 30, at_least=1, at_most=LONGEST_GRACE_SECONDS)


def _ranks_per_node(given: _Given) -> int | str:
    spelled, text = given.get("nproc-per-node", ("--nproc-per-node", "1"))
    if text in DEVICES:
        return text
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise UsageProblem(f"{spelled}={text} is neither a number from 1 up nor one of {', '.join(DEVICES)}", "write for example 2")
    return count


def _local_ranks(given: _Given) -> tuple[int, ...]:
    spelled, text = given.get("local-ranks-filter", ("", ""))
    try:
        return tuple(sorted({int(part) for part in text.split(",")})) if text else ()
    except ValueError:
        raise UsageProblem(f"{spelled}={text} is no list of ranks", "write for example --local-ranks-filter 0,1") from None


def _whole(given: _Given, name: str, default: int, *, at_least: int, at_most: int | None = None) -> int:
    if name not in given:
        return default
    spelled, text = given[name]
    try:
        number = int(text)
    except ValueError:
        raise UsageProblem(f"{spelled}={text} is no whole number", f"write for example {spelled} {default}") from None
    if number < at_least or (at_most is not None and number > at_most):
        limits = f"{at_least} or more" if at_most is None else f"from {at_least} to {at_most}"
        raise UsageProblem(f"{spelled}={text} is out of range; give a number {limits}")
    return number


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _takes_no_word(word: str) -> bool:
    """Whether the word stands alone: a flag, an option with its value, or an unknown one."""
    try:
        option, value = _option(word)
    except UsageProblem:
        return True
    return option.is_flag or value is not None


def _option(word: str) -> tuple[Option, str | None]:
    """The option that a word names, and the value that is part of the word."""
    spelled, equals, value = word.partition("=")
    option = _BY_SPELLING.get(spelled) or _shortened(spelled)
    if option is not None:
        if option.is_flag and equals:
            raise UsageProblem(f"{word}: {spelled} takes no value", f"write {spelled}")
        return option, value if equals else None
    short = _BY_SPELLING.get(word[:2])
    if short is not None and not word.startswith("--") and not short.is_flag:
        return short, word[2:]
    raise UsageProblem(f"{spelled} is no option of torchrun or of 'paceline run'", _way_out(spelled))


def _shortened(spelled: str) -> Option | None:
    """The option of which only the beginning was typed, where it can be but one."""
    if not spelled.startswith("--"):
        return None
    found = {option.name: option for name, option in _BY_SPELLING.items() if name.startswith(spelled)}
    return next(iter(found.values())) if len(found) == 1 else None


def _way_out(spelled: str) -> str:
    near = difflib.get_close_matches(spelled.replace("_", "-"), [f"--{option.name}" for option in OPTIONS], n=1)
    script = "options of the script stand behind it: paceline run [OPTIONS] SCRIPT [ARGUMENTS OF THE SCRIPT]"
    return f"did you mean {near[0]}? {script}" if near else script


def _value(spelled: str, left: list[str]) -> str:
    """The next word, which becomes the option's value."""
    if not left or (left[0].startswith("-") and not _is_number(left[0])):
        raise UsageProblem(f"{spelled} has no value", f"write {spelled} VALUE")
    return left.pop(0)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _preset(variables: Mapping[str, str]) -> _Given:
    """Options by their variables, as torchrun reads them: a flag is set by a number other than 0."""
    found: _Given = {}
    for option in OPTIONS:
        value = variables.get(option.variable)
        if value is not None and not (option.is_flag and value.strip() in ("", "0")):
            found[option.name] = (option.variable, value)
    return found
