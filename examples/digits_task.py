"""An entrypoint: a model, data, loss and optimizer of one's own, trained by Paceline with all that it does for its own models.

A small convolutional network on scikit-learn's digits. Its first layer is a fixed edge filter that is not trained, and the head learns
faster than the rest. Nothing in here knows of ranks.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from paceline import Batch, JobSpec, Loss, Task

HELD_OUT_EVERY = 5
EDGES = [[[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]], [[-1.0, -2.0, -1.0], [0.0, 0.0, 0.0], [1.0, 2.0, 1.0]]]


class Digits:
    """8x8 images in [0, 1] with their labels; in training, shifted by up to a pixel."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        images = self.images[indices]
        if generator is not None:  # the only randomness allowed here: it is seeded by (seed, step, micro-batch)
            down, right = torch.randint(-1, 2, (2,), generator=generator).tolist()
            images = images.roll((down, right), dims=(-2, -1))
        return images, self.labels[indices]


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.edges = nn.Conv2d(1, 2, 3, padding=1, bias=False)
        self.edges.weight = nn.Parameter(torch.tensor(EDGES)[:, None], requires_grad=False)
        self.convolutions = nn.Sequential(nn.Conv2d(2, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU())
        self.head = nn.Linear(32 * 4 * 4, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Map (batch, 1, 8, 8) to logits (batch, 10)."""
        logits: Tensor = self.head(self.convolutions(self.edges(images)).flatten(1))
        return logits


def loss(model: nn.Module, batch: Batch) -> Loss:
    """The scalar mean over the batch that is minimized, and further means to report at evaluation."""
    images, labels = batch
    logits = model(images)
    return F.cross_entropy(logits, labels), {"accuracy": (logits.argmax(-1) == labels).float().mean()}


def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return AdamW with a learning rate for each group of parameters; the spec's schedule scales both."""
    assert isinstance(model, Network)
    body, head = model.convolutions.parameters(), model.head.parameters()
    return torch.optim.AdamW([{"params": body, "lr": 2e-3}, {"params": head, "lr": 5e-3}])


def make_task(spec: JobSpec) -> Task:
    """Build the task that `entrypoint: digits_task:make_task` names. Each rank calls this function, with random numbers seeded alike."""
    found = load_digits()
    images, labels = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16, torch.tensor(found.target)
    held_out = torch.arange(len(labels)) % HELD_OUT_EVERY == 0
    return Task(
        model=Network(),
        train=Digits(images[~held_out], labels[~held_out]),
        loss=loss,
        evaluation=Digits(images[held_out], labels[held_out]),
        optimizer=optimizer,
    )
