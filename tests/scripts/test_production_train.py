"""`scripts/production_train.py` as its users start it: plainly, under torchrun, and with a job spec by the launch script."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from paceline.training.builtin import builtin_task
from paceline.training.models.mlp.config import MlpModel
from paceline.training.schema.data import Digits
from paceline.training.schema.training import TrainingLength
from paceline.training.spec import text
from paceline.training.spec.job import JobSpec
from scripts.production_train import named_checkpoint, portions, strategy_of
from tests.event_files import read_scalars
from tests.own_loop_example import ROOT, RUN_TIMEOUT_SECONDS, environment

pytestmark = pytest.mark.timeout(400)
SCRIPT = str(ROOT / "scripts" / "production_train.py")
LAUNCH = str(ROOT / "scripts" / "launch_training.sh")

SPEC = """
version: 1
name: small
model: {kind: mlp, hidden: [32]}
data: {kind: digits}
optimizer: {kind: sgd, lr: 0.1}
training: {steps: 12, global_batch_size: 64}
checkpoint: {keep_last: 1, keep_best: 1, metric: eval_accuracy, mode: max}
"""


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS, check=False)


def saved(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("step-*")}


def test_plainly_with_every_option_and_then_on_two_ranks_from_there(tmp_path: Path) -> None:
    options = "--mixed-precision --gradient-clip 1.0 --activation-checkpointing --auto-batch-size --max-batch-size 64 --log-dir logs"
    done = run(sys.executable, SCRIPT, *options.split(), "--epochs", "2", "--checkpoint-dir", "ck", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "batches of 64 on each of 1 ranks, as much as fits; from step 0 on" in done.stdout
    assert saved(tmp_path / "ck") == {"step-23.g1", "step-45.g1"}
    assert (tmp_path / "ck" / "best").is_dir()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", SCRIPT]
    more = run(
        *torchrun, "--strategy", "fsdp", "--cpu-offload", "--batch-size", "32", "--epochs", "3", "--checkpoint-dir", "ck", folder=tmp_path
    )
    assert more.returncode == 0, more.stderr
    assert "from step 45 on" in more.stdout
    assert "epoch 3:" in more.stdout
    assert "epoch 2:" not in more.stdout
    assert saved(tmp_path / "ck") == {"step-23.g1", "step-45.g1", "step-68.g2"}


@pytest.mark.parametrize(
    ("update", "micro", "ranks", "expected"),
    [(96, 32, 2, (24, 2)), (96, 64, 1, (48, 2)), (64, 16, 3, (11, 2)), (64, 16, 2, (16, 2)), (8, 8, 4, (2, 1)), (64, "auto", 2, (32, 1))],
)
def test_an_update_has_all_samples_of_the_spec_where_micro_batches_do_not_divide_it(
    update: int, micro: int | str, ranks: int, expected: tuple[int, int]
) -> None:
    """96 in micro-batches of 32 on two ranks were 64: the rest was cut off."""
    options = argparse.Namespace(config="job.yaml", batch_size=None, gradient_accumulation_steps=None)
    spec = TrainingLength.model_validate({"steps": 1, "global_batch_size": update, "micro_batch_size": micro})
    assert portions(options, spec, ranks) == expected


@pytest.mark.slow("runs of the script in interpreters of their own")
def test_with_a_job_spec_by_the_launch_script(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SPEC)
    done = run(LAUNCH, "2", "ddp", "32", SCRIPT, "--config", "job.yaml", "--checkpoint-dir", "ck", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "update 1/12" in done.stdout
    assert saved(tmp_path / "ck") == {"step-12.g1"}


@pytest.mark.slow("runs of the script in interpreters of their own")
def test_it_saves_as_often_as_the_spec_says_and_goes_on_from_there(tmp_path: Path) -> None:
    """Of 12 steps, less than an epoch, only the last was saved: a restart trained all of them again."""
    often = SPEC.replace("checkpoint: {keep_last: 1, keep_best: 1,", "checkpoint: {every_steps: 5, keep_last: 9,")
    (tmp_path / "job.yaml").write_text(often.replace("steps: 12", "steps: 12, eval_every_steps: 4, eval_samples: 10"))
    command = (sys.executable, SCRIPT, "--config", "job.yaml", "--checkpoint-dir", "ck")
    done = run(*command, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert saved(tmp_path / "ck") == {"step-5.g1", "step-10.g1", "step-12.g1"}
    (tmp_path / "ck" / "best").unlink()
    shutil.rmtree(tmp_path / "ck" / "step-12.g1")
    again = run(*command, folder=tmp_path)
    assert "from step 10 on" in again.stdout, again.stderr
    assert saved(tmp_path / "ck") == {"step-5.g1", "step-10.g1", "step-12.g2"}


def test_what_is_left_to_jobs_of_a_spec_is_said(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SPEC + "resources: {nodes: 2}\n")
    done = run(sys.executable, SCRIPT, "--config", "job.yaml", folder=tmp_path)
    assert "for jobs alone: resources (the launcher starts the ranks)" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("parallelism", "option", "expected"),
    [
        ({}, None, {}),
        ({"strategy": "auto"}, None, "auto"),
        ({"strategy": "fsdp", "reshard_after_forward": False}, None, {"strategy": "fsdp", "reshard_after_forward": False}),
        ({"strategy": "fsdp", "reshard_after_forward": False}, "ddp", {"strategy": "ddp"}),
        ({"activation_checkpointing": "full"}, "ddp", {"strategy": "ddp", "activation_checkpointing": "full"}),
    ],
)
def test_an_option_for_the_strategy_drops_only_what_has_no_meaning_then(
    parallelism: dict[str, object], option: str | None, expected: object
) -> None:
    """`launch_training.sh` always gives one: the spec's activation checkpointing was lost by it."""
    spec = JobSpec.model_validate(text.load(SPEC) | {"parallelism": parallelism})
    assert strategy_of(spec, option) == expected


