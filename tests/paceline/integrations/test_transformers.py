"""The callback in the real Trainer, on two ranks: what the Trainer has logged are the curves, value by value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.paceline.documented import block_below
from tests.paceline.job_ranks import run_job

pytestmark = pytest.mark.slow("the trainer of a library, in interpreters that import it")

#: A model and its data.
MODEL = """
import json
import torch
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

class Sequences(torch.utils.data.Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        tokens = (torch.arange(8) + index) % 16
        return {"input_ids": tokens, "labels": tokens}

set_seed(0)
shape = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=16, max_position_embeddings=8, **shape))
"""
TRAINS = f"""{MODEL}
from paceline.integrations.transformers import PacelineCallback
from transformers import Trainer, TrainingArguments

arguments = TrainingArguments(
    output_dir="out", run_name="night", per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=6, logging_steps=2,
    eval_strategy="steps", eval_steps=4, save_strategy="no", use_cpu=True, learning_rate=3e-3, disable_tqdm=True, report_to="none",
)
trainer = Trainer(model=model, args=arguments, train_dataset=Sequences(), eval_dataset=Sequences(), callbacks=[PacelineCallback()])
trainer.train()
print("HISTORY " + json.dumps(trainer.state.log_history), flush=True)
"""
NAMES = {"loss": "loss", "learning_rate": "learning_rate", "grad_norm": "gradient_norm", "eval_loss": "eval_loss", "epoch": "train/epoch"}


@pytest.mark.timeout(180)
def test_what_the_trainer_logs_are_the_curves(tmp_path: Path) -> None:
    ranks = run_job(tmp_path, TRAINS, world_size=2)
    (history,) = [json.loads(line.removeprefix("HISTORY ")) for line in ranks[0].stdout.splitlines() if line.startswith("HISTORY ")]
    assert [entry["step"] for entry in history] == [2, 4, 4, 6, 6, 6]  # losses, evaluations at 4 and at the end, a summary
    told = [(step, {name: values[name] for name in values if name in NAMES.values()}) for step, values in ranks[0].points]
    assert told == [(entry["step"], {ours: entry[name] for name, ours in NAMES.items() if name in entry}) for entry in history]
    assert [len(values) for _, values in ranks[0].points] == [len(entry) - 1 for entry in history]  # all but the step
    assert ranks[1].points == []
    (config,) = ranks[0].events_of("run_configured")
    chosen = {"per_device_train_batch_size": 4, "learning_rate": 3e-3, "eval_strategy": "steps", "max_steps": 6}
    assert config["name"] == "night"
    assert {name: config["config"][name] for name in chosen} == chosen
    assert "weight_decay" not in config["config"]
    assert ranks[1].events == []


@pytest.mark.timeout(180)
def test_the_lines_of_the_page_record_the_losses(tmp_path: Path) -> None:
    told = "print('HISTORY ' + json.dumps(trainer.state.log_history), flush=True)"
    (left,) = run_job(tmp_path, "\n".join([MODEL, "data = Sequences()", block_below("transformers"), told]))
    (history,) = [json.loads(line.removeprefix("HISTORY ")) for line in left.stdout.splitlines() if line.startswith("HISTORY ")]
    losses = [(entry["step"], entry["loss"]) for entry in history if "loss" in entry]
    assert losses
    assert [(step, values["loss"]) for step, values in left.points if "loss" in values] == losses
