"""What is sent to a machine runs there by a bare Python, which has neither Paceline nor any package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from paceline.cluster.provisioners.ssh.program import call_program, node_program

#: Without site-packages, the environment and the current folder.
BARE = [sys.executable, "-I", "-S"]


def test_a_function_is_called_and_its_answer_is_the_last_line(tmp_path: Path) -> None:
    program = call_program("look", [str(tmp_path), ["it's", 'a "b"']])
    done = subprocess.run([*BARE, "-"], input=program, text=True, capture_output=True, timeout=60, cwd="/")
    assert done.returncode == 0, done.stderr
    gone = {"phase": "ended", "reason": "it is not on this machine any more"}
    assert json.loads(done.stdout.splitlines()[-1]) == {"it's": gone, 'a "b"': gone}


def test_a_node_is_started_by_one_file(tmp_path: Path) -> None:
    node = tmp_path / "nodes" / "n"
    node.mkdir(parents=True)
    order = {"folder": str(tmp_path), "name": "n", "key": "k", "wheel": "none.whl", "environment": "", "python": "/no/python", "token": "t"}
    (node / "order.json").write_text(json.dumps(order))
    (node / "run.py").write_text(node_program())
    done = subprocess.run([*BARE, str(node / "run.py"), str(node)], text=True, capture_output=True, timeout=60, cwd="/")
    assert done.returncode == 1, done.stderr
    status = json.loads((node / "status.json").read_text())
    assert (status["phase"], status["reason"].partition(" (")[0]) == (
        "ended",
        "there is no /no/python on this machine; give `python` of an interpreter that is there",
    )
