from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from paceline.cluster.agent.ranks.exits import LAST_LINES, conclude, last_lines, read_exit_cause
from paceline.cluster.agent.spawner_link import ExitStatus
from paceline.cluster.policy.failures import left_early
from paceline.training.link import FailureReport, RankPlace, Result
from paceline.training.rank_folder import RankFolder
from tests.cluster.agent.conftest import world

LINES = ("one", "two")


def place(rank: int, *, ranks: int = 4) -> RankPlace:
    return world("job1", rank, ranks)


def status(exit_code: int | None = None, signal: str | None = None, *, out_of_memory: bool = False) -> ExitStatus:
    return ExitStatus(pid=7, exit_code=exit_code, signal=signal, time=100.0, out_of_memory=out_of_memory)


@pytest.mark.parametrize(
    ("exit_status", "kind", "message"),
    [
        (status(3), "exit", "exited with code 3"),
        (status(0), "exit", "exited with code 0 before it had finished"),
        (status(signal="SIGSEGV"), "signal", "killed by SIGSEGV"),
        (status(signal="SIGKILL", out_of_memory=True), "out_of_memory", "killed by SIGKILL: the kernel's out-of-memory killer"),
        (status(), "exit", "could not be started"),
    ],
)
def test_a_rank_without_a_last_word_is_spoken_for(exit_status: ExitStatus, kind: str, message: str) -> None:
    ending = conclude(exit_status, None, LINES, place(2), is_script=False, step=40)
    assert ending.outcome == "failed"
    assert ending.failure is not None
    assert (ending.failure.kind, ending.failure.rank, ending.failure.step, ending.failure.last_lines) == (kind, 2, 40, LINES)
    assert ending.failure.message.startswith(message)
    assert (ending.exit_code, ending.signal) == (exit_status.exit_code, exit_status.signal)


def test_a_scripts_exit_code_is_its_last_word() -> None:
    assert conclude(status(0), None, LINES, place(0), is_script=True, step=0).outcome == "completed"
    assert conclude(status(1), None, LINES, place(0), is_script=True, step=0).outcome == "failed"


def test_a_damaged_exit_status_is_set_aside_and_the_rank_has_ended_all_the_same(tmp_path: Path) -> None:
    folder = RankFolder.at(tmp_path)
    folder.exit_status.write_bytes(b'{"pid": 7, "exit_co')
    for _ in range(2):
        ending = read_exit_cause(folder, (), place(2), is_script=False, step=40)
        assert ending is not None
        assert ending.failure is not None
        assert ending.failure.message.startswith("ended, and how was lost")
    assert (tmp_path / "exit.json.damaged").read_bytes() == b'{"pid": 7, "exit_co'
    folder.result.write_bytes(msgspec.json.encode(Result(outcome="completed", step=50)))
    ending = read_exit_cause(folder, (), place(2), is_script=False, step=40)
    assert ending is not None
    assert (ending.outcome, ending.step) == ("completed", 50)


TRACEBACK = ("Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "    main()", "    ~~~~^^")


def test_an_uncaught_exception_of_a_script_is_not_called_exited_with_code_1() -> None:
    lines = (*TRACEBACK, "ValueError: no column 'y'")
    failure = conclude(status(1), None, lines, place(1), is_script=True, step=0).failure
    assert failure is not None
    assert (failure.kind, failure.exception, failure.message) == ("exception", "ValueError", "no column 'y'")
    other = conclude(status(3), None, lines, place(1), is_script=True, step=0).failure
    assert other is not None
    assert (other.kind, other.message) == ("exit", "exited with code 3")


def of_rank(lines: tuple[str, ...]) -> tuple[str, ...]:
    """As torch prints a traceback once there is a process group."""
    return tuple(f"[rank1]: {line}" for line in lines)


def script_failure(exit_status: ExitStatus, lines: tuple[str, ...]) -> FailureReport:
    failure = conclude(exit_status, None, lines, place(1), is_script=True, step=0).failure
    assert failure is not None
    return failure


def test_an_exception_in_a_process_group_is_told_by_name_and_line() -> None:
    """torch puts `[rank1]: ` before each line of it: it was told as "exited with code 1"."""
    failure = script_failure(status(1), (*of_rank((*TRACEBACK, "ValueError: labels out of range")), "[W] process group was not destroyed"))
    assert (failure.kind, failure.exception, failure.message) == ("exception", "ValueError", "labels out of range")
    assert failure.where == "train.py:3"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:6259", "peer_lost"),
        ("torch.distributed.DistBackendError: NCCL error: remote process exited; NCCL remote error", "peer_lost"),
        ("torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.", "peer_lost"),
        ("RuntimeError: [enforce fail at gloo/context.cc:23] rank < size. 2 vs 2", "exception"),
        ("ValueError: Connection closed by peer", "exception"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "out_of_memory"),
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried", "out_of_memory"),
        ("MemoryError", "out_of_memory"),
        ("torch.AcceleratorError: CUDA error: out of memory", "out_of_memory"),
        ("torch.distributed.DistBackendError: NCCL error, unhandled cuda error: Cuda failure 2 'out of memory'", "out_of_memory"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "out_of_memory"),
        ("RuntimeError: unable to allocate shared memory(shm) for file </torch_7_1_0>: Success (0)", "out_of_memory"),
        ("RuntimeError: unable to write to file </torch_7_1_0>: No space left on device (28)", "out_of_memory"),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. They may be out of shared memory.", "out_of_memory"),
        ("torch.AcceleratorError: CUDA error: device-side assert triggered", "exception"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 4.00 GiB for an array", "out_of_memory"),
        ("OSError: [Errno 12] Cannot allocate memory", "out_of_memory"),
        ("OSError: [Errno 28] No space left on device", "exception"),
        ("RuntimeError: DataLoader worker (pid 123) is killed by signal: Killed. ", "out_of_memory"),
        ("RuntimeError: DataLoader worker (pid 123) is killed by signal: Segmentation fault. ", "exception"),
    ],
)
def test_what_kind_of_failure_an_exception_is(line: str, kind: str) -> None:
    assert script_failure(status(1), of_rank((*TRACEBACK, line))).kind == kind


