"""The names of variables that an agent may be told to pass on to its ranks, besides the usual ones (`paceline worker --pass-env`). Pure."""

from __future__ import annotations

import re

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Never passed on: they speak for the node, or for its owner, to the coordinator.
NEVER = frozenset({"PACELINE_JOIN_TOKEN", "PACELINE_API_KEY", "PACELINE_SECRETS_KEY", "PACELINE_SECRETS_KEY_FILE"})


def why_not_passed(name: str) -> str | None:
    """The reason why a name, or a beginning of names that ends with `*`, cannot be given; None: it can."""
    if not _VARIABLE.fullmatch(name.removesuffix("*")):
        return f"{name!r} is not the name of a variable; give NAME, or PREFIX* for all whose names begin so, without values"
    if name in NEVER:
        return f"{name} is never passed to ranks: it speaks for this node or its owner"
    return None
