"""A plain program of which one rank fails, hangs or diverges, for `scripts.bench.culprits`: the same file under Paceline and under torchrun. Knows
nothing of Paceline.

faulty_ddp.py FAULT RANK
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import math
import os
import signal
import socket
import sys
import time

import torch
import torch.distributed as dist

STEPS, FAULT_AFTER = 100, 5
#: Longer than Paceline takes to believe the numbers that a program prints.
SECONDS_TO_BE_READ = 30.0


def fail(fault: str) -> None:
    match fault:
        case "exception":
            raise ValueError("labels out of range: got 12, expected < 10")
        case "assertion":
            raise AssertionError("labels out of range")
        case "chained":
            try:
                dict[str, int]()["image"]
            except KeyError as error:
                raise RuntimeError("sample 17 cannot be read") from error
        case "group":
            raise ExceptionGroup("samples", [ValueError("sample 17"), ValueError("sample 18")])
        case "cleanup":  # as loggers do that send what they have at the end
            atexit.register(time.sleep, 4)
            raise ValueError("sample 17 cannot be read")
        case "early":
            sys.exit(0)
        case "message":
            sys.exit("config file missing: data.yaml")
        case "exit":
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "terminated":
            os.kill(os.getpid(), signal.SIGTERM)
        case "memory":
            torch.empty(1 << 50)
        case "killed":  # as the kernel's out-of-memory killer ends a process
            os.kill(os.getpid(), signal.SIGKILL)
        case "import":
            importlib.import_module("flash_attention_9000")
        case "loop":
            while True:
                pass
        case "order":  # the others are in all_reduce
            dist.broadcast(torch.ones(1000), 0)
        case "shapes":
            dist.all_reduce(torch.ones(1_000_000))
        case "port":
            with socket.create_server(("127.0.0.1", 0)) as taken:
                socket.create_server(taken.getsockname())


def diverge(at_fault: int) -> None:
    """Print losses as a loop does whose loss becomes NaN on all ranks, since it did on one."""
    for step in range(int(SECONDS_TO_BE_READ)):
        loss = torch.tensor(math.nan if step > FAULT_AFTER and dist.get_rank() == at_fault else 2.0)
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(1)


def main(fault: str, at_fault: int) -> None:
    dist.init_process_group("gloo")
    if fault == "nan":
        return diverge(at_fault)
    try:
        for step in range(STEPS):
            dist.all_reduce(torch.ones(1000))
            if step == FAULT_AFTER and dist.get_rank() == at_fault:
                fail(fault)
    finally:
        if fault == "cleanup":
            dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
