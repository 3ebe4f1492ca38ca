"""What is said, wherever a user looks, of the steps that a script did twice where nothing tells how many they were."""

from __future__ import annotations

import re
from typing import Any

from tests.e2e.stack import Stack

UNKNOWN = "all ranks restarted as generation 2; the number of repeated steps is unknown: the script does not report each step"
#: Words that name a step to go on from, or a number of steps.
_CLAIM = re.compile(r"no step was lost|\bfrom step \d|\d steps? (had to be|was|were|lost)|\bstarts? (over|anew)")


def assert_unknown(stack: Stack, job_id: str, incident: dict[str, Any]) -> None:
    """Look through the incident of a script's only kill, the goodput, the history, and what the command line shows."""
    told = (incident["resumed_step"], incident["steps_lost"], incident["seconds_lost"], incident["done"])
    assert told == (None, None, None, UNKNOWN), incident
    account = stack.get(f"/training/jobs/{job_id}/goodput")
    assert (account["goodput"], account["text"]) == (None, "not known: a script does not tell how long its steps take")
    assert "redone" not in {part["cause"] for part in account["parts"]}
    history = stack.get(f"/training/jobs/{job_id}/events", limit=200)["items"]
    claims = [event for event in history if _CLAIM.search(f"{event['cause']} {event.get('message', '')}")]
    assert not claims
    for command in ("incidents", "show"):
        shown = stack.paceline(command, job_id, "--server", stack.server, "--api-key", stack.api_key)
        assert shown.returncode == 0, shown.stderr
        assert re.search(r" recovered +[\d.]+ s +unknown +rank 1 on ", shown.stdout), shown.stdout
        assert not _CLAIM.search(shown.stdout), shown.stdout
