"""Uncaught exceptions in the output of a script, as Python, torch and launchers print them."""

from __future__ import annotations

import pytest

from paceline.cluster.agent.ranks.tracebacks import MOST_OF_A_MESSAGE, NEAR, last_words, uncaught, without_traceback
from paceline.training.reporting.users_code import innermost

TRACEBACK = ("Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "    main()", "    ~~~~^^")
#: As torch words what a DataLoader's worker raised.
CARRIED = ("IndexError: Caught IndexError in DataLoader worker process 0.", "Original Traceback (most recent call last):")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((*TRACEBACK, "ValueError: no column 'y': see --help"), ("ValueError", "no column 'y': see --help")),
        ((*TRACEBACK, "KeyboardInterrupt"), ("KeyboardInterrupt", "")),
        ((*TRACEBACK, "shop.errors.OutOfStock: 3 left", "[W1128 10:00:00.1 x.cpp:15] not destroyed"), ("shop.errors.OutOfStock", "3 left")),
        ((*TRACEBACK, "KeyError: 'a'", "", "During handling ...", "", *TRACEBACK, "OSError: full"), ("OSError", "full")),
        ((*TRACEBACK[1:], "ValueError: the top has scrolled away"), ("ValueError", "the top has scrolled away")),
        ((*TRACEBACK, *CARRIED, *TRACEBACK[1:], "IndexError: 0 is broken"), ("IndexError", "0 is broken (in DataLoader worker process 0)")),
        ((*TRACEBACK, *CARRIED, *TRACEBACK[1:], "IndexError: 0", *TRACEBACK, "OSError: full"), ("OSError", "full")),
        ((*TRACEBACK, "ValueError: caught, and long ago", *["step"] * NEAR), None),
        (TRACEBACK, None),
        (("epoch 3", "Loss: 0.5"), None),
        ((), None),
    ],
)
def test_a_tracebacks_exception_is_found_in_the_output(lines: tuple[str, ...], found: tuple[str, str] | None) -> None:
    told = uncaught(lines)
    assert (None if told is None else (told.exception, told.message)) == found


#: As torchrun of torch 2.13 prints them, shortened.
TORCHRUN = """W1128 10:00:00 torch/distributed/elastic/multiprocessing/api.py:1010] Sending process 12 closing signal SIGTERM
E1128 10:00:00 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1) local_rank: 1 (pid: 13) of binary: /v/bin/python
Traceback (most recent call last):
  File "/v/bin/torchrun", line 6, in <module>
    sys.exit(main())
             ^^^^^^
  File "/v/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 357, in wrapper
    return f(*args, **kwargs)
  File "/v/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 300, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_10:00:00
  host      : vm
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 13)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================""".splitlines()
ACCELERATE = """Traceback (most recent call last):
  File "/v/bin/accelerate", line 6, in <module>
    sys.exit(main())
  File "/v/lib/python3.11/site-packages/accelerate/commands/launch.py", line 800, in simple_launcher
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
subprocess.CalledProcessError: Command '['/v/bin/python', 'train.py']' returned non-zero exit status 1.""".splitlines()
USERS = ("Traceback (most recent call last):", '  File "/w/train.py", line 22, in loss', '    raise ValueError("labels out of range")')
LOST = ("Traceback (most recent call last):", '  File "/w/train.py", line 30, in <module>', "    work.wait()")
CLOSED = "RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:6259"


def of_rank(rank: int, *lines: str) -> list[str]:
    return [f"[rank{rank}]: {line}" for line in lines]


RAISED = (*USERS, "ValueError: labels out of range")


@pytest.mark.parametrize(
    "lines",
    [
        [*of_rank(1, *RAISED), *TORCHRUN],
        [*of_rank(1, *RAISED), *TORCHRUN[:-1], *["  [1]: another one"] * NEAR],
        [*of_rank(0, *LOST, CLOSED), *of_rank(1, *RAISED), *TORCHRUN],  # it is told that it lost rank 1, and comes first
        [line for pair in zip(of_rank(0, *LOST, CLOSED), of_rank(1, *RAISED), strict=True) for line in pair] + TORCHRUN,
        [*RAISED, *ACCELERATE],
        [*of_rank(1, *RAISED), *TORCHRUN, *ACCELERATE],
        [f"[default1]:{line}" for line in of_rank(1, *RAISED)] + TORCHRUN,
    ],
    ids=["torchrun", "its long table", "two ranks", "in turns", "accelerate", "one in the other", "tee"],
)
def test_what_a_launchers_worker_raised_is_told_and_not_that_it_failed(lines: list[str]) -> None:
    """It was told as `ChildFailedError (torchrun:6)`."""
    found = uncaught(lines)
    assert found is not None
    assert (found.exception, found.message) == ("ValueError", "labels out of range")
    assert innermost(found.traceback) == "loss in train.py:22"


def test_a_launcher_whose_worker_said_nothing_speaks_for_itself() -> None:
    found = uncaught(["step 3", *ACCELERATE])
    assert found is not None
    assert found.exception == "subprocess.CalledProcessError"