@pytest.mark.parametrize(
    "line",
    [
        "requests.exceptions.ConnectionError: HTTPConnectionPool(host='x', port=9): Connection refused",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "RuntimeError: Timed out waiting for lock",
    ],
)
def test_a_server_of_the_users_own_that_is_down_is_no_lost_rank(line: str) -> None:
    assert script_failure(status(1), of_rank((*TRACEBACK, line))).kind == "exception"


def test_a_rank_that_is_alone_has_lost_no_other_one() -> None:
    lines = (*TRACEBACK, "RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:6259")
    failure = conclude(status(1), None, lines, place(0, ranks=1), is_script=True, step=0).failure
    assert failure is not None
    assert failure.kind == "exception"


def test_a_rank_that_is_told_to_end_while_it_cleans_up_after_its_own_exception_is_no_victim() -> None:
    killed = msgspec.structs.replace(status(signal="SIGTERM"), ordered=True)
    own = script_failure(killed, of_rank((*TRACEBACK, "ValueError: bad sample")))
    assert (own.kind, own.message, own.signal) == ("exception", "bad sample", "SIGTERM")
    said_at_exit = script_failure(killed, (*of_rank((*TRACEBACK, "ValueError: bad sample")), "wandb: Synced 5 files"))
    assert (said_at_exit.kind, said_at_exit.message) == ("exception", "bad sample")
    went_on = script_failure(killed, (*TRACEBACK, "ValueError: bad sample", "step 8"))  # it caught the exception and printed it
    assert (went_on.kind, went_on.message) == ("signal", "killed by SIGTERM")


def test_a_crash_is_told_with_the_line_that_it_came_from() -> None:
    stack = ("Fatal Python error: Segmentation fault", "", "Current thread 0x1 (most recent call first):")
    frames = ('  File "/usr/lib/site-packages/torch/nn.py", line 9 in forward', '  File "/home/me/train.py", line 12 in step')
    assert script_failure(status(signal="SIGSEGV"), (*stack, *frames)).where == "step in train.py:12"


def test_an_exception_is_told_when_torch_aborts_the_interpreter_that_ends_because_of_it() -> None:
    raised = of_rank((*TRACEBACK, "ValueError: bad sample"))
    aborted = ("terminate called without an active exception", "Fatal Python error: Aborted", "", "Thread 0x1 (most recent call first):")
    end = script_failure(status(signal="SIGABRT"), (*raised, *aborted, "  <no Python frame>"))
    assert (end.kind, end.exception, end.message, end.signal) == ("exception", "ValueError", "bad sample", "SIGABRT")
    loader = ("", "Thread 0x2 (most recent call first):", '  File "/usr/lib/threading.py", line 327 in wait')
    assert script_failure(status(signal="SIGABRT"), (*raised, *aborted, "  <no Python frame>", *loader)).message == "bad sample"
    in_code = ('  File "/home/me/train.py", line 12 in step',)
    assert script_failure(status(signal="SIGABRT"), (*raised, "step 8", *aborted, *in_code)).message == "killed by SIGABRT"


