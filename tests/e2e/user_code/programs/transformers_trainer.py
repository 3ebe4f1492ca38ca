"""The Trainer of transformers with a small Llama of random weights: it prints what it logs, and goes on from its newest checkpoint."""

import os
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint


class Sequences(torch.utils.data.Dataset):
    def __len__(self):
        return 192

    def __getitem__(self, index):
        tokens = (torch.arange(16) * (1 + index % 3) + index) % 32
        return {"input_ids": tokens, "labels": tokens}


class Printer(TrainerCallback):
    def __init__(self, pause):
        self.pause = pause

    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(self.pause)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and "loss" in logs:
            print(f"step {state.global_step - 1} loss {logs['loss']:.8f}", flush=True)


def main():
    pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    set_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32, max_position_embeddings=32, **shape))
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=4,
        num_train_epochs=1,
        logging_steps=1,
        save_steps=8,
        learning_rate=3e-3,
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Sequences(), callbacks=[Printer(pause)])
    trainer.train(resume_from_checkpoint=get_last_checkpoint("out") if os.path.isdir("out") else None)


if __name__ == "__main__":
    main()