def test_a_program_of_the_users_that_another_one_fails_is_no_launcher() -> None:
    own = ("Traceback (most recent call last):", '  File "/w/train.py", line 3, in fetch', "    subprocess.run(['aws'], check=True)")
    found = uncaught([*RAISED, *own, "subprocess.CalledProcessError: Command '['aws']' returned non-zero exit status 1."])
    assert found is not None
    assert found.exception == "subprocess.CalledProcessError"


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/w/f.py", line 44, in <module>
  |     raise ExceptionGroup("many", [error, TypeError("b")])
  | ExceptionGroup: many (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/w/f.py", line 12, in load
    |     raise ValueError("a")
    | ValueError: a
    +---------------- 2 ----------------
    | TypeError: b
    +------------------------------------""".splitlines()


@pytest.mark.parametrize("lines", [GROUP, of_rank(1, *GROUP), [*TRACEBACK, "KeyError: 'caught'", *GROUP]])
def test_an_exception_group_names_its_members(lines: list[str]) -> None:
    """A rank in a new interpreter has only its output: it was told as "exited with code 1"."""
    found = uncaught(lines)
    assert found is not None
    assert (found.exception, found.message) == ("ExceptionGroup", "many (2 sub-exceptions): ValueError: a; TypeError: b")
    assert innermost(found.traceback) == "load in f.py:12"


#: As torch words a checkpoint that does not fit its model.
MISFIT = (
    "RuntimeError: Error(s) in loading state_dict for Net:",
    '\tMissing key(s) in state_dict: "head.weight". ',
    "\tsize mismatch for body.weight",
)
MESSAGE = "\n".join(MISFIT).removeprefix("RuntimeError: ")
AT_EXIT = (
    "[rank1]:[W1128 10:00:00.1 ProcessGroupNCCL.cpp:15] Warning: not destroyed",
    "terminate called without an active exception",
    "Exception ignored in: <_io.TextIOWrapper name='<stdout>'>",
    "/v/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: leaked semaphore objects",
)


@pytest.mark.parametrize("rank", ["", "[rank1]: ", "[default1]:[rank1]: "])
@pytest.mark.parametrize("after", [(), ("", "saved nothing"), *((line,) for line in AT_EXIT)])
def test_a_message_of_several_lines_is_told_whole(rank: str, after: tuple[str, ...]) -> None:
    """A rank in a new interpreter was told the first line alone, without the one that has the cause."""
    found = uncaught([*(rank + line for line in [*TRACEBACK, *MISFIT]), *after])
    assert found is not None
    assert found.message == MESSAGE
    assert found.traceback.splitlines() == [*TRACEBACK, *MISFIT]


def test_what_comes_after_a_message_is_none_of_it() -> None:
    """Torch's rank before each line shows where a message ends, also with an empty line in it."""
    of_two = uncaught([*of_rank(1, *TRACEBACK, "ValueError: first"), "", *of_rank(1, "last"), "", "saving", *of_rank(2, "another")])
    assert of_two is not None
    assert of_two.message == "first\n\nlast"
    long = uncaught([*TRACEBACK, "ValueError: 0", *map(str, range(1, 25))])
    assert long is not None
    assert long.message.splitlines() == [str(number) for number in range(MOST_OF_A_MESSAGE)]


def test_what_torch_logs_at_exit_is_nobodys_last_word() -> None:
    assert last_words(["no data", "", "[rank1]:[W1128 10:00:00.1 ProcessGroupNCCL.cpp:15] Warning: not destroyed"]) == "no data"
    assert last_words(["", "[E1128 10:00:00.1 x.cpp:15] x"]) == ""


#: As torch's `record` writes it down: from its own frame on.
RECORDED = """Traceback (most recent call last):
  File "/site-packages/torch/errors/__init__.py", line 367, in wrapper
    return f(*args, **kwargs)
  File "train.py", line 9, in main
    step(3)
KeyError: 'yyy'"""


@pytest.mark.parametrize("rank", ["", "[rank0]: ", "[default0]:[rank0]: "])
def test_a_traceback_that_is_told_apart_is_left_out_of_the_output(rank: str) -> None:
    """`show` had it twice: Python prints the frames that led to `record` before those that it writes down."""
    header, *frames = RECORDED.splitlines()
    printed = [header, '  File "train.py", line 10, in <module>', "    main()", *frames]
    lines = ["loading", *(rank + line for line in printed), "", "[W] process group was not destroyed"]
    assert without_traceback(lines, RECORDED + "\n") == ["loading", "[W] process group was not destroyed"]
    assert without_traceback(["loading", *(rank + line for line in frames), "bye"], RECORDED) == [
        "loading",
        "bye",
    ]  # its top has scrolled away
    for other in ("", "KeyError: 'yyy'", RECORDED.replace("step(3)", "step(4)")):
        assert without_traceback(lines, other) == lines