def test_the_words_of_sys_exit_are_told_when_torch_aborts_the_interpreter_that_ends_with_them() -> None:
    """The rank was told to be killed by a signal, which it is now and then on a busy machine, and nothing of why it ended."""
    exiting = ("step 3", "config file missing: data.yaml", "terminate called without an active exception", *ABORTED)
    end = script_failure(status(signal="SIGABRT"), exiting)
    expected = "aborted by a thread of its own while it exited (SIGABRT); its last line: config file missing: data.yaml"
    assert (end.kind, end.message, end.signal) == ("exit", expected, "SIGABRT")
    assert script_failure(status(signal="SIGABRT"), ABORTED).message == "killed by SIGABRT"


@pytest.mark.parametrize("how", ["Killed. ", "Bus error. It is possible that dataloader's workers are out of shared memory."])
def test_the_end_of_a_dataloaders_worker_is_told_by_what_came_before(how: str) -> None:
    killed = (*TRACEBACK, f"RuntimeError: DataLoader worker (pid 12) is killed by signal: {how}", "", "The above exception was the", "")
    lines = (*killed, *TRACEBACK, "RuntimeError: DataLoader worker (pid(s) 12) exited unexpectedly")
    assert script_failure(status(1), lines).kind == "out_of_memory"
    assert script_failure(status(1), lines[len(killed) :]).kind == "exception"


WATCHDOG = (
    "[rank0]:[E1128 10:00:00.1 ProcessGroupNCCL.cpp:683] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6, "
    "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
    "terminate called after throwing an instance of 'c10::DistBackendError'",
    "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with exception: ...",
)
ABORTED = ("Fatal Python error: Aborted", "", "Thread 0x1 (most recent call first):", "  <no Python frame>")


def test_a_rank_that_nccls_watchdog_ended_is_a_victim() -> None:
    """After an early exit with 0 of another rank it was blamed for a crash of its own."""
    ended = script_failure(status(signal="SIGABRT"), (*WATCHDOG, *ABORTED))
    assert (ended.kind, ended.signal) == ("peer_lost", "SIGABRT")
    assert left_early([ended], [0]) == 0
    assert script_failure(status(signal="SIGSEGV"), (*WATCHDOG, *ABORTED)).kind == "signal"
    alone = conclude(status(signal="SIGABRT"), None, (*WATCHDOG, *ABORTED), place(0, ranks=1), is_script=True, step=0).failure
    assert alone is not None
    assert alone.kind == "signal"


def test_an_error_of_its_own_card_that_the_watchdog_meets_is_its_own() -> None:
    own = "[rank1]:[E1128 10:00:00.1 ProcessGroupNCCL.cpp:1] Process group watchdog thread terminated with exception: CUDA error: illegal access"
    assert script_failure(status(signal="SIGABRT"), (own, *ABORTED)).kind == "signal"


def test_the_words_of_sys_exit_are_told() -> None:
    """In a new interpreter nothing but the output has them."""
    lines = ("step 3", "config file missing: data.yaml", "[rank1]:[W1128 10:00:00.1 ProcessGroupNCCL.cpp:15] Warning: not destroyed")
    assert script_failure(status(1), lines).message == "exited with code 1; its last line: config file missing: data.yaml"
    assert script_failure(status(3), lines).message == "exited with code 3"


def test_what_is_wrong_with_an_argument_is_told() -> None:
    """It was told as "exited with code 2"."""
    usage = ("usage: train.py [-h] [--lr LR]", "train.py: error: unrecognized arguments: --learning-rate 0.1")
    assert script_failure(status(2), usage).message == f"exited with code 2; its last line: {usage[-1]}"
    of_typer = ("Usage: train.py [OPTIONS]", "╭─ Error ──────────────╮", "│ No such option: --l  │", "╰──────────────────────╯")
    assert script_failure(status(2), of_typer).message == "exited with code 2; its last line: No such option: --l"


def test_only_the_last_lines_of_a_long_output_are_kept() -> None:
    lines = tuple(f"line {number}" for number in range(100))
    assert script_failure(status(3), lines).last_lines == lines[-LAST_LINES:]


def recorded(folder: RankFolder, content: bytes) -> FailureReport:
    folder.error.write_bytes(content)
    folder.exit_status.write_bytes(msgspec.json.encode(status(1)))
    ending = read_exit_cause(folder, (), place(1), is_script=True, step=7)
    assert ending is not None
    assert ending.failure is not None
    return ending.failure


def test_what_torchs_record_has_written_is_the_failure(tmp_path: Path) -> None:
    text = "\n".join((*TRACEBACK, "ValueError: bad: sample"))
    about = {"message": "ValueError: bad: sample", "extraInfo": {"py_callstack": text, "timestamp": "1700000000"}}
    failure = recorded(RankFolder.at(tmp_path), msgspec.json.encode({"message": about}))
    assert (failure.kind, failure.exception, failure.message) == ("exception", "ValueError", "bad: sample")
    assert (failure.where, failure.time, failure.traceback) == ("train.py:3", 1.7e9, text)


