"""The `model` section of a model of transformers. Pure pydantic, without the package."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field, JsonValue, model_validator

from paceline.training.models.hf.configuration import why_not_a_configuration
from paceline.training.schema.parts import Part, Path, Whole, inconsistent


class HfModel(Part):
    """A causal language model of Hugging Face transformers, which must be installed on the nodes: new, from its configuration (`config`), or
    with the weights of a local folder (`path`: config.json and safetensors). Nothing is downloaded, and no code of the folder is run."""

    kind: Literal["hf"] = "hf"
    config: dict[str, JsonValue] | None = Field(
        None, description="As in a config.json: model_type (llama, gpt2, ...) and what differs from its defaults."
    )
    path: Path | None = Field(None, description="Absolute path of a folder on every node, as save_pretrained writes it.")
    context: Whole = Field(128, ge=8, le=1_048_576, description="Tokens per sequence.")

    @model_validator(mode="after")
    def check_source(self) -> HfModel:
        if (self.config is None) == (self.path is None):
            raise inconsistent("give exactly one of config (a new model) and path (a folder with config.json and safetensors)")
        if self.path is not None and not PurePosixPath(self.path).is_absolute():
            raise inconsistent("model.path={path} is not an absolute path", path=self.path)
        if self.config is not None and (why := why_not_a_configuration(self.config)):
            raise inconsistent("model.config: {why}", why=why)
        if self.config is not None and not isinstance(self.config.get("model_type"), str):
            raise inconsistent("model.config has no model_type; give one that transformers knows, such as llama or gpt2")
        return self
