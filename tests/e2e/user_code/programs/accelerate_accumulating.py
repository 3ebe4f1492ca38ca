"""A loop with Accelerate that accumulates gradients, and logs with its TensorBoard tracker."""

import os
import shutil
import sys
import time

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, ACCUMULATED = 3, 2


class Progress:
    epoch = step = 0

    def state_dict(self):
        return {"epoch": self.epoch, "step": self.step}

    def load_state_dict(self, state):
        self.epoch, self.step = state["epoch"], state["step"]


def main():
    pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=ACCUMULATED,
        log_with="tensorboard",
        project_dir="out",
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
    )
    set_seed(1)
    inputs = torch.randn(512, 20)
    data = DataLoader(TensorDataset(inputs, inputs @ torch.randn(20, 1)), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 200)
    model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
    accelerator.init_trackers("run")
    progress, losses = Progress(), []
    accelerator.register_for_checkpointing(progress)
    if os.path.isdir("state"):
        accelerator.load_state("state")
    while progress.epoch < EPOCHS:
        data.set_epoch(progress.epoch)
        for batch, targets in data:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(batch), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            time.sleep(pause)
            losses.append(accelerator.gather(loss.detach()).mean().item())
            if accelerator.sync_gradients:
                mean, losses = sum(losses) / len(losses), []
                accelerator.log({"train_loss": mean}, step=progress.step)
                if accelerator.is_main_process:
                    print(f"step {progress.step} loss {mean:.8f}", flush=True)
                progress.step += 1
        progress.epoch += 1
        accelerator.save_state("state.new")
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            shutil.rmtree("state", ignore_errors=True)
            os.replace("state.new", "state")
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
