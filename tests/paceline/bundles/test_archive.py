"""Packing and unpacking a bundle: the same folder comes out, and nothing else does, whatever was sent."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest
import zstandard

from paceline.bundles import archive
from paceline.bundles.archive import PackedBundle, digest_of, measure, pack, unpack, verify
from paceline.bundles.errors import DamagedBundleError, PathTooLongError, UnpackableFileError
from paceline.bundles.listing import list_files
from tests.paceline.bundles.test_listing import make


def packed(folder: Path) -> tuple[PackedBundle, bytes]:
    into = io.BytesIO()
    return pack(list_files(folder), into), into.getvalue()


def crafted(*members: tuple[tarfile.TarInfo, bytes]) -> tuple[str, io.BytesIO]:
    """An archive as an enemy would make it, and its digest."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for member, data in members:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return hashlib.sha256(plain.getvalue()).hexdigest(), io.BytesIO(zstandard.compress(plain.getvalue()))


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


def test_a_folder_comes_out_as_it_went_in(tmp_path: Path) -> None:
    code = make(tmp_path / "code", **{"train.py": "print('hé')", "pkg/a/b/c.py": "", "run.sh": "#!/bin/sh", "a\nb ü": "x" * 3_000_000})
    (code / "run.sh").chmod(0o700)
    (code / "link.py").symlink_to("pkg/a/b/c.py")
    bundle, data = packed(code)
    assert (bundle.files, bundle.bytes) == (5, len(data))
    assert digest_of(io.BytesIO(data)) == (bundle.digest, bundle.unpacked_bytes)
    assert measure(list_files(code)) == (bundle.digest, bundle.unpacked_bytes)
    assert unpack(io.BytesIO(data), bundle.digest, tmp_path / "out") == 5
    again = list_files(tmp_path / "out")
    assert again.files == list_files(code).files
    for file in again.files:
        assert (again.folder / file.path).read_bytes() == (code / file.path).read_bytes()
    assert os.readlink(tmp_path / "out" / "link.py") == "pkg/a/b/c.py"


