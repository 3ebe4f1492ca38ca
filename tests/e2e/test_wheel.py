"""The wheel, installed into an empty virtual environment and used from another folder: nothing of the checkout is in reach."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.stack import ROOT
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Installed:
    """A virtual environment with Paceline, and a folder of somebody who knows nothing else of it."""

    python: Path
    home: Path

    def run(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "PYTHON"))}
        command = [str(self.python.parent / "paceline"), *arguments]
        return subprocess.run(
            command,
            cwd=self.home,
            env=kept | {"HOME": str(self.home), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def expect(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "build.cfg").write_text(f"[build]\nbuild_base={folder}/build\n[egg_info]\negg_base={folder}\n")
    environment = os.environ | {"DIST_EXTRA_CONFIG": str(folder / "build.cfg")}
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
    subprocess.run(command, env=environment, check=True, timeout=120)
    return next(folder.glob("*.whl"))


def installed(folder: Path, *packages: str | Path) -> Installed:
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True, timeout=500, stderr=subprocess.DEVNULL)
    (folder / "home").mkdir()
    return Installed(python, folder / "home")


def test_it_has_one_top_level_name_and_what_is_no_python(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"paceline"}
    listed = subprocess.run(
        ["git", "ls-files", "examples", "db/migrations"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    wanted = {
        "dashboard/index.html",
        "training/data/digits.csv.gz",
        "cluster/agent/main.py",
        "examples/experiments/ddp_vs_fsdp.yaml",
        *listed,
    }
    assert {f"paceline/{name}" for name in wanted} - set(names) == set()


def test_the_coordinator_alone_needs_no_torch(wheel: Path, tmp_path: Path) -> None:
    here = installed(tmp_path, wheel)
    done = here.run("up", "--port", str(free_port()))
    assert done.returncode != 0
    assert "an agent on this machine needs torch, and this Python has none" in done.stderr
    assert "pip install 'paceline[worker]', or start the coordinator alone with --agents 0" in done.stderr
    try:
        here.expect("up", "--agents", "0", "--port", str(free_port()))
        assert json.loads(here.expect("jobs", "--json")) == []
    finally:
        here.expect("down")


#: The packages of this Python are lent to the other one, but for Paceline itself: the wheel's own requirements are installed in `make test-all`.
@pytest.mark.parametrize("own_requirements", [False, pytest.param(True, marks=pytest.mark.release)])
def test_a_job_trains_and_its_page_is_there(wheel: Path, tmp_path: Path, page: Page, own_requirements: bool) -> None:
    here = installed(tmp_path, *([f"{wheel}[worker]"] if own_requirements else ["--no-deps", wheel]))
    if not own_requirements:
        (next((tmp_path / "venv").glob("lib/python*/site-packages")) / "lent.pth").write_text(sysconfig.get_path("purelib"))
    try:
        link = re.search(r"http://\S+/login\?token=\S+", here.expect("up", "--port", str(free_port()), "--agents", "1"))
        assert link is not None
        said = here.expect("demo", "--help") + here.expect("submit", str(_spec(here)), "--follow")
        assert "completed" in said
        page.goto(link.group())
        page.get_by_role("link", name="from-a-wheel").first.click()
        expect(page.get_by_text("completed").first).to_be_visible()
    finally:
        here.expect("down")


def _spec(here: Installed) -> Path:
    """The data that comes with the package, and a few steps."""
    spec = here.home / "job.yaml"
    training = "{steps: 5, global_batch_size: 32, eval_every_steps: null}"
    spec.write_text(f"name: from-a-wheel\nmodel: {{kind: mlp}}\ndata: {{kind: digits}}\ntraining: {training}\n")
    return spec
