"""Into how many shards a GPT can be divided. Pure and torch-free: a job is refused at submit for the reasons that the ranks would have."""

from __future__ import annotations

from paceline.parallelism.tensor_context.division import explain_indivisible
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.gpt.sizes import swiglu_width


def why_not_sharded(model: GptModel, *, tensor: int = 1, context: int = 1) -> str | None:
    """Return which size does not divide by `tensor` or `context`, with the way out; None if all do."""
    if reason := explain_indivisible(divided_by_tensor(model), tensor):
        return reason
    parts = tensor * (2 * context if context > 1 else 1)
    if model.context % parts:
        below, above = model.context // parts * parts, -(-model.context // parts) * parts
        lengths = f"{below} or {above}" if below else f"{above}"
        made_of = f"tensor={tensor} x 2 chunks x context={context}" if context > 1 else f"tensor={tensor}"
        return f"a context of {model.context} tokens does not divide by {made_of}; use {lengths} tokens"
    return None


def divided_by_tensor(model: GptModel) -> dict[str, int]:
    return {"heads": model.heads, "feed-forward width": swiglu_width(model.dim), "vocab_size": model.vocab_size}
