"""wandb's form of logging, as a script would use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.paceline.documented import block_below
from tests.paceline.job_ranks import JOB, run_alone, run_job

TRAINS = """
import argparse, sys
import numpy
import paceline

assert "torch" not in sys.modules
run = paceline.init(project="digits", name="night", config={"lr": 0.1, "model": {"layers": 2}}, entity="me", mode="online")
assert paceline.run is run and paceline.init() is run
run.config.seed = 3
paceline.config.update(argparse.Namespace(batch=4), allow_val_change=True)
paceline.config.update(act="gelu")
for number in range(2):
    paceline.log({"train": {"loss": 1 / (1 + number)}, "lr": numpy.float32(0.5), "note": "text", "image": numpy.zeros((2, 2))})
paceline.log({"accuracy": 0.5}, commit=False)
paceline.log({"val/loss": 0.25})
paceline.log({"late": 1.0}, step=10)
run.log({"later": True}, step=10)
paceline.log({"lost": 1.0}, step=4)
paceline.log(data={"last": 2})
run.summary["best"] = run.summary.accuracy
assert (run.id, run.name, run.step) == (paceline.run.id, "night", 11)
paceline.finish()
assert paceline.run is None
paceline.log(20, data=1.0, commit=2.0)
"""
POINTS = [
    (0, {"loss": 1.0, "learning_rate": 0.5}),
    (1, {"loss": 0.5, "learning_rate": 0.5}),
    (2, {"accuracy": 0.5}),
    (2, {"eval_loss": 0.25}),
    (10, {"late": 1.0}),
    (10, {"later": 1.0}),
    (10, {"last": 2.0}),
    (20, {"data": 1.0, "commit": 2.0}),
]


def test_in_a_job_its_numbers_are_curves_and_its_configuration_is_told(tmp_path: Path) -> None:
    (left,) = run_job(tmp_path, TRAINS + f"\nassert run.id == {JOB!r}\n")
    assert left.points == POINTS
    first, second = left.events_of("run_configured")
    assert first == {"name": "night", "project": "digits", "config": {"lr": 0.1, "model/layers": 2}}
    assert second["config"] == {"lr": 0.1, "model/layers": 2, "seed": 3, "batch": 4, "act": "gelu"}
    (dropped,) = left.events_of("data_dropped")
    assert (dropped["what"], dropped["example"]) == ("logged values", "note (str)")
    assert left.stderr.count("WARNING") == 2
    assert "step 4 lies before the run's step 10" in left.stderr
    assert left.stdout.splitlines() == [
        "paceline.init: entity, mode mean nothing here and are ignored",
        "run night of digits, config: lr=0.1, model/layers=2",
        "run night of digits, config: lr=0.1, model/layers=2, seed=3, batch=4, act=gelu",
        "run night, summary: train/loss=0.5, lr=0.5, accuracy=0.5, val/loss=0.25, late=1, later=1, last=2, best=0.5",
    ]


@pytest.mark.parametrize(("arguments", "told"), [("", 1), (", step=3", 0)])
def test_of_counted_calls_the_job_is_told_that_they_count_from_0_at_each_start(tmp_path: Path, arguments: str, told: int) -> None:
    """A script that went on from step 40 was said to have repeated all steps."""
    script = f"import paceline\nfor _ in range(3):\n    paceline.log({{'loss': 1.0}}{arguments})"
    ranks = run_job(tmp_path, script, world_size=2)
    assert [len(left.events_of("curves_found")) for left in ranks] == [told, 0]


def test_any_rank_may_log_and_rank_0_tells_the_configuration(tmp_path: Path) -> None:
    ranks = run_job(
        tmp_path, "import paceline\npaceline.init(config={'lr': 0.1})\npaceline.log({'loss': paceline.world().rank})", world_size=2
    )
    assert [left.points for left in ranks] == [[(0, {"loss": 0.0})], [(0, {"loss": 1.0})]]
    assert [len(left.events_of("run_configured")) for left in ranks] == [1, 0]
    assert ranks[1].stdout == ""


def test_outside_a_job_it_is_printed(tmp_path: Path) -> None:
    done = run_alone(tmp_path, TRAINS)
    steps = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    assert steps[:3] == ["step 0 loss 1 learning_rate 0.5", "step 1 loss 0.5 learning_rate 0.5", "step 2 accuracy 0.5"]
    assert len(steps) == len(POINTS)
    assert done.stderr.count("WARNING") == 2


REFUSED = """
import paceline

finished = paceline.init()
finished.finish()
attempts = {
    "neither form": lambda: paceline.log(),
    "two steps": lambda: paceline.log(1, step=2),
    "no step": lambda: paceline.log(loss=1.0),
    "not a mapping": lambda: paceline.init().log([1]),
    "a fraction": lambda: paceline.log({"loss": 1.0}, step=0.5),
    "a finished run": lambda: finished.log({"loss": 1.0}),
    "no configuration": lambda: paceline.init(config=[1]),
    "more of wandb": lambda: paceline.Artifact,
    "an entry that is not there": lambda: paceline.init().config.lr,
}
for name, attempt in attempts.items():
    try:
        attempt()
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}")
"""


def test_what_cannot_be_meant_is_refused_in_the_scripts_own_line(tmp_path: Path) -> None:
    told = dict(line.split(": ", 1) for line in run_alone(tmp_path, REFUSED).stdout.splitlines())
    usage = "TypeError: paceline.log takes one step and named values, log(step, loss=0.5), or a mapping, log({'loss': 0.5}, step=step)"
    assert (told["neither form"], told["two steps"], told["no step"]) == (usage, usage, usage)
    assert told["not a mapping"] == "TypeError: [1] (list) is not a mapping: log a dictionary of names and values"
    assert told["a fraction"].startswith("TypeError: step 0.5 (float) is not an integer")
    assert "is finished: log before finish(), or begin another run with paceline.init()" in told["a finished run"]
    assert told["no configuration"].startswith("TypeError: [1] (list) is no configuration")
    assert told["more of wandb"].startswith("AttributeError: module 'paceline' has no attribute 'Artifact': of wandb it has init, log")
    assert told["an entry that is not there"] == "AttributeError: 'lr' is not set; there is nothing"


def test_a_run_that_nobody_finishes_is_told_at_the_end_of_the_program(tmp_path: Path) -> None:
    (left,) = run_job(tmp_path, "import paceline\npaceline.init().config.lr = 0.1\npaceline.run.summary['best'] = 3")
    (told,) = left.events_of("run_configured")
    assert told["config"] == {"lr": 0.1}
    assert left.stdout.splitlines()[-1] == f"run {JOB}, summary: best=3"


@pytest.mark.parametrize("module", ["paceline", "wandb"])
def test_the_lines_of_the_page_record_the_loss_under_either_name(tmp_path: Path, module: str) -> None:
    lines = block_below("wandb's form")
    if module == "wandb":
        lines = lines.replace("paceline.", "wandb.").replace("import paceline\n", "import paceline as wandb\n")
    (left,) = run_job(tmp_path, f"loss, lr = 0.5, 0.25\n{lines}")
    assert left.points == [(0, {"loss": 0.5, "learning_rate": 0.25})]
    assert [event["config"] for event in left.events_of("run_configured")] == [{"lr": 1e-3}]
