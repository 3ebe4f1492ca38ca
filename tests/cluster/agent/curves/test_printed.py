"""Lines of the usual loggers, and those that only look like them."""

from __future__ import annotations

import math
import random
import string

import pytest

from paceline.cluster.agent.curves.printed import LONGEST_LINE, read_line
from tests.cpu_cost import least_seconds


@pytest.mark.parametrize(
    ("line", "step", "values"),
    [
        ("step 120 loss 2.31", 120, {"loss": 2.31}),
        ("step=120 loss=2.31", 120, {"loss": 2.31}),
        ("step: 120, loss: 2.31, lr: 1e-4", 120, {"loss": 2.31, "lr": 1e-4}),
        ("iter 120: loss 2.3101, time 12.34ms, mfu 3.21%", 120, {"loss": 2.3101}),  # nanoGPT
        ("iter 120: loss 2.31, time 12 ms", 120, {"loss": 2.31}),
        ("step 250: train loss 2.4967, val loss 2.4957", 250, {"eval/train_loss": 2.4967, "val_loss": 2.4957}),  # nanoGPT's evaluation
        (
            "step    19 | loss: 3.217 | lr 6.0e-04 | norm: 0.29 | dt: 300.25ms | tok/sec: 170000.0",
            19,
            {"loss": 3.217, "lr": 6e-4, "norm": 0.29, "tok/sec": 1.7e5},
        ),
        ("step 19/74 | train loss 5.33 | norm 2.1 | lr 3e-4 | (123.45 ms | 4567 tok/s)", 19, {"train_loss": 5.33, "norm": 2.1, "lr": 3e-4}),
        ("Epoch 3 Step 20 Loss 0.5", 20, {"Loss": 0.5}),
        ("epoch: 1.5 | global_step: 300 | loss: .5", 300, {"loss": 0.5}),
        ("[step 120] loss: 2.31", 120, {"loss": 2.31}),
        ("Iteration 7 - loss = -1.5e+2", 7, {"loss": -150.0}),
        ("step 5 loss nan", 5, {"loss": math.nan}),
        ("step 5 loss inf", 5, {"loss": math.inf}),
        ("step 5 loss 2.0 eta 1:02:03", 5, {"loss": 2.0}),
        (
            "{'step': 10, 'loss': 0.53, 'grad_norm': 1.2, 'learning_rate': 4e-05, 'epoch': 0.02}",
            10,
            {"loss": 0.53, "grad_norm": 1.2, "learning_rate": 4e-5},
        ),
        ("{'step': '10', 'loss': '0.53'}", 10, {"loss": 0.53}),  # transformers 5 writes its numbers so
        ('{"step": 10, "train/loss": 0.53, "time": 1.5}', 10, {"train/loss": 0.53}),
        ("2026-11-24 05:43:09,123 - train - INFO - step 120 loss 2.31", 120, {"loss": 2.31}),
        ("2026-11-24 05:43:09,123 - INFO - step 120 loss 2.31", 120, {"loss": 2.31}),
        ("[2026-11-24 05:43:09] step 120 loss 2.31", 120, {"loss": 2.31}),
        ("2026-11-24 05:43:09,123 INFO root: step 120 loss 2.31", 120, {"loss": 2.31}),
        ("05:43:09 INFO step 120 loss 2.31", 120, {"loss": 2.31}),
        ("11/24/2026 05:43:09 - INFO - __main__ - step 120 loss 2.31", 120, {"loss": 2.31}),  # Accelerate's examples
        ("INFO     my_project.train: step 120 loss 2.31", 120, {"loss": 2.31}),
        ("2026-11-24 05:43:09.123 | INFO     | __main__:<module>:12 - step 120 loss 2.31", 120, {"loss": 2.31}),  # loguru
        ("[2026-11-24 05:43:09,123][__main__][INFO] - step 120 loss 2.31", 120, {"loss": 2.31}),  # hydra
        ("I1124 05:43:09.123456 139772 train.py:42] step 120 loss 2.31", 120, {"loss": 2.31}),  # glog, absl
        ("\033[32mstep 120\033[0m \033[1;31mloss 2.31\033[0m", 120, {"loss": 2.31}),
        (
            "[rank0]:[titan] 2026-11-24 05:43:09,123 - root - INFO - \033[31mstep:  1  \033[32mloss: 12.27215  \033[38;2;180;60;0mgrad_norm:  1.5  "
            "\033[36mmemory: 1.29GiB(1.36%)  \033[34mtps: 11,234  \033[36mtflops: 1,012.50  \033[35mmfu: 41.20%\033[39m",
            1,
            {"loss": 12.27215, "grad_norm": 1.5, "tps": 11_234.0, "tflops": 1_012.5},
        ),  # torchtitan
        ("INFO:root:step 120 loss 2.31", 120, {"loss": 2.31}),
        ("[rank0]: step 120 loss 2.31", 120, {"loss": 2.31}),
        ("[rank 0] step 120 loss 2.31", 120, {"loss": 2.31}),
        ("step 3 loss 0.1 critic 0.7", 3, {"loss": 0.1, "critic": 0.7}),  # a loss stands before it: the line is a list of numbers
        ("Epoch [1/5], Step [100/600], Loss: 0.2345", 100, {"Loss": 0.2345}),
        ("Epoch 2/5 | Batch 100/600 | Loss 0.2", 100, {"Loss": 0.2}),
        ("[GPU0] Epoch 0 | Batchsize: 32 | Steps: 25 | loss 1.5", 25, {"Batchsize": 32, "loss": 1.5}),
        ("  step 120 loss 2.31\r", 120, {"loss": 2.31}),
    ],
)
def test_true_friends(line: str, step: int, values: dict[str, float]) -> None:
    found = read_line(line)
    assert found is not None
    assert found.step == step
    assert dict(found.values) == pytest.approx(values, nan_ok=True)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "loss: nan",  # of which step?
        "loss 2.31",
        "{'loss': 0.53, 'grad_norm': 1.2, 'learning_rate': 4e-05, 'epoch': 0.02}",  # transformers: an epoch is no step
        "{'train_runtime': 12.3, 'train_loss': 0.4, 'epoch': 3.0}",
        "{'step': 10, 'loss': [1, 2]}",
        "{'step': 10, 'loss': 0.5, 'step': 11}",
        "{'step': 10, 'global_step': 10, 'loss': 0.5}",
        "{'step': 10.5, 'loss': 0.5}",
        "{'step': -1, 'loss': 0.5}",
        "{'step': 10, 'loss': 0.5} done",
        "  3%|3         | 120/4000 [00:12<06:30,  9.9it/s, loss=2.31]",
        "Epoch 1:  30%|###       | 30/100 [00:03<00:07,  9.90it/s, v_num=0, train_loss=0.512]",
        "Epoch 1.5 loss 0.5",
        "Train Epoch: 1 [640/60000 (1%)] Loss: 1.1",  # of samples
        "[1, 2000] loss: 2.2",
        "step 120 loss 2.31 of 1000",
        "[rank 1] step 120 loss 2.31",
        "step 120 of 1000 loss 2.31",
        "step 12% loss 2.31",
        "step 1.5 loss 2.31",
        "step 120 loss 2.31%",
        "step 120 loss 12ms",
        "step 120 loss 1:23",
        "Validation: step 20 loss 0.5",
        "Validation - step 20 loss 0.5",
        "05:43:09 INFO Validation: step 20 loss 0.5",
        "05:43:09 INFO Resumed: step 20 loss 0.5",
        "05:43:09 ERROR root: step 20 loss 0.5",
        "2026-11-24 05:43:09.123 | WARNING  | __main__:train:12 - step 20 loss 0.5",
        "2026-11-24 05:43:09.123 | INFO     | __main__:evaluate:12 - step 20 loss 0.5",
        "[2026-11-24 05:43:09,123][project.evaluation][INFO] - step 20 loss 0.5",
        "W1124 05:43:09.123456 139772 train.py:42] step 20 loss 0.5",
        "[rank1]:[titan] 2026-11-24 05:43:09,123 - root - INFO - step: 1 loss: 2.0",
        "step 20 loss: 1,234",  # a decimal comma, perhaps
        "step 20 loss 0.5 shape 1,234,5",
        "val step 20 loss 0.5",
        "eval step 20: loss 0.5",
        "[rank1]: step 120 loss 2.31",
        "loss 2.31 step 120",  # another one's step, perhaps
        "step 120 loss 2.31 step 121 loss 2.30",
        "step 120 loss 2.31 loss 2.30",
        "step 120 loss went up to 2.31",
        "step 120: loss is 2.31",
        "step 120 workers 8",
        "step 120 loss 2.31 saved to /srv/loss-2.31.pt",
        "resumed at step 120, best loss 2.31",
        "WARNING step 120 loss scale 65536",
        "step 120 loss 2.31.4",
        "step 120 loss 2.31e",
        "step 120x loss 2.31",
        "step 99999999999999999999999 loss 1",
        "stepper 3 loss 2",
        "step 3 loss 2 " + "x" * LONGEST_LINE,
    ],
)
def test_false_friends(line: str) -> None:
    assert read_line(line) is None


