"""The residual network for CIFAR of He et al. 2015, section 4.2: depth 6n + 2, three stages, identity shortcuts.

The micro-batch is what batch norm sees, so the statistics of a forward pass do not depend on the world.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from paceline.training.models.resnet.config import ResnetModel

CLASSES = 10


def build(spec: ResnetModel) -> Resnet:
    return Resnet(spec)


class Resnet(nn.Module):
    def __init__(self, spec: ResnetModel) -> None:
        super().__init__()
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
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Map (batch, 3, 32, 32) to logits (batch, 10)."""
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
