"""The residual networks for ImageNet of He et al. 2015, table 1, block by block: basic blocks at depths 18 and 34, bottlenecks at 50. Pure.

Of a bottleneck the 3x3 convolution has the stride, as in torchvision; shortcuts that change the shape are 1x1 convolutions (option B).
"""

from __future__ import annotations

from dataclasses import dataclass

#: Blocks of the four stages, by depth.
STAGES = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
BOTTLENECKS = (50,)
#: Channels of a bottleneck's result, in units of its width.
EXPANSION = 4
STEM_KERNEL, POOL_KERNEL = 7, 3


@dataclass(frozen=True)
class Convolution:
    """A convolution without bias, and the batch norm behind it."""

    fan_in: int
    fan_out: int
    kernel: int = 3
    stride: int = 1

    @property
    def weights(self) -> int:
        return self.kernel**2 * self.fan_in * self.fan_out

    @property
    def parameters(self) -> int:
        return self.weights + 2 * self.fan_out


@dataclass(frozen=True)
class Block:
    name: str
    convolutions: tuple[Convolution, ...]
    shortcut: Convolution | None  # None: the identity

    @property
    def stride(self) -> int:
        return max(each.stride for each in self.convolutions)

    @property
    def all(self) -> tuple[Convolution, ...]:
        return self.convolutions if self.shortcut is None else (*self.convolutions, self.shortcut)


def stem(width: int) -> Convolution:
    return Convolution(3, width, STEM_KERNEL, 2)


def blocks(depth: int, width: int) -> list[Block]:
    """Return the blocks behind the stem and its pooling, in order."""
    found, fan_in = [], width
    for stage, count in enumerate(STAGES[depth]):
        for number in range(count):
            block = block_of(f"block {stage}.{number}", depth, fan_in, width << stage, stride=2 if stage and number == 0 else 1)
            found.append(block)
            fan_in = block.convolutions[-1].fan_out
    return found


def block_of(name: str, depth: int, fan_in: int, width: int, stride: int) -> Block:
    inside: tuple[Convolution, ...]
    if depth in BOTTLENECKS:
        fan_out = EXPANSION * width
        inside = (Convolution(fan_in, width, 1), Convolution(width, width, 3, stride), Convolution(width, fan_out, 1))
    else:
        fan_out = width
        inside = (Convolution(fan_in, width, 3, stride), Convolution(width, width))
    changes = stride > 1 or fan_in != fan_out
    return Block(name, inside, Convolution(fan_in, fan_out, 1, stride) if changes else None)


def features(depth: int, width: int) -> int:
    """Return the channels that the head sees."""
    return blocks(depth, width)[-1].convolutions[-1].fan_out
