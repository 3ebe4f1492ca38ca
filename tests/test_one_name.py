"""Every module of Paceline is loaded under one name: two would have two states."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Source files of ours that several module objects were made of. `api/__init__.py` has no state, and leads `api.main` to `paceline.api.main`.
TWICE = f"""
import collections, os, sys
modules = {{id(module): module for name, module in sys.modules.items() if name != "__main__" and getattr(module, "__file__", None)}}
files = collections.Counter(os.path.realpath(module.__file__) for module in modules.values())
ours = {{file.removeprefix("{ROOT}/"): times for file, times in files.items() if file.startswith("{ROOT}/") and "site-packages" not in file}}
assert len(ours) > 5, "nothing of ours was loaded"
print(sorted(file for file, times in ours.items() if times > 1 and file != "api/__init__.py"))
"""


def loaded_twice(statement: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\n{TWICE}"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "statement",
    [
        "import uvicorn; config = uvicorn.Config('api.main:app'); config.load()",
        "import api.main, paceline.api.main; assert api.main.app is paceline.api.main.app",
        "import paceline.cli.app, paceline.api.main, paceline.cluster.agent.main, paceline.training.main, paceline.db.migrate",
        "from paceline import *",
    ],
)
def test_nothing_is_loaded_twice(statement: str) -> None:
    assert loaded_twice(statement) == "[]"


def test_other_modules_of_the_api_are_not_found_under_the_name_of_its_folder() -> None:
    refused = "try:\n    import api.settings\nexcept ModuleNotFoundError as error:\n    assert error.name == 'api.settings'\nelse:\n    assert False"
    assert loaded_twice(refused) == "[]"


def test_these_tests_have_loaded_nothing_twice() -> None:
    names = [
        name for name in sys.modules if name.partition(".")[0] in {path.name for path in (ROOT / "paceline").iterdir() if path.is_symlink()}
    ]
    assert set(names) <= {"api", "api.main"}
