"""The `data` section: the data sets that are built in. Pure pydantic."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from paceline.training.schema.parts import Part, Path, Real, Text, inconsistent
from paceline.training.schema.spelling import Spelling

Sha256 = Annotated[
    str,
    Spelling(r"^[0-9a-f]{64}$", "64 hexadecimal digits, in lower case", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
]


class StdlibText(Part):
    """The source text of the installed Python standard library, as bytes: real text that every machine has."""

    kind: Literal["stdlib_text"] = "stdlib_text"
    holdout: Real = Field(0.1, gt=0.0, lt=1.0, description="share of files held out for evaluation")


class Tokens(Part):
    """Token files that `paceline data tokenize` has made, memory-mapped; the same ones in the same place on every node."""

    kind: Literal["tokens"] = "tokens"
    path: Path = Field(description="absolute folder on the nodes")
    holdout: Real = Field(0.1, ge=0.0, lt=1.0, description="share of documents held out for evaluation; 0: no evaluation")
    sha256: Sha256 | None = Field(
        None, description="of its manifest, as `paceline data tokenize` tells it: a node that has other files refuses to train"
    )
    verify: bool = Field(False, description="every rank compares every byte with its SHA-256 before it starts; sizes are compared anyway")

    @field_validator("path")
    @classmethod
    def check_path(cls, path: str) -> str:
        if not PurePosixPath(path).is_absolute():
            raise inconsistent("data.path={path} is not an absolute path", path=path)
        return path


class Digits(Part):
    """scikit-learn's 1,797 real 8x8 digits; a resnet gets them enlarged to the 32x32 pixels in three colours that it takes."""

    kind: Literal["digits"] = "digits"
    holdout: Real = Field(0.2, gt=0.0, lt=1.0)


class Mnist(Part):
    """MNIST from a local folder (`path`, its four files), or fetched once by each node that has a network."""

    kind: Literal["mnist"] = "mnist"
    path: Path | None = Field(None, description="folder on the nodes; default: fetched into the agent's cache")
    fallback: Literal["digits"] | None = Field(
        None, description="where there is no MNIST: train on the digits that come with Paceline, enlarged, and say so; for jobs on one node"
    )


class Cifar10(Part):
    """CIFAR-10 from a local folder (`path`, the python-version batches), from a Hugging Face dataset (`dataset`), or fetched once by each
    node that has a network."""

    kind: Literal["cifar10"] = "cifar10"
    path: Path | None = None
    dataset: Annotated[Text, Field(max_length=200)] | None = None
    augment: bool = True

    @model_validator(mode="after")
    def check_source(self) -> Cifar10:
        if self.path is not None and self.dataset is not None:
            raise inconsistent(
                "give path (a folder with data_batch_1..5 and test_batch) or dataset (a Hugging Face id), not both; without them it is fetched"
            )
        return self


Data = Annotated[StdlibText | Tokens | Digits | Mnist | Cifar10, Field(discriminator="kind")]
