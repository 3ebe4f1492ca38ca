"""A forked child before it is a process of its own."""

from __future__ import annotations

import os
import signal

from paceline.cluster.agent.children import FAILED_EXIT_CODE, detach, fork


def test_a_child_that_is_to_end_right_after_its_fork_ends_and_runs_no_handler_of_the_spawners() -> None:
    reader, writer = os.pipe()
    before = signal.signal(signal.SIGTERM, lambda *_: os.write(writer, b"the spawner's handler"))
    try:
        parent, pid = os.getpid(), fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            detach(parent)
            os._exit(FAILED_EXIT_CODE)
        _, status = os.waitpid(pid, 0)
        os.kill(parent, signal.SIGTERM)  # the spawner itself heeds its signals again
        assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
        assert os.read(reader, 100) == b"the spawner's handler"
    finally:
        signal.signal(signal.SIGTERM, before)
        os.close(reader)
        os.close(writer)
