"""The field `pass_env` of providers: which variables of the agents' environments their ranks get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from paceline.cluster.passed_variables import why_not_passed
from paceline.training.schema.parts import Text, at_most, inconsistent

MOST_NAMES = 64


def _check(name: str) -> str:
    if (why := why_not_passed(name)) is not None:
        raise inconsistent("{why}", why=why)
    return name


PassedNames = Annotated[list[Annotated[Text, Field(min_length=1, max_length=256), AfterValidator(_check)]], at_most(MOST_NAMES)]
DESCRIPTION = "Variables of the agents that their ranks get besides the usual ones: names, or PREFIX* for all that begin so. No values."


def pass_env_words(names: Sequence[str]) -> list[str]:
    """The words of `paceline worker` for these names."""
    return ["--pass-env", ",".join(names)] if names else []
