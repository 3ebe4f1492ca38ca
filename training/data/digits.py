"""The 1,797 test images of "Optical Recognition of Handwritten Digits", 8x8 pixels each (E. Alpaydin and C. Kaynak, UCI Machine Learning
Repository, 1998, CC BY 4.0), the same table that scikit-learn has. It lies beside this file: 64 pixels from 0 to 16 and a label in each line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from paceline.training.data.sampler import derive_seed
from paceline.training.schema.data import Digits
from paceline.training.task import Batch

TABLE = Path(__file__).with_name("digits.csv.gz")
SPLIT_SEED = 1_797
LARGEST_PIXEL = 16.0
SIDE = 8
#: Mean and standard deviation of all pixels of the enlarged digits.
MEAN, DEVIATION = 0.305, 0.324


class Images:
    """Tensors in memory, without augmentation."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        return self.images[indices], self.labels[indices]


def load(data: Digits) -> tuple[Images, Images]:
    """Training and held-out images; the split is the same on every machine and for every job seed."""
    table = torch.from_numpy(read_table())
    images, labels = table[:, :-1] / LARGEST_PIXEL, table[:, -1].long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(derive_seed(SPLIT_SEED)))
    held_out, train = order.tensor_split([max(1, int(data.holdout * len(labels)))])
    return Images(images[train], labels[train]), Images(images[held_out], labels[held_out])


def enlarged(small: Images, side: int) -> Images:
    """Return the digits as images of one channel, `side` by `side` pixels: (samples, 1, side, side)."""
    images = F.interpolate(small.images.view(-1, 1, SIDE, SIDE), size=(side, side), mode="bilinear", align_corners=False)
    return Images(images, small.labels)


def coloured(small: Images, side: int) -> Images:
    """Return the digits as colour images, as models of photographs take them: (samples, 3, side, side), mean 0 and deviation 1."""
    large = enlarged(small, side)
    return Images((large.images - MEAN).div_(DEVIATION).expand(-1, 3, -1, -1).contiguous(), large.labels)


def read_table() -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Rows of 64 pixels and a label."""
    with gzip.open(TABLE, "rt") as file:
        return np.loadtxt(file, delimiter=",", dtype=np.float32)