@pytest.mark.slow("runs of the script in interpreters of their own")
def test_another_batch_size_after_a_resume_ends_at_the_same_epoch(tmp_path: Path) -> None:
    first = run(sys.executable, SCRIPT, "--epochs", "2", "--checkpoint-dir", "ck", folder=tmp_path)
    assert first.returncode == 0, first.stderr
    more = run(sys.executable, SCRIPT, "--epochs", "3", "--batch-size", "1000", "--checkpoint-dir", "ck", folder=tmp_path)
    assert more.returncode == 0, more.stderr
    assert "from step 90 on" in more.stdout
    assert "epoch 3:" in more.stdout
    assert "epoch 4:" not in more.stdout
    assert saved(tmp_path / "ck") == {"step-45.g1", "step-90.g1", "step-92.g2"}


def rates(folder: Path) -> dict[int, float]:
    """Return the learning rate of each step in event files."""
    return {point.step: point.value for point in read_scalars(folder)["learning_rate"]}


@pytest.mark.slow("runs of the script in interpreters of their own")
def test_after_a_resume_the_learning_rates_are_those_of_a_run_that_was_not_interrupted(tmp_path: Path) -> None:
    """The rate of the last update was taken for the peak: the schedule was multiplied with itself at every resume."""
    for options in ("--epochs 2 --log-dir whole", "--epochs 1 --checkpoint-dir ck", "--epochs 2 --checkpoint-dir ck --log-dir resumed"):
        done = run(sys.executable, SCRIPT, *options.split(), folder=tmp_path)
        assert done.returncode == 0, done.stderr
    whole, resumed = rates(tmp_path / "whole"), rates(tmp_path / "resumed")
    assert len(resumed) == len(whole) // 2
    assert resumed == {step: whole[step] for step in resumed}


def save_foreign(folder: Path) -> None:
    model = builtin_task(MlpModel(), Digits(), folder).model
    torch.save({"epoch": 0, "model_state_dict": model.state_dict()}, folder / "checkpoint_epoch_0.pt")


def test_started_again_with_the_same_options_it_goes_on_from_its_own_checkpoints_and_not_from_what_began_it(tmp_path: Path) -> None:
    """What --resume named was loaded at every restart, and the epochs since were trained again."""
    save_foreign(tmp_path)
    options = "--epochs 2 --resume checkpoint_epoch_0.pt --checkpoint-dir ck"
    first, again = (run(sys.executable, SCRIPT, *options.split(), folder=tmp_path) for _ in range(2))
    assert "from step 0 on" in first.stdout, first.stderr
    assert "from step 45 on" in again.stdout, again.stderr
    assert "ck/step-45.g1 goes before --resume checkpoint_epoch_0.pt" in again.stdout
    assert saved(tmp_path / "ck") == {"step-45.g1"}


def test_one_of_the_runs_own_checkpoints_is_gone_back_to_where_it_is_named(tmp_path: Path) -> None:
    own = [tmp_path / "ck" / name for name in ("step-90.g1", "step-45.g1")]
    for folder in own:
        folder.mkdir(parents=True)
    (tmp_path / "ck" / "best").symlink_to("step-45.g1")
    best = str(tmp_path / "ck" / "best")
    assert named_checkpoint(argparse.Namespace(resume=best), own) == Path(best)
    assert named_checkpoint(argparse.Namespace(resume=str(tmp_path / "elsewhere.pt")), own) is None
    assert named_checkpoint(argparse.Namespace(resume=None), own) is None


def test_from_a_file_of_another_program(tmp_path: Path) -> None:
    save_foreign(tmp_path)
    done = run(sys.executable, SCRIPT, "--epochs", "2", "--resume", "checkpoint_epoch_0.pt", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "epoch 2:" in done.stdout
    assert "epoch 1:" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("--batch-size 0", "--batch-size 0 is less than 1"),
        ("--lr 0", "optimizer.lr"),
        ("--strategy tensor", "strategy='tensor' is none that fits any model"),
        ("--config none.yaml", "No such file or directory: 'none.yaml'"),
        ("--resume none.pt", "no checkpoint none.pt"),
        ("--resume none", "none"),
        (f"--config {ROOT}/examples/gpt_compressed.yaml", "communication of the spec is for jobs: submit it, or leave it out"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: str, problem: str, tmp_path: Path) -> None:
    done = run(sys.executable, SCRIPT, *arguments.split(), folder=tmp_path)
    assert done.returncode == 1
    assert problem in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_data_that_cannot_be_fetched_is_told_in_options_of_the_script(tmp_path: Path) -> None:
    nowhere = {"HOME": str(tmp_path), "https_proxy": "http://127.0.0.1:9", "no_proxy": ""}
    done = subprocess.run(
        [sys.executable, SCRIPT, "--data", "mnist"],
        cwd=tmp_path,
        env=environment() | nowhere,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "set --data-dir to a folder with MNIST's four files, or --data to digits" in done.stderr.splitlines()[-1]
