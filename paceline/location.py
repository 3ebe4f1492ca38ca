"""Where this package lies. Imports nothing of it, so that everything may import this."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
#: The folder that holds it: a checkout, or `site-packages`. Processes of Paceline's own are started here, so that no folder of a user hides it.
ROOT = PACKAGE.parent
#: In a checkout these are links; a wheel carries their files.
DASHBOARD = PACKAGE / "dashboard"
EXAMPLES = PACKAGE / "examples"
#: The folder of a rank that may hold a link to PACKAGE (`cluster.agent.spawner.rank_process`). Hidden, so that no files of the job are sought there.
LINKED = ".package"


def is_ours(file: str) -> bool:
    """Return whether the source file with this path belongs to Paceline. Its examples do not: they are programs as users write them."""
    _, linked, below = file.partition(f"/{LINKED}/{PACKAGE.name}/")
    if linked:
        file = str(PACKAGE / below)
    return file.startswith(f"{PACKAGE}/") and not file.startswith(f"{EXAMPLES}/")
