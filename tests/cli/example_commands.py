"""The examples of `paceline COMMAND --help` as words for a coordinator that answers by its schema (`schema_answers.py`)."""

from __future__ import annotations

import shlex

from paceline.cli.help_examples import EXAMPLES
from tests.cli.schema_answers import ID

#: Commands that start processes, write files, or wait for ever, and those that print nothing of the coordinator's.
LEFT_OUT = {
    "", "attach", "exec", "up", "down", "demo", "worker", "simulate", "backup", "run", "open", "export", "tensorboard", "profile", "login", "submit", "plan",
    "experiment run", "experiment plan", "experiment export", "experiment extend", "secret set", "nodes upgrade",
}  # fmt: skip
GROUPS_LEFT_OUT = {"db", "data", "config", "context"}
TYPED = [
    shlex.split(examples[0])[1:]
    for name, examples in EXAMPLES.items()
    if name not in LEFT_OUT and name.partition(" ")[0] not in GROUPS_LEFT_OUT
]


def typed(words: list[str]) -> list[str]:
    """The words with references that the coordinator knows; a question is not asked, and what goes on for ever is left out."""
    known = {"gpt-a": ID, "gpt-b": ID.replace("7Q", "8R"), "ddp-vs-fsdp": ID, "node-7": "gpt", "ci": "gpt"}
    asks = ["--yes"] if " ".join(words[:2]) in ("nodes drain", "nodes remove", "keys revoke") or words[0] in ("cancel", "delete") else []
    return [*(known.get(word, word) for word in words if word not in ("--follow", "--watch")), *asks]
