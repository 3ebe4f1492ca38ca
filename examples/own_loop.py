"""A training loop of one's own on scikit-learn's digits. The same file runs in all three ways:

    python own_loop.py --batch-size 64
    torchrun --nproc-per-node 2 own_loop.py --strategy fsdp --batch-size 32
    paceline submit own_loop.yaml

The batch size is that of each rank. With the same product of ranks, batch size and accumulation the losses are the same to rounding: each
update is computed from the same images, on any number of ranks. Started again with a checkpoint directory, it goes on where it was.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import paceline

HELD_OUT_EVERY = 5
SEED = 0


def main() -> None:
    options = arguments()
    images, labels, held_out = digits()
    torch.manual_seed(SEED)
    trainer = paceline.Trainer(
        network(),
        strategy=options.strategy,
        mixed_precision=options.precision,
        gradient_accumulation_steps=options.accumulate,
        gradient_clip_val=options.clip,
        activation_checkpointing=options.activation_checkpointing,
        checkpoint_dir=options.checkpoint_dir,
        log_dir=options.log_dir,
    )
    optimizer = torch.optim.AdamW(trainer.model.parameters(), lr=options.lr)
    if options.checkpoint_dir is not None:
        trainer.load_checkpoint(optimizer)
    leads = paceline.world().rank == 0
    while trainer.next_step < options.steps:
        chosen = own_part(trainer.next_step, options.batch_size, len(labels))
        update = trainer.train_step((images[chosen], labels[chosen]), optimizer, F.cross_entropy, trainer.next_step)
        if update is not None and leads:
            print(f"step {update.step} loss {update.loss:.7f} norm {update.gradient_norm:.5f}", flush=True)
        if options.save_every is not None and trainer.next_step % options.save_every == 0:
            trainer.save_checkpoint(optimizer)
    with trainer.evaluation() as model:
        images, labels = (part.to(trainer.device) for part in held_out)
        accuracy = (model(images).argmax(-1) == labels).float().mean().item()
    if leads:
        paceline.log(trainer.next_step, eval_accuracy=accuracy)
    trainer.close()


def own_part(step: int, batch_size: int, samples: int) -> Tensor:
    """Return the indices of the samples in this rank's batch number `step`: all ranks' batches of a step lie side by side in the epoch's order."""
    world = paceline.world()
    first = (step * world.world_size + world.rank) * batch_size
    places = torch.arange(first, first + batch_size)
    orders = {epoch: epoch_order(epoch, samples) for epoch in (places // samples).unique().tolist()}
    return torch.stack([orders[place // samples][place % samples] for place in places.tolist()])


def epoch_order(epoch: int, samples: int) -> Tensor:
    return torch.randperm(samples, generator=torch.Generator().manual_seed(SEED + epoch))


def digits() -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Images (samples, 1, 8, 8) in [0, 1], their labels, and both of those held out."""
    found = load_digits()
    images, labels = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16, torch.tensor(found.target)
    held_out = torch.arange(len(labels)) % HELD_OUT_EVERY == 0
    return images[~held_out], labels[~held_out], (images[held_out], labels[held_out])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", default="ddp", help="single, ddp or fsdp")
    parser.add_argument("--batch-size", type=int, default=32, help="images of each rank in a batch")
    parser.add_argument("--steps", type=int, default=200, help="batches of each rank")
    parser.add_argument("--precision", default="fp32", help="fp32, bf16 or fp16")
    parser.add_argument("--accumulate", type=int, default=1, help="batches in one update")
    parser.add_argument("--clip", type=float, default=1.0, help="largest norm of the gradients")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--activation-checkpointing", default="none", help="none, selective or full")
    parser.add_argument("--checkpoint-dir", help="save here, and go on from what is here")
    parser.add_argument("--save-every", type=int, help="batches between checkpoints")
    parser.add_argument("--log-dir", help="TensorBoard's event files")
    return parser.parse_args()


if __name__ == "__main__":
    main()
