"""docs/curl.md, typed line by line in one shell, against a coordinator with two agents."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

import pytest

from tests.e2e.stack import ROOT, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

PAGE = ROOT / "docs" / "curl.md"
PAGE_SECONDS = 300
#: An answer that is no success ends the shell, and so does a wait that takes longer than the page.
PRELUDE = """set -euo pipefail
curl() { command curl --silent --show-error --fail-with-body --max-time 30 "$@"; }
"""


def lines_of_the_page() -> list[str]:
    return [line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    ")]


def test_every_line_of_the_page_works_as_it_stands(own_stack: Stack) -> None:
    assert shutil.which("curl"), "curl is not installed"
    lines = [line.replace("http://127.0.0.1:8000", own_stack.server) for line in lines_of_the_page()]
    assert sum(line.startswith("curl ") for line in lines) >= 35
    script = PRELUDE + "\n".join(f"printf '\\n>>> %s\\n' {shlex.quote(line)}\n{line}" for line in lines)
    environment = {**os.environ, "PACELINE_API_KEY": own_stack.api_key}
    done = subprocess.run(
        ["timeout", str(PAGE_SECONDS), "bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-3000:]}\n{done.stderr}"
    cancelled = own_stack.get("/training/jobs", sort="created_at", q="gpt-stdlib")["items"][0]["id"]
    own_stack.wait_for_state(cancelled, "cancelled")  # the page asks for it, and does not wait
    first, second = own_stack.get("/training/jobs", sort="created_at", q="gpt-stdlib")["items"]
    assert (first["state"], first["world_size"], second["name"]) == ("cancelled", 1, "gpt-stdlib-restored")
    restored = own_stack.job(second["id"])["restored_from"]
    assert own_stack.job(first["id"])["generations"][-1]["restored_checkpoint_id"] == restored
    (longer,) = own_stack.get("/training/jobs", q="-longer")["items"]
    assert own_stack.job(longer["id"])["restored_from"], "the best trial of the sweep goes on from its checkpoint"
