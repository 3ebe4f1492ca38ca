"""Into how many shards a causal language model of transformers can be divided. Pure, without the package: a job is refused at submit where its
configuration alone tells why, and on the ranks, which know all of its values, in the same words.
"""

from __future__ import annotations

from paceline.parallelism.tensor_context.division import explain_indivisible
from paceline.training.models.hf.sizes import LLAMA_LIKE, Config, llama_like

#: Families that transformers 5.23 has no plan over the tensor axis for; a test asks the package.
WITHOUT_PLAN = frozenset({"bloom", "codegen", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gptj", "mamba", "mamba2", "mpt", "opt"})
#: Dropout between the sharded matrices, by the names that families have for it.
INNER_DROPOUTS = ("attention_dropout", "attn_pdrop", "activation_dropout")
#: Families whose layers a pipeline can run one by one (`stages.py`).
IN_STAGES = frozenset({"gpt2", *LLAMA_LIKE})
CUT_SIZES = ("num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size")


def why_not_sharded(config: Config, tensor: int) -> str | None:
    """Return why a model with this configuration cannot be sharded into `tensor` parts, with the way out; None if the configuration
    allows it."""
    family = str(config.get("model_type"))
    if family in WITHOUT_PLAN:
        return without_plan(family, tensor)
    for name in INNER_DROPOUTS:
        share = config.get(name)
        if isinstance(share, int | float) and share > 0:
            return (
                f"{name}={share:g} with tensor={tensor} is not offered: every rank would drop the same places of its own heads or units; "
                f"set {name} to 0, or leave tensor at 1"
            )
    return explain_indivisible(divided_by_tensor(config), tensor)


def without_plan(family: str, tensor: int) -> str:
    return (
        f"tensor={tensor} goes by the model's own plan, and transformers has none for {family}; leave tensor at 1, or use fsdp for its size"
    )


def without_stages(family: str) -> str:
    known = ", ".join(sorted(IN_STAGES))
    return f"Paceline does not know where a model of family {family} may be cut into stages (it does for {known}); use ddp or fsdp without a pipeline"


def divided_by_tensor(config: Config) -> dict[str, int]:
    """Return the sizes that must divide by the tensor degree: of an unknown family, those that the configuration gives."""
    known = llama_like(config)
    values = vars(known) if known is not None else config
    return {name: size for name in CUT_SIZES if isinstance(size := values.get(name), int) and size > 0}
