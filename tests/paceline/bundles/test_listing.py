"""Which files of a folder go into a bundle, as git would say it."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from paceline.bundles import listing
from paceline.bundles.errors import BundleError, BundleTooLargeError, NothingToPackError, UnpackableFileError
from paceline.bundles.ignoring import ENVIRONMENT_MARK, NEVER
from paceline.bundles.listing import list_files


def make(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def paths(folder: Path) -> list[str]:
    return [file.path for file in list_files(folder).files]


TREE = {
    "train.py": "print(1)",
    "pkg/model.py": "x",
    "pkg/__pycache__/model.cpython-311.pyc": "x",
    "old.pyc": "x",
    "data/huge.bin": "x",
    "runs/a.log": "x",
    "runs/keep.log": "x",
    "pkg/notes.txt": "x",
    "venv/pyvenv.cfg": "x",
    "venv/bin/python": "x",
    ".paceline/credentials.json": "secret",
    ".env": "x",
}


def test_ignore_files_are_obeyed_at_every_depth(tmp_path: Path) -> None:
    make(tmp_path, **TREE)
    make(tmp_path, **{".gitignore": "data/\n*.log\n!keep.log\n.env\n", "pkg/.gitignore": "*.txt\n", ".pacelineignore": "!.env\n"})
    found = list_files(tmp_path)
    assert [file.path for file in found.files] == [
        ".env", ".gitignore", ".pacelineignore", "pkg/.gitignore", "pkg/model.py", "runs/keep.log", "train.py",
    ]  # fmt: skip
    assert found.left_out == (".paceline/", "data/", "old.pyc", "pkg/__pycache__/", "pkg/notes.txt", "runs/a.log", "venv/")
    assert found.leaves_out("data/huge.bin")
    assert not found.leaves_out("train.py")


def test_our_own_patterns_decide_against_those_of_git_wherever_they_are(tmp_path: Path) -> None:
    make(tmp_path, **{"sub/a/config.yaml": "x", "sub/secret.txt": "x", "sub/b.log": "x", "sub/c.log": "x"})
    make(tmp_path, **{".pacelineignore": "!sub/a/config.yaml\n/sub/secret.txt\n*.log\n"})
    make(tmp_path, **{"sub/.gitignore": "config.yaml\n!secret.txt\n", "sub/.pacelineignore": "!c.log\n"})
    assert paths(tmp_path) == [".pacelineignore", "sub/.gitignore", "sub/.pacelineignore", "sub/a/config.yaml", "sub/c.log"]


def test_what_was_left_out_is_sent_once_its_patterns_are_there(tmp_path: Path) -> None:
    make(tmp_path, **{".gitignore": "*\n!.gitignore\n", "a/b/train.py": "x", "a/b/data.bin": "x", "a/other.py": "x"})
    lines = list_files(tmp_path).patterns_for("a/b/train.py")
    assert lines == ["!a/", "!a/b/", "!a/b/train.py"]
    make(tmp_path, **{".pacelineignore": "\n".join(lines)})
    assert paths(tmp_path) == [".gitignore", "a/b/train.py"]
    assert list_files(tmp_path).patterns_for("a/other.py") == ["!a/other.py"]


def test_the_same_files_as_git(tmp_path: Path) -> None:
    make(tmp_path, **TREE)
    make(
        tmp_path,
        **{
            ".gitignore": "/data\n**/*.log\n!runs/keep.log\nvenv\n__pycache__\n*.pyc\n.paceline\n/train.py/\n\\#x\n",
            "#x": "x",
            "pkg/.gitignore": "!a.log\n",
        },
    )
    make(tmp_path, **{"pkg/a.log": "x", "sub/data/b": "x"})
    assert paths(tmp_path) == paths_of_git(tmp_path)


def paths_of_git(folder: Path) -> list[str]:
    git = ["git", "-C", str(folder)]
    subprocess.run([*git, "init", "-q"], check=True)
    listed = subprocess.run([*git, "ls-files", "--others", "--exclude-standard", "-z"], check=True, capture_output=True, text=True).stdout
    return sorted(filter(None, listed.split("\0")))


@pytest.mark.parametrize(
    "patterns",
    [
        "*\n!*/\n!*.py\n",
        "/*\n!/pkg/\n!/train.py\n/pkg/*\n!/pkg/model.py\n",
        "pkg/**\n!pkg/keep.txt\n",
        "pkg/**/deep/**\n",
        "pkg/**/\n",
        "**/data/**\n!**/data/*.yaml\n",
        "**/*/**\n!x/data/\n",
        "**/*/\n!pkg/\n",
        "*.txt\n!pkg/\n",
        "data\n!data/\n*.csv\n",
        "pkg/*/\n!pkg/deep\n",
        "*a*\n!x/data/*\n!x\n",
        "**\n!**/\n!x/**\n",
        "\ufeff*.log\n",
        "[!a-t]*\n*.[tc]??\n",
    ],
)
def test_patterns_act_as_in_git(tmp_path: Path, patterns: str) -> None:
    names = (
        "train.py",
        "a.log",
        "\ufeffb.log",
        "pkg/model.py",
        "pkg/keep.txt",
        "pkg/deep/deep/c.py",
        "x/data/a.yaml",
        "x/data/a.csv",
        "data/x.py",
    )
    make(tmp_path, **dict.fromkeys(names, "x"), **{".gitignore": patterns})
    assert paths(tmp_path) == paths_of_git(tmp_path)


def test_a_folder_that_is_named_is_sent_though_git_ignores_it(tmp_path: Path) -> None:
    make(tmp_path, **{".git/config": "", ".gitignore": "/scratch/\n*.log\n", "scratch/train.py": "x", "scratch/a.log": "x"})
    assert paths(tmp_path / "scratch") == ["train.py"]


def test_rules_of_the_repository_hold_in_a_folder_of_it(tmp_path: Path) -> None:
    make(tmp_path, **{".git/info/exclude": "secret.txt\n", ".gitignore": "/jobs/one/out\n*.ckpt\n"})
    inside = make(tmp_path / "jobs" / "one", **{"train.py": "x", "out/a": "x", "m.ckpt": "x", "secret.txt": "x", "sub/out/b": "x"})
    assert paths(inside) == ["sub/out/b", "train.py"]


def test_links_within_are_kept_and_others_are_named(tmp_path: Path) -> None:
    make(tmp_path, **{"pkg/a.py": "x"})
    (tmp_path / "here.py").symlink_to("pkg/a.py")
    assert {file.path: file.link for file in list_files(tmp_path).files} == {"pkg/a.py": None, "here.py": "pkg/a.py"}
    for name, target in (("data", "/data"), ("pkg/up", "../../other")):
        (tmp_path / name).symlink_to(target)
        with pytest.raises(UnpackableFileError, match=f"{name} is a link to {target}, outside of"):
            list_files(tmp_path)
        make(tmp_path, **{".pacelineignore": f"{name}\n"})
        assert name not in paths(tmp_path)
        (tmp_path / name).unlink()


@pytest.mark.parametrize("link", ["here.py", "pkg/deep/here.py"])
def test_a_link_that_leaves_the_folder_and_comes_back_is_one_within_it(tmp_path: Path, link: str) -> None:
    """It was called a link to outside of the folder."""
    code = make(tmp_path / "code", **{"pkg/a.py": "x", "pkg/deep/b.py": "y"})
    (tmp_path / "other-way").symlink_to(code)
    up = "../" * link.count("/")
    for target in (code / "pkg" / "a.py", tmp_path / "other-way" / "pkg" / "a.py", f"{up}../code/pkg/a.py"):
        (code / link).symlink_to(target)
        assert {file.path: file.link for file in list_files(code).files}[link] == ("pkg/a.py" if not up else "../a.py")
        (code / link).unlink()


def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    make(tmp_path, **{"train.py": "x"})
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert list_files(tmp_path).left_out == ("pipe", "s")


def test_names_of_all_kinds(tmp_path: Path) -> None:
    make(tmp_path, **{"ünï cödé.py": "x", "a\nb": "x", "-rf": "x", "*.py": "x", "x" * 255: "x"})
    assert len(paths(tmp_path)) == 5
    (tmp_path / os.fsdecode(b"\xff.py")).write_text("x")
    with pytest.raises(UnpackableFileError, match="not UTF-8"):
        list_files(tmp_path)


def test_limits_name_the_largest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, **{"train.py": "x", "data/set.bin": "x" * 2000, "data/two.bin": "x" * 1500})
    monkeypatch.setattr(listing, "MOST_BYTES", 3000)
    with pytest.raises(BundleTooLargeError, match=r"3,501 bytes; the limit is 3,000. The largest: data/set.bin \(2,000\), data/two.bin"):
        list_files(tmp_path)
    monkeypatch.setattr(listing, "MOST_FILES", 2)
    with pytest.raises(BundleTooLargeError, match=r"more than 2 files, most of them in data \(2\)"):
        list_files(tmp_path)


@pytest.mark.parametrize(
    ("name", "why"),
    [("missing", "is not there"), ("file", "is not a folder"), ("empty", "has no files"), ("ignored", "x.log are left out")],
)
def test_nothing_to_pack(tmp_path: Path, name: str, why: str) -> None:
    make(tmp_path, file="x", **{"ignored/.gitignore": "*\n", "ignored/x.log": "x"})
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingToPackError, match=why):
        list_files(tmp_path / name)


def test_a_pattern_file_that_is_a_folder_is_passed_over(tmp_path: Path) -> None:
    make(tmp_path, **{"train.py": "x", ".gitignore/odd": "x"})
    assert paths(tmp_path) == [".gitignore/odd", "train.py"]


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, **{"train.py": "x", "private/x": "x"})
    scandir = os.scandir

    def refuse(path: Path) -> object:
        if Path(path).name == "private":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(BundleError, match="private cannot be read: Permission denied"):
        list_files(tmp_path)


def test_a_path_that_no_node_can_hold_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    """It was refused on the node, after three restarts."""
    deep = tmp_path.joinpath(*["d" * 240] * 13)
    deep.mkdir(parents=True)
    make(tmp_path, **{"train.py": "x"})
    with pytest.raises(
        UnpackableFileError, match=r"has 3,132 bytes; a path in a bundle may have 3,072: shorten .*, or nest fewer; or leave out"
    ):
        list_files(tmp_path)
    make(tmp_path, **{".pacelineignore": "d*/"})
    assert paths(tmp_path) == [".pacelineignore", "train.py"]


def test_the_page_says_what_is_never_sent() -> None:
    """It named `.git` and not `.hg` and `.svn`: whoever needs one of them in a job learned it from the job."""
    page = Path(__file__).parents[3].joinpath("docs", "code.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith("- Never sent"))
    assert {name for name in (*NEVER, "*.pyc", ENVIRONMENT_MARK) if f"`{name}`" not in line} == set()
