"""The example specs that Paceline comes with."""

from __future__ import annotations

from pathlib import Path

from paceline.location import EXAMPLES

FOLDER = "examples"
FIRST_SPEC = "gpt_stdlib.yaml"
FIRST_EXPERIMENT = "experiments/ddp_vs_fsdp.yaml"


def first_spec() -> str | None:
    """The path of a spec to begin with, as it is to be typed in this folder; None: the examples are not on this machine."""
    return _typed(FIRST_SPEC)


def first_experiment() -> str | None:
    """The path of an experiment to begin with, as `first_spec` tells that of a job."""
    return _typed(FIRST_EXPERIMENT)


def _typed(name: str) -> str | None:
    if (Path(FOLDER) / name).is_file():
        return f"{FOLDER}/{name}"
    shipped = EXAMPLES.resolve() / name
    return str(shipped) if shipped.is_file() else None
