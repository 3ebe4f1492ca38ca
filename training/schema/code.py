"""The `environment.code` section: which code a job's ranks run, and where it came from. Pure pydantic."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from paceline.training.schema.parts import Part, at_most
from paceline.training.schema.spelling import SpellingRule

MOST_CHANGED, MOST_PATH = 100, 300
Digest = Annotated[
    str,
    SpellingRule(
        r"^[0-9a-f]{64}$",
        "the SHA-256 of a bundle, 64 hexadecimal digits",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ),
]


class Code(Part):
    """The folder that was sent along with the job. Only `bundle` has an effect: the rest is for people."""

    bundle: Digest = Field(description="The folder's content, as `paceline submit --workdir` has stored it.")
    folder: str | None = Field(None, max_length=MOST_PATH, description="Name of the folder where it came from.")
    commit: str | None = Field(None, max_length=64, description="Commit of git that was checked out.")
    branch: str | None = Field(None, max_length=MOST_PATH, description="Branch of git that was checked out.")
    uncommitted: Annotated[tuple[str, ...], at_most(MOST_CHANGED)] = Field(
        (), max_length=MOST_CHANGED, description="Files that differed from the commit, the first hundred."
    )
