"""Files that real ranks leave: whole and once, whoever is killed meanwhile; and the tab that shows them."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.axe import findings
from tests.e2e.stack import Stack, wait_until
from tests.ports import free_port
from tests.processes import command_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

MEBIBYTE = 1 << 20
LARGE = 96
#: Leaves what is in `contents` beside it, and goes on until it is told to end.
LEAVER = """
import os, shutil, sys, time
from pathlib import Path
import paceline

here, kept = Path(sys.argv[1]), Path(os.environ["PACELINE_ARTIFACTS"])
if os.environ["RANK"] == "0":
    shutil.copytree(here / "contents", kept, dirs_exist_ok=True)
    paceline.log_artifact(here / "contents" / "a.txt", "logged/by name.txt")
print("left", flush=True)
while not (here / "end").exists():
    time.sleep(0.02)
(kept / f"last-{os.environ['RANK']}.txt").write_text("written at the very end")
if (here / "die").exists():
    os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def stack(empty_stack: Stack) -> Stack:
    empty_stack.up(free_port(), agents=2)
    return empty_stack


def leave(stack: Stack, folder: Path, contents: dict[str, bytes], **changes: Any) -> str:
    """Submit a job whose rank 0 leaves these files, and which ends once there is a file `end` in `folder`."""
    for name, content in contents.items():
        file = folder / "contents" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    (folder / "leave.py").write_text(LEAVER)
    script = {"path": "leave.py", "args": [str(folder)]}
    return stack.submit({"name": "leaver", "script": script, "environment": {"working_directory": str(folder)}, **changes})


def listed(stack: Stack, job_id: str) -> dict[str, dict[str, Any]]:
    page = stack.get(f"/training/jobs/{job_id}/files", recursive=True, limit=1000)
    assert page["next_cursor"] is None
    return {item["path"]: item for item in page["items"]}


def arrived(stack: Stack, job_id: str, names: set[str]) -> dict[str, dict[str, Any]]:
    """The job's files, once all of these are there."""

    def all_there() -> dict[str, dict[str, Any]] | None:
        found = listed(stack, job_id)
        return found if names <= found.keys() else None

    return wait_until(f"{len(names)} files", all_there, 120, every=0.3)


def content(stack: Stack, job_id: str, path: str) -> bytes:
    answer = stack.client.get(f"/training/jobs/{job_id}/files/content", params={"path": path})
    assert answer.status_code == 200, answer.text
    return answer.content


def kill_agents(stack: Stack) -> None:
    """Kill the agents with SIGKILL, and nothing else: spawners and ranks live on."""
    agents = [process for process in stack.processes() if "paceline.cluster.agent.main" in command_of(process)]
    assert agents
    for agent in agents:
        agent.kill()
    for agent in agents:
        agent.wait(10)


def test_files_arrive_whole_and_once_though_agents_and_coordinator_are_killed_meanwhile(stack: Stack, tmp_path: Path) -> None:
    contents = {"large.bin": os.urandom(LARGE * MEBIBYTE), "a.txt": b"a", "deep/er/b.txt": b"b"} | {
        f"many/{number:03}": bytes([number % 256]) * number for number in range(400)
    }
    job_id = leave(stack, tmp_path, contents, resources={"nodes": 2})
    wait_until("the upload to begin", lambda: stack.get(f"/training/jobs/{job_id}/files")["arriving"], 60, every=0.02)
    kill_agents(stack)
    stack.up(stack.port, agents=2)
    wait_until("it to go on", lambda: stack.get(f"/training/jobs/{job_id}/files")["arriving"], 60, every=0.02)
    stack.kill_coordinator()
    stack.up(stack.port, agents=2)
    (tmp_path / "end").touch()
    stack.wait_for_state(job_id, "completed")
    names = {f"rank0/{name}" for name in contents} | {"rank0/logged/by name.txt", "rank0/last-0.txt", "rank1/last-1.txt"}
    found = arrived(stack, job_id, names)
    assert found.keys() == names
    for name, expected in contents.items():
        assert found[f"rank0/{name}"]["sha256"] == hashlib.sha256(expected).hexdigest()
    assert hashlib.sha256(content(stack, job_id, "rank0/large.bin")).digest() == hashlib.sha256(contents["large.bin"]).digest()
    assert stack.get(f"/training/jobs/{job_id}/files")["arriving"] == 0


def test_what_a_rank_has_left_arrives_after_it_was_killed(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "die").touch()
    (tmp_path / "end").touch()
    job_id = leave(stack, tmp_path, {"a.txt": b"a"}, fault_tolerance={"max_restarts": 0})
    stack.wait_for_state(job_id, "failed")
    arrived(stack, job_id, {"rank0/a.txt", "rank0/last-0.txt"})
    assert content(stack, job_id, "rank0/last-0.txt") == b"written at the very end"


def test_the_command_brings_them_and_goes_on_where_it_broke_off(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "end").touch()
    contents = {"model.bin": os.urandom(3 * MEBIBYTE), "eval/ü.csv": b"x,y\n1,2\n", "a.txt": b"a"}
    job_id = leave(stack, tmp_path, contents)
    stack.wait_for_state(job_id, "completed")
    arrived(stack, job_id, {"rank0/last-0.txt", *(f"rank0/{name}" for name in contents)})
    access = ("--server", stack.server, "--api-key", stack.api_key)
    part = tmp_path / "out" / "rank0" / f"model.bin.{hashlib.sha256(contents['model.bin']).hexdigest()[:8]}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(contents["model.bin"][:1_000_000])
    done = stack.paceline("artifacts", "download", job_id, "--into", str(tmp_path / "out"), *access)
    assert done.returncode == 0, done.stderr
    for name, expected in contents.items():
        assert (tmp_path / "out" / "rank0" / name).read_bytes() == expected


def test_the_tab_shows_folders_previews_and_downloads(stack: Stack, page: Page, tmp_path: Path) -> None:
    (tmp_path / "end").touch()
    contents = {
        "eval/scores.csv": b'class,"f, 1"\ncat,0.9\n',
        "a.txt": b"plain <b>text</b>",
        "page.html": b"<script>document.title='x'</script>",
    }
    job_id = leave(stack, tmp_path, contents)
    stack.wait_for_state(job_id, "completed")
    arrived(stack, job_id, {f"rank0/{name}" for name in contents})
    page.goto(stack.login_link())
    page.wait_for_url("**/jobs*")
    page.goto(f"{stack.server}/jobs/{job_id}")
    page.get_by_role("tab", name="Artifacts").click()
    page.get_by_role("button", name="rank0", exact=True).click()
    page.get_by_role("button", name="a.txt", exact=True).click()
    expect(page.get_by_role("dialog").get_by_text("plain <b>text</b>")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="page.html", exact=True).click()
    expect(page.get_by_role("dialog").get_by_text("There is no preview of this file.")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("dialog").get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "page.html"
    assert Path(download.value.path()).read_bytes() == contents["page.html"]
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="eval", exact=True).click()
    page.get_by_role("button", name="scores.csv", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("columnheader", name="f, 1")).to_be_visible()
    assert findings(page) == []
    page.get_by_role("button", name="Close").click()
    page.get_by_role("navigation", name="Folder").get_by_role("button", name="Artifacts").click()
    with page.expect_download() as archive:
        page.get_by_role("link", name="Download all").click()
    with zipfile.ZipFile(archive.value.path()) as packed:
        assert packed.read("rank0/eval/scores.csv") == contents["eval/scores.csv"]
    assert findings(page) == []
