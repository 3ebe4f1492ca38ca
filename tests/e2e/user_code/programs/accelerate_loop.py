"""A loop of one's own with Accelerate: it prepares, saves the whole state after each epoch, and goes on from there."""

import os
import shutil
import sys
import time

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 3


class Epoch:
    done = 0

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, state):
        self.done = state["done"]


def main():
    pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    set_seed(0)
    inputs = torch.randn(256, 8)
    data = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True).sin()), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(data))
    model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
    epoch = Epoch()
    accelerator.register_for_checkpointing(epoch)
    if os.path.isdir("state"):
        accelerator.load_state("state")
    while epoch.done < EPOCHS:
        data.set_epoch(epoch.done)
        for number, (batch, targets) in enumerate(data):
            loss = nn.functional.mse_loss(model(batch), targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            time.sleep(pause)
            mean = accelerator.gather(loss.detach()).mean().item()
            if accelerator.is_main_process:
                print(f"step {epoch.done * len(data) + number} loss {mean:.8f}", flush=True)
        epoch.done += 1
        accelerator.save_state("state.new")
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            shutil.rmtree("state", ignore_errors=True)
            os.replace("state.new", "state")
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
