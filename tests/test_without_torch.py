"""What becomes of a test run without torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: As where the package is not installed: its import raises ModuleNotFoundError.
RUN = "import sys; sys.modules[sys.argv[1]] = None; import pytest; sys.exit(pytest.main(sys.argv[2:]))"


def collect_without(package: str, *paths: str) -> subprocess.CompletedProcess[str]:
    return run_without(package, "--collect-only", "-q", "-rs", *paths)


def run_without(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN, package, "-p", "no:cacheprovider", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False)


def test_modules_that_need_torch_are_skipped_and_named_and_the_others_run() -> None:
    done = collect_without("torch", "tests/distributed/test_env.py", "tests/distributed/test_store.py", "tests/parallelism/test_tree.py")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "torch is not installed" in done.stdout
    assert re.search(r"^tests/\S+::", done.stdout, re.MULTILINE), done.stdout


def test_the_protocol_of_parameter_servers_is_tested_without_torch() -> None:
    servers = "tests/distributed/parameter_server"
    files = [f"{servers}/test_{name}.py" for name in ("division", "messages", "shard_server")]
    files.append("tests/parallelism/parameter_server/test_aggregation.py")
    done = run_without("torch", "--noconftest", "-q", "-n", "0", *files)  # conftest.py would skip what needs torch
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search(r"\d+ passed in ", done.stdout), done.stdout[-3000:]


def test_a_module_that_needs_another_package_is_an_error_as_ever() -> None:
    done = collect_without("PIL", "tests/paceline/test_images.py")
    assert done.returncode == 2
    assert "ModuleNotFoundError" in done.stdout
