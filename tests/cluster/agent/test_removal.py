"""Whatever a rank leaves in its folder can be removed, and nothing beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.cluster.agent.removal import remove_tree

#: Deeper than Python calls itself, in a path longer than the kernel takes (4,096 bytes).
DEPTH = 3_000
DIG = """
import os, sys
for _ in range(int(sys.argv[1])):
    os.mkdir("below")
    os.chdir("below")
open("file", "w").close()
"""


def test_a_folder_of_any_depth_goes(tmp_path: Path) -> None:
    doomed = tmp_path / "doomed"
    doomed.mkdir()
    subprocess.run([sys.executable, "-c", DIG, str(DEPTH)], cwd=doomed, check=True, timeout=60)
    remove_tree(doomed)
    assert list(tmp_path.iterdir()) == []


def test_what_a_link_leads_to_stays(tmp_path: Path) -> None:
    outside, doomed = tmp_path / "outside", tmp_path / "doomed"
    (outside / "folder").mkdir(parents=True)
    (outside / "file").write_text("kept")
    (doomed / "deep").mkdir(parents=True)
    for place in (doomed, doomed / "deep"):
        (place / "to-folder").symlink_to(outside)
        (place / "to-file").symlink_to(outside / "file")
        (place / "to-nothing").symlink_to(tmp_path / "nowhere")
    remove_tree(doomed)
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (outside / "file").read_text() == "kept"


def test_sockets_pipes_and_names_that_are_no_text_go(tmp_path: Path) -> None:
    doomed = tmp_path / "doomed"
    (doomed / "deep").mkdir(parents=True)
    os.mkfifo(doomed / "deep" / "pipe")
    os.mkdir(os.fsencode(doomed) + b"/\xff\xfe")
    (doomed / "same" / "same" / "same").mkdir(parents=True)
    remove_tree(doomed)
    assert not doomed.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which needs root")
def test_folders_that_their_owner_may_not_write_in_go(tmp_path: Path) -> None:
    """As module caches are. No mode keeps root out, so a child does this as another user, where the test's own path is closed to it."""
    folder = os.open(tmp_path, os.O_RDONLY)
    tmp_path.chmod(0o777)
    if (child := os.fork()) == 0:
        os._exit(_remove_as_nobody(folder))
    os.close(folder)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert list(tmp_path.iterdir()) == []


def _remove_as_nobody(folder: int) -> int:
    os.fchdir(folder)
    os.setgid(65534)
    os.setuid(65534)
    deep = Path("doomed", "cache", "module")
    deep.mkdir(parents=True)
    (deep / "file").write_text("")
    for each, mode in ((deep, 0o000), (deep.parent, 0o500), (deep.parent.parent, 0o500)):
        each.chmod(mode)
    try:
        remove_tree(Path("doomed"))
    except OSError:
        return 1
    return 0


#: In a mount namespace of its own, which ends with it: nothing stays mounted, whatever happens.
REMOVE_BESIDE_MOUNT = """
import subprocess, sys
from pathlib import Path
from paceline.cluster.agent.removal import remove_tree
subprocess.run(["mount", "--bind", *sys.argv[1:3]], check=True)
try:
    remove_tree(Path(sys.argv[3]))
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts, which needs root")
@pytest.mark.parametrize("place", ["data", "deep/data"])
def test_the_files_of_what_is_mounted_in_a_folder_stay(tmp_path: Path, place: str) -> None:
    """As a script leaves it that has mounted its data in its own folder: the files right in it were deleted with the folder."""
    outside, doomed = tmp_path / "outside", tmp_path / "doomed"
    outside.mkdir()
    (outside / "file").write_text("kept")
    (doomed / place).mkdir(parents=True)
    command = ["unshare", "--mount", sys.executable, "-c", REMOVE_BESIDE_MOUNT, str(outside), str(doomed / place), str(doomed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "mount: " in done.stderr or "unshare: " in done.stderr:
        pytest.skip(f"this machine does not let root mount: {done.stderr}")
    assert (outside / "file").read_text() == "kept"
    assert done.stdout == "a file system is mounted there, whose files are not removed\n", done.stderr
    remove_tree(doomed)
    assert not doomed.exists()
