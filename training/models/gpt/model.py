"""A pre-norm decoder: rotary positions (Su et al. 2021), SwiGLU (Shazeer 2020), RMSNorm, no biases."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.training.models.gpt.config import GptModel
from paceline.training.models.gpt.sizes import swiglu_width


def build(spec: GptModel) -> Gpt:
    return Gpt(spec)


class Gpt(nn.Module):
    cosine: Tensor
    sine: Tensor

    def __init__(self, spec: GptModel) -> None:
        super().__init__()
        self.spec = spec
        self.embedding = nn.Embedding(spec.vocab_size, spec.dim)
        self.blocks = nn.ModuleList(TransformerBlock(spec) for _ in range(spec.layers))
        self.norm = nn.RMSNorm(spec.dim)
        self.head = nn.Linear(spec.dim, spec.vocab_size, bias=False)
        if spec.tied_embeddings:
            self.head.weight = self.embedding.weight
        self.dropout = nn.Dropout(spec.dropout)
        cosine, sine = rotary_angles(spec.context, spec.dim // spec.heads)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)
        initialize(self, spec.layers)

    def forward(self, tokens: Tensor) -> Tensor:
        """Token ids (batch, time) to logits (batch, time, vocabulary); time is at most the context."""
        hidden = self.dropout(self.embedding(tokens))
        for block in self.blocks:
            hidden = block(hidden, self.cosine, self.sine)
        logits: Tensor = self.head(self.norm(hidden))
        return logits


class TransformerBlock(nn.Module):
    def __init__(self, spec: GptModel) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(spec.dim)
        self.attention = Attention(spec.dim, spec.heads)
        self.feed_forward_norm = nn.RMSNorm(spec.dim)
        self.feed_forward = FeedForward(spec.dim)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        hidden = hidden + self.dropout(self.attention(self.attention_norm(hidden), cosine, sine))
        update: Tensor = self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))
        return hidden + update


class Attention(nn.Module):
    """The projections. How many heads there are is read from their outputs, so that they may be cut by heads."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.head_size = dim // heads
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(dim, dim, bias=False)
        self.mixer: nn.Module = CausalAttention()
        self.output = nn.Linear(dim, dim, bias=False)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        query, key, value = (self.by_head(project(hidden)) for project in (self.query, self.key, self.value))
        mixed = self.mixer(query, key, value, cosine, sine)
        attended: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return attended

    def by_head(self, projected: Tensor) -> Tensor:
        """Reshape (batch, time, heads * head size) to (batch, heads, time, head size)."""
        batch, time, _ = projected.shape
        return projected.view(batch, time, -1, self.head_size).transpose(1, 2)


class CausalAttention(nn.Module):
    """The part of attention that depends on positions: their rotation, and which positions attend to which."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Attend; inputs are (batch, heads, time, head size), and the angles (context, head size / 2) of all possible positions."""
        cosine, sine = cosine[: query.shape[2]], sine[: query.shape[2]]
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)


class FeedForward(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        width = swiglu_width(dim)
        self.gate = nn.Linear(dim, width, bias=False)
        self.up = nn.Linear(dim, width, bias=False)
        self.down = nn.Linear(width, dim, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        output: Tensor = self.down(F.silu(self.gate(hidden)) * self.up(hidden))
        return output


def rotary_angles(context: int, head_size: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine (time, head size / 2) of the rotary position embedding, base 10,000."""
    frequencies = 10_000.0 ** (-torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
    angles = torch.outer(torch.arange(context, dtype=torch.float64), frequencies)
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1).to(x.dtype)


def initialize(model: Gpt, layers: int) -> None:
    """Normal(0, 0.02); what adds to the residual stream is scaled down by its depth (Radford et al. 2019)."""
    for name, parameter in model.named_parameters():
        if parameter.ndim >= 2:
            residual = name.endswith(("output.weight", "down.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)
