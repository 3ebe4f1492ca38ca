"""The `data` section: the data sets that are built in. Pure pydantic."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from paceline.training.schema.object_store import ObjectStoreOptions, check_place
from paceline.training.schema.parts import Part, Path, Real, Text, absent, inconsistent
from paceline.training.schema.spelling import SpellingRule

Sha256 = Annotated[
    str,
    SpellingRule(
        r"^[0-9a-f]{64}$", "64 hexadecimal digits, in lower case", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    ),
]


class StdlibText(Part):
    """The source text of the installed Python standard library, as bytes: real text that every machine has."""

    kind: Literal["stdlib_text"] = "stdlib_text"
    holdout: Real = Field(0.1, gt=0.0, lt=1.0, description="Share of files held out for evaluation.")


class Tokens(Part):
    """Token files that `paceline data tokenize` has made, memory-mapped; the same ones in the same place on every node, or in an object
    store, from which each node fetches them once."""

    kind: Literal["tokens"] = "tokens"
    path: Path = Field(description="Absolute folder on the nodes, or a place in an object store: s3://BUCKET/PREFIX, gs://, az://.")
    options: ObjectStoreOptions | None = Field(
        None, description="Set where the object store is. Credentials come from the nodes' environment, never from here.", exclude_if=absent
    )
    holdout: Real = Field(0.1, ge=0.0, lt=1.0, description="Share of documents held out for evaluation. 0: no evaluation.")
    sha256: Sha256 | None = Field(
        None, description="SHA-256 of the manifest, as `paceline data tokenize` prints it. Nodes with other files refuse to train."
    )
    verify: bool = Field(False, description="Compare every byte with its SHA-256 on every rank before training. Sizes are always compared.")

    @model_validator(mode="after")
    def check_path(self) -> Tokens:
        check_place("data.path", self.path, self.options)
        return self


class Digits(Part):
    """scikit-learn's 1,797 real 8x8 digits; a resnet gets them enlarged to the 32x32 pixels in three colours that it takes."""

    kind: Literal["digits"] = "digits"
    holdout: Real = Field(0.2, gt=0.0, lt=1.0)


class Mnist(Part):
    """MNIST from a local folder (`path`, its four files), or fetched once by each node that has a network."""

    kind: Literal["mnist"] = "mnist"
    path: Path | None = Field(None, description="Folder on the nodes. Default: fetched into the agent's cache.")
    fallback: Literal["digits"] | None = Field(
        None, description="Without MNIST, train on the enlarged digits that come with Paceline, and say so. For jobs on one node."
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
