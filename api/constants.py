"""What the dashboard shares with the coordinator beside types: `python -m paceline.api.constants > dashboard/src/lib/constants.generated.ts`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from paceline.api.schemas.job_lists import VIEW_NAME
from paceline.api.services.specs.job_words import FAILURE_WORDS
from paceline.cluster.states import TERMINAL_JOB_STATES, JobState
from paceline.training.spec.conflicts import OF_COMPRESSION


def typescript() -> str:
    """A module of constants, each with the type that the generated API types give it."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "/** Generated from the coordinator's code by `python -m paceline.api.constants`; never edited. */"
    yield 'import type { JobState } from "./types";'
    yield ""
    yield f"export const JOB_STATES: readonly JobState[] = {_array(list(JobState))};"
    yield ""
    yield f"export const TERMINAL_JOB_STATES: readonly JobState[] = {_array([state for state in JobState if state in TERMINAL_JOB_STATES])};"
    yield ""
    yield "/** How a rank ended, by the kind of its failure. */"
    yield "export const FAILURE_WORDS: Readonly<Record<string, string>> = {"
    yield from (f"  {kind}: {json.dumps(words)}," for kind, words in FAILURE_WORDS.items())
    yield "};"
    yield ""
    yield "/** The compressions that a field of `communication` is for; a field that is not here is for all. */"
    yield "export const OF_COMPRESSION: Readonly<Record<string, readonly string[]>> = {"
    yield from (f"  {field}: {json.dumps(compressions)}," for field, compressions in OF_COMPRESSION.items())
    yield "};"
    yield ""
    yield "/** How the name of a saved view is spelled: for machines, and in words. */"
    yield f"export const VIEW_NAME = {{ pattern: {json.dumps(VIEW_NAME.pattern)}, rule: {json.dumps(VIEW_NAME.rule)} }};"


def _array(states: list[JobState]) -> str:
    return "".join(["[\n", *(f"  {json.dumps(state.value)},\n" for state in states), "]"])


if __name__ == "__main__":
    sys.stdout.write(typescript())