@pytest.mark.parametrize("timestamp", ["nan", "-inf", "1e400"])
def test_a_time_that_is_no_number_does_not_reach_the_coordinator(tmp_path: Path, timestamp: str) -> None:
    """JSON has none: the coordinator would not have understood anything that this node says."""
    about = {"message": "ValueError: x", "extraInfo": {"timestamp": timestamp}}
    assert recorded(RankFolder.at(tmp_path), msgspec.json.encode({"message": about})).time in (0.0, 100.0)


def test_what_a_script_puts_into_its_error_file_is_cut_and_can_be_stored(tmp_path: Path) -> None:
    about = {"message": "Own\0: " + "x" * 10_000, "extraInfo": {"py_callstack": "y\0" * 50_000, "timestamp": "-1"}}
    failure = recorded(RankFolder.at(tmp_path), msgspec.json.encode({"message": about}))
    assert "\0" not in failure.exception + failure.message + failure.traceback
    assert len(failure.message) < 5_000
    assert len(failure.traceback) < 20_000


@pytest.mark.parametrize("content", [b"", b"[]", b'{"message": 3}', b'{"message": {"message": "x", "extraInfo": {"timestamp": "soon"}}}'])
def test_an_error_file_that_cannot_be_read_leaves_the_exit_to_speak(tmp_path: Path, content: bytes) -> None:
    failure = recorded(RankFolder.at(tmp_path), content)
    assert (failure.kind, failure.message) == ("exit", "exited with code 1")


def test_a_script_that_ends_with_code_0_has_completed_whatever_it_raised_before(tmp_path: Path) -> None:
    own = FailureReport(kind="exception", rank=0, message="caught by a hook")
    ending = conclude(status(0), Result(outcome="failed", step=0, failure=own), LINES, place(0), is_script=True, step=3)
    assert (ending.outcome, ending.failure, ending.step) == ("completed", None, 3)


def test_the_ranks_own_report_is_kept_and_completed() -> None:
    own = FailureReport(kind="exception", rank=0, message="no such file", exception="OSError", step=9, time=99.0)
    ending = conclude(status(1), Result(outcome="failed", step=9, failure=own), LINES, place(0), is_script=False, step=0)
    assert ending.step == 9
    assert ending.failure == msgspec.structs.replace(own, exit_code=1, last_lines=LINES)


@pytest.mark.parametrize("outcome", ["completed", "paused"])
def test_a_good_end_is_the_ranks_to_declare(outcome: str) -> None:
    ending = conclude(status(0), Result(outcome=outcome, step=5), LINES, place(0), is_script=False, step=4)  # type: ignore[arg-type]
    assert (ending.outcome, ending.step, ending.exit_code, ending.failure) == (outcome, 5, 0, None)


def test_reading_a_folder(tmp_path: Path) -> None:
    folder = RankFolder.at(tmp_path)
    assert read_exit_cause(folder, (), place(0), is_script=False, step=0) is None
    folder.output.write_bytes(b"\n".join(b"line %d" % number for number in range(100)) + b"\nlast \xff\n")
    folder.exit_status.write_bytes(msgspec.json.encode(status(1)))
    folder.result.write_bytes(b'{"outcome": "comp')  # cut off by a full disk
    ending = read_exit_cause(folder, (), place(0), is_script=False, step=0)
    assert ending is not None
    assert ending.failure is not None
    assert ending.failure.last_lines[-2:] == ("line 99", "last \ufffd")
    assert len(ending.failure.last_lines) == LAST_LINES
    assert last_lines(tmp_path / "missing") == ()


def test_a_traceback_that_is_told_apart_does_not_hide_what_came_before_it(tmp_path: Path) -> None:
    output = tmp_path / "output"
    traceback = "Traceback (most recent call last):\n" + '  File "task.py", line 1, in batch\n' * 2 * LAST_LINES + "ZeroDivisionError\n"
    output.write_text(f"about to divide\n{traceback}\nand a last word\n")
    assert last_lines(output, besides=traceback) == ("about to divide", "and a last word")
    assert last_lines(output, besides="another\n")[-1] == "and a last word"


@pytest.mark.parametrize(("ordered", "outcome"), [(False, "completed"), (True, "paused")])
def test_a_script_that_ends_well_when_it_is_told_to_end_has_not_completed(ordered: bool, outcome: str) -> None:
    ended = ExitStatus(pid=7, exit_code=0, signal=None, time=1.0, ordered=ordered)
    assert conclude(ended, None, (), place(0), is_script=True, step=3).outcome == outcome
