"""Tells from names of variables which of them hold secrets. Pure, and without pydantic: agents ask it too."""

from __future__ import annotations

from collections.abc import Mapping

#: What a variable with one of these in its name holds is taken for a secret.
SECRETS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "_KEY", "_AUTH", "_JWT")
#: Has one of them in it, and nothing to do with secrets.
_HARMLESS = "TOKENIZER"


def names_a_secret(name: str) -> bool:
    """Whether a variable of this name is taken to hold a secret."""
    rest = name.upper().replace(_HARMLESS, "")
    return any(word in rest for word in SECRETS)


def readable_secrets(variables: Mapping[str, str]) -> list[str]:
    """The names of those variables whose values are taken for secrets. A number, a word for yes or no, or an absolute path is none."""
    return sorted(name for name, value in variables.items() if names_a_secret(name) and not _is_harmless(value))


def _is_harmless(value: str) -> bool:
    if not value or value.startswith("/") or value.lower() in ("true", "false", "none"):
        return True
    try:
        float(value)
    except ValueError:
        return False
    return True
