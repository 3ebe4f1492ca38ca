"""`scripts/setup` on a machine whose Python or Node is too old."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts import setup_project
from scripts.steps import ROOT, StepError

OLD = """#!/bin/sh
case "$2" in *python_version*) echo 3.10.12 ;; *) exit 1 ;; esac
"""


@pytest.mark.parametrize(("interpreters", "told"), [((), "on PATH; install"), (("python3",), "on PATH, python3 is 3.10.12; install")])
def test_it_is_refused_with_what_was_found_and_the_way_out(tmp_path: Path, interpreters: tuple[str, ...], told: str) -> None:
    for tool in ("bash", "dirname"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(found)
    for name in interpreters:
        (tmp_path / name).write_text(OLD)
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts" / "setup"], env={**os.environ, "PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("setup failed: no Python 3.11 or newer with the venv module")
    assert told in done.stderr


@pytest.mark.parametrize("version", ["v18.20.4", "v20.18.3"])
def test_a_node_that_is_too_old_is_refused_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    for tool, text in (("node", f"#!/bin/sh\necho {version}\n"), ("npm", "#!/bin/sh\n")):
        (tmp_path / tool).write_text(text)
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(StepError, match=f"node is {re.escape(version)}; install Node 20.19 or newer"):
        setup_project._node()
