"""Causal language models of Hugging Face transformers, new or from a local folder. Nothing is downloaded, no code of a folder is run.

The package is optional and imported late: it takes seconds, and only the ranks that train such a model must have it.
"""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from paceline.distributed.torch_private import FakeTensorMode
from paceline.training.errors import InvalidInputError
from paceline.training.models.hf.config import HfModel

REQUIREMENT = "transformers==5.23.0"
#: How much of the package's own messages is quoted: some list every model that there is.
MOST_NAMES = 5
MOST_CHARACTERS = 300


def build(spec: HfModel) -> nn.Module:
    """Build the model in fp32, whatever the weights are stored in, with the package's own parameter names; ready to train."""
    require_package()
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError
    from transformers.utils import logging

    logging.disable_progress_bar()  # its monitor is a thread, and a log is no terminal
    try:
        config = read_config(spec)
        require_context(config, spec.context)
        model = new_model(config) if spec.path is None else trained_model(Path(spec.path), config)
    except (ValueError, TypeError, LookupError, OSError, ImportError, StrictDataclassError, SafetensorError) as error:
        raise InvalidInputError(f"model kind hf, {source_of(spec)}: {beginning_of(error)}") from error
    return model.train()


def flops_per_sample(model: nn.Module, context: int) -> float | None:
    """Forward and backward, as torch counts them on a copy of the model without numbers; a multiply-add as two, attention as plain products.
    None: experts, whose products torch does not count, and what cannot be computed without numbers; the job's output says so."""
    config: Any = model.config
    try:
        if any(name.endswith("experts") for name, _ in model.named_modules()):
            raise NotImplementedError("torch does not count the products of experts")
        with FakeTensorMode(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            new_model(config)(torch.zeros(1, context, dtype=torch.int64)).logits.sum().backward()
    except Exception as error:  # noqa: BLE001 - of any model that there is; it trains all the same
        print(f"no MFU: what {config.model_type} computes is not counted: {beginning_of(error)}", flush=True)
        return None
    return float(counter.get_total_flops())


def vocabulary_of(model: nn.Module) -> int:
    """Return the number of rows of the embedding."""
    embedding = model.get_input_embeddings()  # type: ignore[operator]
    assert isinstance(embedding, nn.Embedding)
    return embedding.num_embeddings


def require_package() -> None:
    if importlib.util.find_spec("transformers") is None:
        raise InvalidInputError(f"model kind hf needs transformers on every node; run `pip install {REQUIREMENT}` there")


def read_config(spec: HfModel) -> Any:
    from transformers import AutoConfig

    if spec.path is not None:
        require_folder(Path(spec.path))
        config = AutoConfig.from_pretrained(spec.path, local_files_only=True, trust_remote_code=False)
    else:
        assert spec.config is not None
        config = AutoConfig.for_model(**spec.config)
        require_known(config, spec.config)
    config.use_cache = False  # of keys and values, for generation
    return config


def require_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise InvalidInputError(f"model.path={folder} has no config.json on this node; give a folder as save_pretrained writes it")
    if not any(folder.glob("*.safetensors")):
        raise InvalidInputError(
            f"model.path={folder} has no weights as safetensors; save them with save_pretrained, or give model.config for a new model"
        )


def require_known(config: Any, given: Mapping[str, JsonValue]) -> None:
    """The package keeps what it does not know as an attribute that nothing reads."""
    from transformers import AutoConfig

    known = AutoConfig.for_model(config.model_type).to_dict().keys()
    for stray in sorted(given.keys() & config.to_dict().keys() - known):
        close = difflib.get_close_matches(stray, known, n=1)
        correction = f"write {close[0]}, or leave it out" if close else "leave it out"
        raise InvalidInputError(f"model.config: {stray} means nothing to {config.model_type}; {correction}")


def require_context(config: Any, context: int) -> None:
    longest = getattr(config, "max_position_embeddings", None)
    if isinstance(longest, int) and context > longest:
        raise InvalidInputError(
            f"model.context={context} is longer than the model's max_position_embeddings={longest}; use {longest} or less"
        )


def new_model(config: Any) -> nn.Module:
    """Initialized from torch's default generator."""
    from transformers import AutoModelForCausalLM

    model: nn.Module = AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    return model


def trained_model(folder: Path, config: Any) -> nn.Module:
    """Load a model with every weight from `folder`. Raises an error for a missing weight, which would otherwise silently be drawn at
    random."""
    from transformers import AutoModelForCausalLM

    model, report = AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        dtype=torch.float32,
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
        ignore_mismatched_sizes=True,  # told by the report
        output_loading_info=True,
    )
    wrong = {kind: sorted(map(str, report[f"{kind}_keys"])) for kind in ("missing", "unexpected", "mismatched")}
    found = "; ".join(f"{kind} {', '.join(names[:MOST_NAMES])}" for kind, names in wrong.items() if names)
    if found:
        raise InvalidInputError(
            f"model.path={folder}: the weights do not fit its config.json ({found}); give the folder of this very model"
        )
    trained: nn.Module = model
    return trained


def source_of(spec: HfModel) -> str:
    return f"path {spec.path}" if spec.config is None else f"config of {spec.config['model_type']}"


def beginning_of(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} …"