def test_it_is_unpacked_by_the_python_of_debian_12(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extract = tarfile.TarFile.extract
    monkeypatch.setattr(tarfile.TarFile, "extract", lambda tar, member, path: extract(tar, member, path))  # without filters
    code = make(tmp_path / "code", **{"train.py": "x", "pkg/model.py": "y"})
    bundle, data = packed(code)
    assert unpack(io.BytesIO(data), bundle.digest, tmp_path / "out") == 2
    assert list_files(tmp_path / "out").files == list_files(code).files


def test_equal_folders_have_equal_digests(tmp_path: Path) -> None:
    one, two = (make(tmp_path / name, **{"b.py": "1", "a/x.py": "2"}) for name in ("one", "two"))
    os.utime(two / "b.py", (1, 1))
    (two / "b.py").chmod(0o664)
    assert packed(one) == packed(two)
    (two / "b.py").chmod(0o755)
    assert packed(one)[0].digest != packed(two)[0].digest


@pytest.mark.parametrize(
    "member",
    [
        entry("/etc/passwd"),
        entry("../up.py"),
        entry("a/../../up.py"),
        entry("link", tarfile.SYMTYPE, "/etc"),
        entry("link", tarfile.SYMTYPE, "../.."),
        entry("hard", tarfile.LNKTYPE, "train.py"),
        entry("device", tarfile.CHRTYPE),
        entry("pipe", tarfile.FIFOTYPE),
        entry("folder", tarfile.DIRTYPE),
        entry("train.py"),
        entry("train.py/below"),
        entry("sparse", tarfile.GNUTYPE_SPARSE),
    ],
    ids=lambda member: f"{member.name} {member.linkname}",
)
def test_nothing_gets_outside(tmp_path: Path, member: tarfile.TarInfo) -> None:
    digest, data = crafted((entry("train.py"), b"x"), (member, b""))
    (tmp_path / "in").mkdir()
    with pytest.raises(DamagedBundleError):
        unpack(data, digest, tmp_path / "in" / "out")
    assert sorted(path.name for path in tmp_path.rglob("*")) in (["in", "out"], ["in", "out", "train.py"])


@pytest.mark.parametrize(
    "member", [entry("here/x.py"), entry("here/a/x.py"), entry("here/link", tarfile.SYMTYPE, "x.py")], ids=lambda m: m.name
)
def test_nothing_is_written_through_a_link(tmp_path: Path, member: tarfile.TarInfo) -> None:
    digest, data = crafted((entry("here", tarfile.SYMTYPE, "."), b""), (member, b""))
    with pytest.raises(DamagedBundleError, match="through a link"):
        unpack(data, digest, tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["here"]


@pytest.mark.parametrize(
    "member",
    [entry("a/" + "n" * 256), entry("folder/" * 450 + "x.py"), entry("link", tarfile.SYMTYPE, "x/" * 2048 + "x")],
    ids=["name", "path", "link"],
)
def test_what_is_too_long_for_a_node_is_told_from_damage(tmp_path: Path, member: tarfile.TarInfo) -> None:
    """It was a fault of the node, which was tried three times more."""
    digest, data = crafted((entry("train.py"), b"x"), (member, b""))
    with pytest.raises(PathTooLongError, match="bytes"):
        verify(data, digest)
    data.seek(0)
    with pytest.raises(PathTooLongError, match="bytes"):
        unpack(data, digest, tmp_path / "out")


@pytest.mark.parametrize(
    "members",
    [
        (entry("../up.py"),),
        (entry("link", tarfile.SYMTYPE, "/etc"),),
        (entry("device", tarfile.CHRTYPE),),
        (entry("train.py"),),
        (entry("train.py/below"),),
        (entry("a/b.py"), entry("a")),
        (entry("here", tarfile.SYMTYPE, "."), entry("here/x.py")),
    ],
    ids=lambda members: members[-1].name[:20],
)
def test_what_no_node_can_unpack_is_known_by_reading(tmp_path: Path, members: tuple[tarfile.TarInfo, ...]) -> None:
    digest, data = crafted((entry("train.py"), b"x"), *((member, b"") for member in members))
    with pytest.raises(DamagedBundleError, match="in it"):
        verify(data, digest)
    data.seek(0)
    with pytest.raises((DamagedBundleError, OSError)):
        unpack(data, digest, tmp_path / "out")


def test_a_folder_is_found_whole_and_another_digest_is_not(tmp_path: Path) -> None:
    code = make(tmp_path / "code", **{"train.py": "x", "pkg/model.py": "y", "n" * 255: "z"})
    (code / "link.py").symlink_to("pkg/model.py")
    bundle, data = packed(code)
    assert verify(io.BytesIO(data), bundle.digest) == bundle.unpacked_bytes
    with pytest.raises(DamagedBundleError, match=f"its digest is {bundle.digest}"):
        verify(io.BytesIO(data), "0" * 64)


@pytest.mark.parametrize("plain", [b"no tar archive at all" * 100, b""], ids=["words", "nothing"])
def test_what_is_no_tar_archive_is_no_bundle(plain: bytes) -> None:
    with pytest.raises(DamagedBundleError, match="cannot be unpacked"):
        verify(io.BytesIO(zstandard.compress(plain)), hashlib.sha256(plain).hexdigest())


def test_a_chain_of_links_stays_within(tmp_path: Path) -> None:
    """By their names alone both of these stay in the folder."""
    top, way_out = entry("a/b/top", tarfile.SYMTYPE, "../.."), entry("a/b/out", tarfile.SYMTYPE, "top/../..")
    digest, data = crafted((top, b""), (way_out, b""))
    unpack(data, digest, tmp_path / "out")
    assert (tmp_path / "out" / "a" / "b" / "out").resolve() == tmp_path / "out" / "a"


def test_modes_are_those_of_code(tmp_path: Path) -> None:
    modes = {0o4777: 0o755, 0o666: 0o644, 0o100: 0o755, 0: 0o644}
    members = [entry(f"{mode:o}") for mode in modes]
    for member in members:
        member.mode = int(member.name, 8)
    digest, data = crafted(*((member, b"x") for member in members))
    unpack(data, digest, tmp_path / "out")
    assert {int(path.name, 8): path.stat().st_mode & 0o7777 for path in (tmp_path / "out").iterdir()} == modes


def test_another_digest_is_refused(tmp_path: Path) -> None:
    bundle, data = packed(make(tmp_path / "code", **{"train.py": "x"}))
    with pytest.raises(DamagedBundleError, match=f"its digest is {bundle.digest}, not {'0' * 64}"):
        unpack(io.BytesIO(data), "0" * 64, tmp_path / "out")


@pytest.mark.parametrize("data", [b"", b"no archive", b"\x28\xb5\x2f\xfd" + b"\xff" * 40])
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DamagedBundleError):
        unpack(io.BytesIO(data), "0" * 64, tmp_path / "out")


def test_a_cut_archive_is_refused(tmp_path: Path) -> None:
    bundle, data = packed(make(tmp_path / "code", **{"train.py": "x" * 5000, "b.py": os.urandom(5000).hex()}))
    for length in range(1, len(data) - 1, 97):
        target = tmp_path / str(length)
        with pytest.raises(DamagedBundleError):
            unpack(io.BytesIO(data[:length]), bundle.digest, target)


def test_a_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest, data = crafted((entry("zeros"), bytes(5_000_000)))
    assert len(data.getvalue()) < 5000
    monkeypatch.setattr(archive, "MOST_TAR_BYTES", 1_000_000)
    with pytest.raises(DamagedBundleError, match="more than 1,000,000 bytes"):
        unpack(data, digest, tmp_path / "out")
    data.seek(0)
    with pytest.raises(DamagedBundleError, match="more than 1,000,000 bytes"):
        digest_of(data)


def test_an_archive_is_the_one_that_tarfile_writes(tmp_path: Path) -> None:
    """Coordinators find a folder that they have by its digest: those of every version have to be the same."""
    files = {"empty.py": "", "a/block": "x" * 512, "b/" + "long" * 60: "y" * 513, "hé.py": "z" * 40_000}
    code = make(tmp_path / "code", **files)
    (code / "a" / "block").chmod(0o755)
    (code / "link").symlink_to("empty.py")
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for file in list_files(code).files:
            member = entry(file.path, tarfile.SYMTYPE if file.link else tarfile.REGTYPE, file.link or "")
            member.mtime, member.mode, member.size = 1_000_000_000, 0o755 if file.executable else 0o644, 0 if file.link else file.bytes
            tar.addfile(member, None if file.link else io.BytesIO((code / file.path).read_bytes()))
    assert measure(list_files(code)) == (hashlib.sha256(plain.getvalue()).hexdigest(), len(plain.getvalue()))


def test_too_many_files_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest, data = crafted(*((entry(f"f{n}"), b"") for n in range(20)))
    monkeypatch.setattr(archive, "MOST_FILES", 10)
    with pytest.raises(DamagedBundleError, match="more than 10 files"):
        unpack(data, digest, tmp_path / "out")


def test_a_file_that_changes_meanwhile_is_named(tmp_path: Path) -> None:
    listing = list_files(make(tmp_path, **{"train.py": "x"}))
    (tmp_path / "train.py").write_text("longer")
    with pytest.raises(UnpackableFileError, match=r"train.py changes while it is packed: it no longer has 1 bytes"):
        pack(listing, io.BytesIO())
    (tmp_path / "train.py").unlink()
    with pytest.raises(UnpackableFileError, match=r"train.py cannot be read: No such file"):
        pack(listing, io.BytesIO())
