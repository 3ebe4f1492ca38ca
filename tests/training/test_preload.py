"""What the spawner holds when it forks. Asked in a fresh interpreter: this one has done everything before."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, sys, threading
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy's library starts a thread pool at import, and forks it properly
from paceline.training import main
main.preload()
import torch
print(threading.active_count(), len(os.listdir("/proc/self/task")), torch.cuda.is_initialized(), torch.get_num_threads(), flush=True)
pid = os.fork()
if pid == 0:
    modules = set(sys.modules)
    from paceline.parallelism.pipelines.stage import Stage
    from paceline.training.optim.optimizers import build_optimizer, clip_gradients
    from paceline.training.schema.optimizer import AdamW
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    clip_gradients(model.parameters(), 1.0)
    build_optimizer(AdamW(), model).step()
    print(sorted(set(sys.modules) - modules), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


def test_a_fork_finds_everything_imported_no_thread_and_no_gpu_in_use() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    before, after = done.stdout.splitlines()
    assert before == "1 1 False 1"
    assert after == "[]"


ASKED = """
import os, torch
seen = []
def asked(check_available=False):
    seen.append(os.environ.get("CUDA_VISIBLE_DEVICES"))
torch.accelerator.current_accelerator = asked
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
from paceline.training import main
main.preload()
print(len(seen) > 0, set(seen), "CUDA_VISIBLE_DEVICES" in os.environ)
"""


def test_an_optimizer_that_asks_for_a_card_while_the_spawner_warms_up_sees_none() -> None:
    """On a machine with a card it would ask the card's stream, which starts CUDA, and no rank that is forked then could use the card."""
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True {''} False\n"
