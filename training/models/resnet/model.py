"""The residual networks of He et al. 2015: for CIFAR (section 4.2: depth 6n + 2, three stages, identity shortcuts) and for ImageNet (`imagenet.py`).

The micro-batch is what batch norm sees, so the statistics of a forward pass do not depend on the world.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from paceline.training.models.resnet import imagenet
from paceline.training.models.resnet.config import ResnetModel

CLASSES = 10


def build(spec: ResnetModel) -> Resnet:
    return Resnet(spec)


class Resnet(nn.Module):
    """`stem`, which ends before its ReLU in the CIFAR form, `stages`, one block after another, and `head`."""

    def __init__(self, spec: ResnetModel) -> None:
        super().__init__()
        if spec.form == "imagenet":
            self._build_for_imagenet(spec)
        else:
            self._build_for_cifar(spec)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def _build_for_imagenet(self, spec: ResnetModel) -> None:
        self.stem = nn.Sequential(*normed(imagenet.stem(spec.width)), nn.ReLU(), nn.MaxPool2d(imagenet.POOL_KERNEL, 2, 1))
        self.stages = nn.Sequential(*(ProjectedBlock(block) for block in imagenet.blocks(spec.depth, spec.width)))
        self.head = nn.Linear(imagenet.features(spec.depth, spec.width), CLASSES)

    def _build_for_cifar(self, spec: ResnetModel) -> None:
        blocks = (spec.depth - 2) // 6
        widths = (spec.width, 2 * spec.width, 4 * spec.width)
        self.stem = convolution(3, spec.width, stride=1)
        stages: list[nn.Module] = []
        fan_in = spec.width
        for width in widths:
            stages.append(ResidualBlock(fan_in, width, stride=width // fan_in))
            stages += [ResidualBlock(width, width, stride=1) for _ in range(blocks - 1)]
            fan_in = width
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(widths[-1], CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Map (batch, 3, height, width) to logits (batch, 10)."""
        hidden = self.stages(F.relu(self.stem(images)))
        logits: Tensor = self.head(hidden.mean(dim=(2, 3)))
        return logits


class ResidualBlock(nn.Module):
    def __init__(self, fan_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = convolution(fan_in, width, stride)
        self.second = convolution(width, width, stride=1)
        self.stride, self.padding = stride, width - fan_in

    def forward(self, hidden: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(hidden))) + self.shortcut(hidden))

    def shortcut(self, hidden: Tensor) -> Tensor:
        """Option A: subsample, and pad the new channels with zeros; no parameters."""
        if self.stride == 1 and self.padding == 0:
            return hidden
        return F.pad(hidden[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.padding))


def convolution(fan_in: int, fan_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(fan_in, fan_out, 3, stride, padding=1, bias=False), nn.BatchNorm2d(fan_out))


class ProjectedBlock(nn.Module):
    """A block of the ImageNet form, whose shortcut is a convolution where the shape changes (option B)."""

    def __init__(self, block: imagenet.Block) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for each in block.convolutions:
            layers += [*normed(each), nn.ReLU()]
        self.inside = nn.Sequential(*layers[:-1])
        self.shortcut = nn.Identity() if block.shortcut is None else nn.Sequential(*normed(block.shortcut))

    def forward(self, hidden: Tensor) -> Tensor:
        return F.relu(self.inside(hidden) + self.shortcut(hidden))


def normed(each: imagenet.Convolution) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    made = nn.Conv2d(each.fan_in, each.fan_out, each.kernel, each.stride, padding=each.kernel // 2, bias=False)
    return made, nn.BatchNorm2d(each.fan_out)
