"""The wheel, installed into an empty virtual environment and used from another folder: nothing of the checkout is in reach."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.stack import ROOT
from tests.e2e.wheels import Installed, build_wheel, installed
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


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
        here.borrow_packages()
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
