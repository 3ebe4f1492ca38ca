"""docs/first_hour.md, typed line by line in one shell, with a rank killed, against a coordinator with two agents."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.stack import ROOT, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

PAGE = ROOT / "docs" / "first_hour.md"
PAGE_SECONDS = 300
#: The stack is there already, and the log of a job that trains for minutes is not read to its end.
LEFT_OUT = ("paceline up ", "paceline down", "paceline logs first --follow")


def lines_of_the_page() -> list[str]:
    text = re.sub(r"```.*?```", "", PAGE.read_text(), flags=re.DOTALL)
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return [line for line in lines if not line.startswith(LEFT_OUT)]


def test_every_line_of_the_page_works_as_it_stands(own_stack: Stack, tmp_path: Path) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "hello.py").write_text(script)
    for folder in ("examples", ".venv"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    lines = lines_of_the_page()
    assert len(lines) >= 15
    typed = "\n".join(f"printf '\\n>>> %s\\n' {shlex.quote(line)}\n{line}" for line in lines)
    shell = f'set -euo pipefail\npaceline() {{ {shlex.quote(sys.executable)} -m paceline.cli.main "$@"; }}\n{typed}'
    environment = {**os.environ, "PACELINE_API_KEY": own_stack.api_key, "PACELINE_SERVER": own_stack.server, "NO_COLOR": "1"}
    done = subprocess.run(
        ["timeout", str(PAGE_SECONDS), "bash", "-c", shell], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-3000:]}\n{done.stderr}"
    (first,) = own_stack.get("/training/jobs", q="first")["items"]
    assert first["state"] == "running"
    (script_job,) = own_stack.get("/training/jobs", status="completed")["items"]
    assert own_stack.get(f"/metrics/jobs/{script_job['id']}", names="loss")["curves"]
    incidents = own_stack.get(f"/training/jobs/{first['id']}/incidents")
    assert any(each["steps_lost"] == 0 and "SIGKILL" in each["what"] for each in incidents), incidents
