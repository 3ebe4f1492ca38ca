"""The images and the compose file in use, where there is no container engine: what the Dockerfile says, done in chroots. Needs root and debootstrap."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.faults import network
from scripts.images.dockerfile import parse
from scripts.images.roots import ImageBuilder
from scripts.images.wheels import download_index
from scripts.services import postgres_programs
from tests.deploy.compose_rig import ROOT, ComposeRig
from tests.e2e.stack import wait_until

pytestmark = [pytest.mark.release, pytest.mark.timeout(1800)]
#: The size of its files. Debian with Python is a third of it, numpy a fifth: docs/deploy/compose.md has the table.
COORDINATOR_MB = 250
JOB: dict[str, Any] = {
    "name": "composed",
    "resources": {"nodes": 2},
    "model": {"kind": "mlp"},
    "data": {"kind": "digits"},
    "training": {"steps": 3000, "global_batch_size": 32},
    "checkpoint": {"every_steps": 500},
}


def lacking() -> str | None:
    programs = ("debootstrap", "unshare", "nsenter", "nginx", "redis-server", "node", "npm")
    missing = [name for name in programs if shutil.which(name) is None] + ([] if postgres_programs() else ["postgresql"])
    return network.lacking() or (f"not installed: {', '.join(missing)}" if missing else None)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageBuilder]:
    if reason := lacking():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("images")
    wheels = folder / "wheels"
    wheels.mkdir()
    download_index(["torch==2.13.0"], wheels)
    folder.chmod(0o755)
    yield ImageBuilder(parse((ROOT / "Dockerfile").read_text()), ROOT, folder, {"TORCH_INDEX": "file:///run/build/shared"}, wheels)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def rig(images: ImageBuilder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeRig]:
    """Everything that `docker compose up` starts, in the order of the file's conditions."""
    folder = tmp_path_factory.mktemp("compose")
    for each in (folder, *folder.parents):  # Debian's PostgreSQL runs as a user of its own
        if each.stat().st_mode & 0o055 != 0o055:
            each.chmod(each.stat().st_mode | 0o055)
    with ComposeRig(images, folder, {"POSTGRES_PASSWORD": "unused"}) as rig:
        rig.start_postgres()
        rig.start_redis()
        rig.once("certificates")
        for name in ("coordinator-1", "coordinator-2"):
            rig.start(name)
        for name in ("coordinator-1", "coordinator-2"):
            rig.wait_until_healthy(name)
        rig.start_proxy()
        for number in (1, 2):
            rig.once(f"enroll-{number}")
            rig.start(f"agent-{number}")
        yield rig


def test_the_coordinators_image_is_small_and_has_nothing_that_installs_or_draws(images: ImageBuilder) -> None:
    root = images.build("coordinator")
    megabytes = int(subprocess.check_output(["du", "-sm", "--apparent-size", root.folder], text=True).split()[0])
    assert megabytes < COORDINATOR_MB
    site_packages = root.folder / "opt/paceline/lib/python3.11/site-packages"
    packages = {path.name for path in site_packages.iterdir()}
    assert {"paceline", "optuna"} <= packages
    assert not {"torch", "pip", "setuptools", "mkdocs", "matplotlib"} & packages
    assert not (root.folder / "usr/bin/apt-get").exists()
    assert (site_packages / "paceline/dashboard/docs/index.html").is_file()


def test_a_job_trains_on_two_agents_and_outlives_a_coordinator(rig: ComposeRig, tmp_path: Path) -> None:
    for name in ("agent-1", "agent-2"):
        rig.wait_until_healthy(name)
    key = rig.execute("coordinator-1", "python", "-m", "paceline.api.admin", "api-key", "--name", "test")
    assert key.returncode == 0, key.stderr
    secret = yaml.safe_load(key.stdout)["key"]
    shared = ["env", "PACELINE_SERVER=https://proxy:8443", f"PACELINE_API_KEY={secret}", "PACELINE_CA_FILE=/tls/ca.pem", "paceline"]
    spec = rig.volume("checkpoints") / "job.yaml"
    spec.write_text(yaml.safe_dump(JOB))
    os.chmod(spec, 0o644)

    def paceline(*words: str) -> str:
        done = rig.execute("agent-1", *shared, *words)
        assert done.returncode == 0, done.stdout + done.stderr + rig.log("coordinator-2")
        return done.stdout

    wait_until("both agents to join", lambda: paceline("nodes", "--json").count('"ready"') == 2, 90, every=1)
    paceline("submit", "/checkpoints/job.yaml")
    wait_until("the first steps", lambda: '"running"' in paceline("show", "composed", "--json"), 120, every=0.5)
    rig.kill("coordinator-1")
    assert '"running"' in paceline("show", "composed", "--json")
    paceline("wait", "composed", "--timeout", "50")
    assert '"completed"' in paceline("show", "composed", "--json")
    (newest, *_) = yaml.safe_load(paceline("checkpoints", "list", "composed", "--json"))
    downloaded = yaml.safe_load(paceline("checkpoints", "download", newest["id"], "--into", "/tmp/downloaded", "--json"))
    assert downloaded["step"] == JOB["training"]["steps"]
    listed = rig.execute("agent-1", "tar", "--list", "--file", downloaded["file"])
    assert listed.stdout.split()[-1].endswith("/manifest.json"), listed.stderr
    assert rig.is_healthy("coordinator-2")
    assert rig.is_healthy("agent-2")
