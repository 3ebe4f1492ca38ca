"""A loop with paceline.Trainer, which runs under torchrun as it does here: two groups of parameters, a schedule, clipped gradients, checkpoints."""

import sys
import time

import torch
from torch import nn

import paceline

STEPS, SAVE_EVERY = 24, 4


class Net(nn.Module):
    def __init__(self, words=64, width=32):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.out = nn.Linear(width, words, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens):
        return self.out(self.layer(self.embedding(tokens)))


def batch_of(step):
    world = paceline.world()
    generator = torch.Generator().manual_seed(step * world.world_size + world.rank)
    tokens = (torch.randint(0, 64, (16, 1), generator=generator) + torch.arange(17) * 3) % 64
    return tokens[:, :-1], tokens[:, 1:]


def cross_entropy(output, targets):
    return nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten())


def main():
    pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    torch.manual_seed(0)
    trainer = paceline.Trainer(Net(), strategy="ddp", gradient_clip_val=1.0, checkpoint_dir="checkpoints")
    parameters = list(trainer.model.parameters())
    groups = [
        {"params": [each for each in parameters if each.ndim > 1], "weight_decay": 0.1},
        {"params": [each for each in parameters if each.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=100)
    trainer.load_checkpoint(optimizer, scheduler=schedule)
    while trainer.next_step < STEPS:
        update = trainer.train_step(batch_of(trainer.next_step), optimizer, cross_entropy, trainer.next_step)
        schedule.step()
        time.sleep(pause)
        if update and paceline.world().rank == 0:
            print(f"step {trainer.next_step - 1} loss {update.loss:.6f}", flush=True)
        if trainer.next_step % SAVE_EVERY == 0:
            trainer.save_checkpoint(optimizer, scheduler=schedule)
    trainer.close()


if __name__ == "__main__":
    main()
