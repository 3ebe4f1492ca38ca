"""Takes three steps with the others, then does what it was told: see `test_script_hangs.py`."""

import os
import sys
import threading
import time

started = threading.Event()


def say_that_it_starts() -> None:
    """So that a start on a busy machine, which may take longer than the patience of a job, is no silence."""
    while not started.wait(0.2):
        print("starts", flush=True)


threading.Thread(target=say_that_it_starts, daemon=True).start()

import torch  # noqa: E402 - a part of the start, as all that follows
import torch.distributed as dist  # noqa: E402

import paceline  # noqa: E402

case = sys.argv[1]
again = os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
dist.init_process_group("gloo")
rank = dist.get_rank()


def step(number: int) -> None:
    dist.all_reduce(torch.ones(4))
    if rank == 0:
        paceline.log(number, loss=1.0 / number)


def read_what_never_comes() -> None:
    os.read(os.pipe()[0], 1)


for number in range(1, 4):
    step(number)
started.set()
if case == "once" and again:
    print("started again", flush=True)
elif case in ("loop", "once") and rank == 1:
    while True:
        pass
elif case == "input" and rank == 1:
    read_what_never_comes()
elif case == "order":
    dist.broadcast(torch.ones(4), 0) if rank == 1 else dist.all_reduce(torch.ones(4))
elif case == "sleep":
    print("sleeps", flush=True)
    time.sleep(45)
    print("goes on", flush=True)
    time.sleep(8)
step(4)
dist.destroy_process_group()
