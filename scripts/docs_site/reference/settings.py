"""The page of the coordinator's settings, from their class."""

from __future__ import annotations

from pathlib import Path

from pydantic import AliasChoices, ByteSize
from pydantic.fields import FieldInfo

from paceline.api.settings import Settings
from scripts.docs_site.reference.markdown import code, sentence, table
from scripts.steps import ROOT

OPENING = """# Settings of the coordinator

Each is an environment variable of the process that runs the coordinator (`paceline up`, or uvicorn); an empty one is as one that is not
set. `paceline config explain` shows which value is in effect for the command line, and where it comes from. [What is kept](../storage.md) says what
`PACELINE_KEEP_*` and `PACELINE_DISK_LOW` do.

"""


def page() -> str:
    prefix = str(Settings.model_config.get("env_prefix", ""))
    rows = [(code(variable(prefix, name, field)), code(default(field)), sentence(field.description or "")) for name, field in fields()]
    return OPENING + table(("Variable", "Default", "Meaning"), rows)


def fields() -> list[tuple[str, FieldInfo]]:
    return list(Settings.model_fields.items())


def variable(prefix: str, name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        alias = str(alias.choices[0])
    return alias if isinstance(alias, str) else f"{prefix}{name}".upper()


def default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value == "":
        return ""
    if isinstance(value, ByteSize):
        return value.human_readable()
    if isinstance(value, Path) and value.is_absolute():
        return str(value.relative_to(ROOT)) if value.is_relative_to(ROOT) else value.name
    return str(value).lower() if isinstance(value, bool) else str(value)
