"""A script that fails in the way that its argument names: rank 1 is at fault, rank 0 loses its peer."""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

CASE = sys.argv[1]


def clean_up() -> None:
    print("wandb: Synced 5 files", flush=True)
    time.sleep(4)


def fail() -> None:
    match CASE:
        case "exception":
            raise ValueError("labels out of range: got 12, expected < 10")
        case "cleans_up_slowly":
            atexit.register(clean_up)
            raise ValueError("bad sample 17")
        case "leaves_early":
            sys.exit(0)
        case "leaves_and_saves":
            dist.destroy_process_group()
            time.sleep(60)
        case "segfault":
            ctypes.string_at(0)
        case "exit_code":
            os._exit(3)
        case "message":
            sys.exit("config file missing: data.yaml")
        case "memory":
            torch.empty(1 << 50)


def main() -> None:
    dist.init_process_group("gloo")
    try:
        for step in range(20):
            dist.all_reduce(torch.ones(4))
            if step == 5 and dist.get_rank() == 1:
                fail()
    finally:
        if CASE == "cleans_up_slowly":
            dist.destroy_process_group()


if CASE == "import":
    dist.init_process_group("gloo")
    dist.barrier()  # both are to come to it: who starts later is ended because of the other one
    dist.destroy_process_group()
    importlib.import_module("flash_attention_9000")
if CASE == "recorded":
    CASE = "exception"
    main = record(main)
main()
