"""The lines of README.md's section "By hand", as they stand there. What they would take from the network must be here already: pip and npm
are told to look no further. Of pytest's lines all tests are collected, and those of one module run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]
DASHBOARD = ROOT / "dashboard"
START_SECONDS, LINE_SECONDS = 150, 280

pytestmark = pytest.mark.timeout(300)


def section() -> list[str]:
    text = (ROOT / "README.md").read_text().partition("## By hand\n")[2].partition("\n## ")[0]
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def line(word: str) -> str:
    (found,) = (each for each in section() if word in each)
    return found


def run(command: str, *, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a line in a shell whose `python`, `pip` and `pytest` are those of this environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command, shell=True, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=LINE_SECONDS, check=False
    )


def plain(printed: str) -> str:
    """Without colours, which Vite and Vitest print wherever the variable CI is set, to a file too."""
    return re.sub(r"\x1b\[[0-9;]*m", "", printed)


@contextmanager
def running(command: str, log: Path, **environment: str) -> Iterator[Path]:
    """A line that stays, ended with all that it started."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with log.open("w") as output:
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=ROOT,
            env={**os.environ, "PATH": path, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield log
        finally:
            os.killpg(process.pid, 15)
            process.wait(START_SECONDS)


def test_the_section_has_the_lines_that_people_know() -> None:
    assert section() == [
        "pip install -r requirements.txt",
        "python -m uvicorn api.main:app --reload --host 0.0.0.0 --port 8000",
        "cd dashboard && npm install && npm run dev",
        "MOCK_DB=true python -m uvicorn api.main:app --reload --port 8000",
        "pytest tests/api/ -v --cov=api --cov-report=html",
        "pytest tests/distributed/ -v",
        "cd dashboard && npm run test",
    ]


def test_the_requirements_have_all_that_the_lines_need() -> None:
    done = run(line("pip install") + " --dry-run --no-index --quiet")
    assert done.returncode == 0, done.stderr
    names = {re.split(r"[=<>\[ ]", each)[0] for each in (ROOT / "requirements.txt").read_text().splitlines()}
    assert {"pytest", "pytest-cov", "pytest-asyncio", "uvicorn", "torch"} <= names


@pytest.mark.parametrize(("word", "module"), [("tests/api/", "test_constants"), ("tests/distributed/", "test_frames")])
def test_pytest_takes_the_line(word: str, module: str, tmp_path: Path) -> None:
    command = line(word).replace("--cov-report=html", f"--cov-report=html:{tmp_path}/html")
    done = run(f"COVERAGE_FILE={tmp_path}/coverage {command} -k {module} -p no:cacheprovider")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    passed, left_out = re.search(r"(\d+) passed.*, (\d+) deselected", done.stdout).groups()  # type: ignore[union-attr]
    assert int(passed) > 0
    assert int(left_out) > 50
    report = tmp_path / "html" / "index.html"
    assert ("--cov" in command) is report.is_file()
    if report.is_file():
        assert int(re.search(r'class="pc_cov">(\d+)%', report.read_text()).group(1)) > 0  # type: ignore[union-attr]


def test_the_dashboards_tests_run(tmp_path: Path) -> None:
    assert (DASHBOARD / "node_modules").is_dir(), "npm install"
    done = run(line("npm run test") + " -- src/lib/numbers.test.ts")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "1 passed" in plain(done.stdout)


def test_the_printed_link_signs_in_where_the_dashboard_is_served(tmp_path: Path) -> None:
    """`npm run dev` is at another port here than 3000, which may be taken; it passes on what the browser would ask for at port 3000."""
    port, served = free_port(), free_port()
    coordinator = line("0.0.0.0").replace("0.0.0.0", "127.0.0.1").replace("8000", str(port))
    dashboard = line("npm run dev").replace("npm install", "npm install --offline --dry-run") + f" -- --port {served} --strictPort"
    here = {"PACELINE_DATA": str(tmp_path / "data"), "PACELINE_DASHBOARD": str(tmp_path / "nothing"), "DATABASE_URL": ""}
    with running(coordinator, tmp_path / "coordinator.log", **here) as printed:
        told = r"http://localhost:3000/login\?token=(\S+)"
        wait_until(lambda: re.search(told, printed.read_text()) is not None, "the login link", seconds=START_SECONDS)
        token = re.search(told, printed.read_text())[1]  # type: ignore[index]
        with running(dashboard, tmp_path / "dashboard.log", PACELINE_URL=f"http://127.0.0.1:{port}") as log:
            wait_until(lambda: f":{served}/" in plain(log.read_text()), "npm run dev", seconds=START_SECONDS)
            with httpx.Client(base_url=f"http://127.0.0.1:{served}", timeout=LINE_SECONDS) as browser:
                assert '<div id="root">' in browser.get("/login").text
                answer = browser.post("/api/v1/auth/login", json={"token": token})
                assert answer.json()["role"] == "admin", answer.text
                assert browser.get("/api/v1/auth/me").json()["name"] == "admin"


@pytest.mark.slow("a coordinator and the dashboard's server, as the page starts them")
def test_a_cluster_to_look_at_is_typed_as_it_stands_and_leaves_nothing(tmp_path: Path) -> None:
    """The printed address was the coordinator's own, which says 503 where no dashboard is built."""
    port, served = free_port(), free_port()
    mock = line("MOCK_DB").replace("8000", str(port))
    dashboard = line("npm run dev").replace("npm install", "npm install --offline --dry-run") + f" -- --port {served} --strictPort"
    with running(mock, tmp_path / "mock.log", PACELINE_DASHBOARD=str(tmp_path / "nothing")) as printed:
        wait_until(lambda: "No sign-in from this machine" in printed.read_text(), "the address", seconds=START_SECONDS)
        said = printed.read_text()
        assert "No sign-in from this machine: http://localhost:3000, while npm run dev is at work" in said
        folder = Path(re.search(r"a database in (\S+) that is gone", said)[1])  # type: ignore[index]
        assert folder.is_dir()
        with running(dashboard, tmp_path / "dashboard.log", PACELINE_URL=f"http://127.0.0.1:{port}") as log:
            wait_until(lambda: f":{served}/" in plain(log.read_text()), "npm run dev", seconds=START_SECONDS)
            with httpx.Client(base_url=f"http://127.0.0.1:{served}", timeout=LINE_SECONDS) as browser:
                assert browser.get("/api/v1/auth/me").json()["name"] == "guest"
                assert browser.get("/api/v1/cluster/nodes").status_code == 200
    wait_until(lambda: not folder.exists(), "the database to go", seconds=START_SECONDS)


# --- what is too old is refused in a sentence


def test_pip_refuses_an_old_python_in_words(tmp_path: Path) -> None:
    """The line of requirements.txt, as an old Python reads it."""
    (refusal,) = (each for each in (ROOT / "requirements.txt").read_text().splitlines() if "python_version" in each)
    (tmp_path / "requirements.txt").write_text(refusal.replace('< "3.11"', '>= "3.11"'))
    done = run(f"pip install --dry-run --no-index -r {shlex.quote(str(tmp_path / 'requirements.txt'))}")
    assert done.returncode != 0
    assert "Paceline-needs-Python-3.11-or-newer" in done.stderr


def test_npm_refuses_an_old_node_in_words(tmp_path: Path) -> None:
    for name in ("package-lock.json", ".npmrc"):
        shutil.copy(DASHBOARD / name, tmp_path)
    package = json.loads((DASHBOARD / "package.json").read_text())
    (tmp_path / "package.json").write_text(json.dumps(package | {"engines": {"node": ">=99"}}))
    done = run("npm install --offline --dry-run", folder=tmp_path)
    assert done.returncode != 0
    assert 'Required: {"node":">=99"}' in done.stderr
