"""As the documentation of transformers has it: nothing in here knows of Paceline. Arguments: output folder, report_to."""

import os
import signal
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed


class Sequences(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        tokens = (torch.arange(16) + index) % 32
        return {"input_ids": tokens, "labels": tokens}


class Killed(TrainerCallback):
    """As by a machine that fails, once."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 15 and os.environ.get("KILL") == os.environ["RANK"] and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)


set_seed(0)
shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=32, max_position_embeddings=32, **shape))
arguments = TrainingArguments(
    output_dir=sys.argv[1],
    per_device_train_batch_size=4,
    num_train_epochs=1,
    logging_steps=2,
    save_steps=10,
    use_cpu=True,
    report_to=[] if sys.argv[2] == "none" else [sys.argv[2]],
    learning_rate=3e-3,
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=Sequences(), callbacks=[Killed()])
begun = os.path.isdir(sys.argv[1]) and any(name.startswith("checkpoint-") for name in os.listdir(sys.argv[1]))
trainer.train(resume_from_checkpoint=begun or None)
print("trained", trainer.state.global_step)
