"""A pre-norm decoder: rotary positions (Su et al. 2021), SwiGLU (Shazeer 2020), RMSNorm, no biases."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.sizes import swiglu_width
from training.workload import GptModel


def build(spec: GptModel) -> Gpt:
    return Gpt(spec)


class Gpt(nn.Module):
    cosine: Tensor
    sine: Tensor

    def __init__(self, spec: GptModel) -> None:
        super().__init__()
        self.context = spec.context
        self.embedding = nn.Embedding(spec.vocab_size, spec.dim)
        self.blocks = nn.ModuleList(Block(spec) for _ in range(spec.layers))
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
        time = tokens.shape[1]
        hidden = self.dropout(self.embedding(tokens))
        for block in self.blocks:
            hidden = block(hidden, self.cosine[:time], self.sine[:time])
        logits: Tensor = self.head(self.norm(hidden))
        return logits


class Block(nn.Module):
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
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(dim, 3 * dim, bias=False)
        self.output = nn.Linear(dim, dim, bias=False)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, time, dim = hidden.shape
        projected = self.query_key_value(hidden).view(batch, time, 3, self.heads, dim // self.heads)
        query, key, value = projected.transpose(1, 3).unbind(2)  # (batch, heads, time, head size) each
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, time, dim))
        return attended


class FeedForward(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        width = swiglu_width(dim)
        self.gate_up = nn.Linear(dim, 2 * width, bias=False)
        self.down = nn.Linear(width, dim, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        gate, up = self.gate_up(hidden).chunk(2, dim=-1)
        output: Tensor = self.down(F.silu(gate) * up)
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