@pytest.mark.parametrize("line", ["Epoch 3 loss 0.5", "epoch 3/10, loss: 0.5", "[rank 0] Epoch [3/10] | loss 0.5"])
def test_an_epoch_alone_has_no_step(line: str) -> None:
    found = read_line(line)
    assert found is not None
    assert (found.step, found.epoch, dict(found.values)) == (None, 3, {"loss": 0.5})


def test_no_line_takes_long_or_raises() -> None:
    """A script prints what it likes."""
    chance = random.Random(0)
    alphabet = "step loss0123456789.:=,|-+eE/%{}'\"[]() \t\0" + string.ascii_lowercase
    lines = ["".join(chance.choice(alphabet) for _ in range(LONGEST_LINE)) + "loss" for _ in range(300)]
    lines += [
        f"step 1 loss {'1' * 400}",
        "step 1 loss " + "1." * 200,
        "step 1 " + "loss " * 90,
        "step 1 loss 1" + " - " * 150,
        "{" + "'loss':" * 60,
    ]
    lines += ["step 1 loss 1 " + "a." * 200, "[" * 400 + "loss", "2026-11-24 05:43:09" + " - a" * 100 + " loss", "train " * 80 + "loss"]
    lines += [
        "\033[" * 200 + "loss",
        "\033[" + "1;" * 200 + "loss",
        "I1124 05:43:09 1 " + "a." * 200 + "loss",
        "INFO " + "a.a" * 150 + "loss",
    ]
    lines += ["step 1 loss 1 tps: 1" + ",234" * 100]

    def read_all() -> None:
        for line in lines:
            read_line(line)
            read_line(line[:LONGEST_LINE])

    assert least_seconds(read_all) < 1.0
