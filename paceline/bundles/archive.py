"""A bundle as one file: a tar archive compressed by zstd. Its digest is the SHA-256 of the tar archive, so that equal folders have equal
digests, whichever compressor has packed them."""

from __future__ import annotations

import hashlib
import os
import posixpath
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import zstandard

from paceline.bundles.errors import DamagedBundleError, PathTooLongError, UnpackableFileError
from paceline.bundles.listing import MOST_BYTES, MOST_FILES, BundleFile, FolderListing, leads_outside
from paceline.bundles.paths import what_is_too_long

#: The body of one request to the coordinator.
CHUNK_BYTES = 1 << 20
#: The most of the tar archive: the files, and at most 3 KiB of headers and padding for each.
MOST_TAR_BYTES = MOST_BYTES + MOST_FILES * 3072
#: The most of the compressed file: zstd makes what cannot be compressed a little larger.
MOST_PACKED_BYTES = MOST_TAR_BYTES + (1 << 20)
#: All files are as old as each other, so that a fresh copy of a folder makes the same bundle.
_TIME = 1_000_000_000
_LEVEL = 3
_BLOCK = 1 << 20
#: What tarfile keeps of the archive, and copies for each file.
_STREAM = 32 << 10
#: What zstd may keep in memory to read an archive; ours need 2 MiB.
_MOST_WINDOW = 8 << 20


class PackedBundle(NamedTuple):
    """Facts of a packed folder. `bytes`: of the compressed file; `unpacked_bytes`: of the tar archive."""

    digest: str
    bytes: int
    unpacked_bytes: int
    files: int


def measure(listing: FolderListing) -> tuple[str, int]:
    """The digest that the files of a folder have as a bundle, and the bytes of its tar archive; nothing is compressed. Raises UnpackableFileError."""
    digest, plain = hashlib.sha256(), 0

    def take(data: bytes) -> int:
        nonlocal plain
        digest.update(data)
        plain += len(data)
        return len(data)

    _write_tar(listing, take)
    return digest.hexdigest(), plain


def pack(listing: FolderListing, target: IO[bytes]) -> PackedBundle:
    """Write the files of a folder to `target`. Raises UnpackableFileError for one that cannot be read, or changes meanwhile."""
    digest, plain, packed = hashlib.sha256(), 0, 0
    compressor = zstandard.ZstdCompressor(level=_LEVEL).compressobj()

    def keep(data: bytes) -> None:
        nonlocal packed
        packed += target.write(data)

    def take(data: bytes) -> int:
        nonlocal plain
        digest.update(data)
        plain += len(data)
        keep(compressor.compress(data))
        return len(data)

    _write_tar(listing, take)
    keep(compressor.flush())
    return PackedBundle(digest.hexdigest(), packed, plain, len(listing.files))


def _write_tar(listing: FolderListing, take: Callable[[bytes], int]) -> None:
    """Write what `TarFile.addfile` and `close` would, which take twice as long for small files."""
    written = sum(take(part) for file in listing.files for part in _parts(listing.folder, file))
    end = 2 * tarfile.BLOCKSIZE
    take(bytes(end + -(written + end) % tarfile.RECORDSIZE))


def _parts(folder: Path, file: BundleFile) -> Iterator[bytes]:
    """The header of a file in an archive, and its content up to the end of a block."""
    entry = tarfile.TarInfo(file.path)
    entry.mtime, entry.mode = _TIME, 0o755 if file.executable else 0o644
    if file.link is not None:
        entry.type, entry.linkname = tarfile.SYMTYPE, file.link
        yield entry.tobuf(tarfile.PAX_FORMAT)
        return
    data = _read(folder / file.path, file.bytes + 1)  # one more than it had: as much memory is taken before anything is read
    entry.size = len(data)
    if entry.size != file.bytes:
        raise UnpackableFileError(f"{file.path} changes while it is packed: it no longer has {file.bytes:,} bytes; try again")
    yield entry.tobuf(tarfile.PAX_FORMAT)
    yield data
    yield bytes(-entry.size % tarfile.BLOCKSIZE)


def _read(path: Path, most: int) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            return file.read(most)
    except OSError as error:
        raise UnpackableFileError(
            f"{path} cannot be read: {error.strerror}; make it readable, or leave it out in .pacelineignore"
        ) from error


class _Measured:
    """Reads a tar archive and measures it. Raises DamagedBundleError beyond the most bytes that a bundle may have."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._plain = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW).stream_reader(packed, read_across_frames=False)
        self._digest, self.bytes = hashlib.sha256(), 0

    def read(self, size: int) -> bytes:
        try:
            data = self._plain.read(size)
        except zstandard.ZstdError as error:
            raise DamagedBundleError(f"it is no zstd archive: {error}") from error
        self.bytes += len(data)
        if self.bytes > MOST_TAR_BYTES:
            raise DamagedBundleError(f"it unpacks to more than {MOST_TAR_BYTES:,} bytes, the most that a bundle may have")
        self._digest.update(data)
        return data

    def finish(self) -> str:
        """Read to the end, and return the digest."""
        while self.read(_BLOCK):
            pass
        return self._digest.hexdigest()


def digest_of(packed: IO[bytes]) -> tuple[str, int]:
    """Return the digest of a packed bundle, and the bytes of its tar archive. Raises DamagedBundleError."""
    measured = _Measured(packed)
    digest = measured.finish()
    return digest, measured.bytes


def verify(packed: IO[bytes], digest: str) -> int:
    """Return the bytes of the tar archive of a packed bundle. Raises DamagedBundleError for one with another digest, and for one that no node
    could unpack."""
    measured, refusal = _Measured(packed), None
    try:
        _require_unpackable(measured)
    except DamagedBundleError as error:
        refusal = error  # of less weight than another digest: then it is other code, whatever is in it
    found = measured.finish()
    if found != digest:
        raise DamagedBundleError(f"its digest is {found}")
    if refusal is not None:
        raise refusal
    return measured.bytes


def _require_unpackable(plain: Any) -> None:
    """Read a plain tar archive. Raises DamagedBundleError where `unpack_tar` would, whatever the disk."""
    files, folders, links = set[PurePosixPath](), set[PurePosixPath](), set[PurePosixPath]()
    try:
        tar: Any  # whose list of members is no part of its types
        with tarfile.open(fileobj=plain, mode="r|", bufsize=_STREAM) as tar:
            for member in tar:
                path = _path_of(member)
                if not links.isdisjoint(path.parents):
                    raise DamagedBundleError(f"{member.name!r} in it leads through a link")
                if path in files or path in folders or not files.isdisjoint(path.parents):
                    raise DamagedBundleError(f"{member.name!r} in it has the place of another file or folder")
                files.add(path)
                folders.update(path.parents)
                if member.issym():
                    links.add(path)
                if len(files) > MOST_FILES:
                    raise DamagedBundleError(f"it has more than {MOST_FILES:,} files, the most that a bundle may have")
                tar.members.clear()  # tarfile keeps each
    except (tarfile.TarError, ValueError) as error:
        raise DamagedBundleError(f"it cannot be unpacked: {error}") from error


def open_tar(packed: IO[bytes]) -> Any:
    """Open a packed bundle from its beginning, as a stream of members: a TarFile, whose list of members is no part of its types. Raises DamagedBundleError, also while it is read."""
    packed.seek(0)
    return tarfile.open(fileobj=_Measured(packed), mode="r|", bufsize=_STREAM)  # type: ignore[call-overload]  # it only reads


def read_files(packed: IO[bytes], most_bytes: int) -> Callable[[str], bytes]:
    """Return a function that gives the content of a file of a bundle, by its path. It raises KeyError where there is no such file, and
    DamagedBundleError where it has more than `most_bytes`."""

    def read(path: str) -> bytes:
        with open_tar(packed) as tar:
            for member in tar:
                if member.name == path and member.isreg():
                    if member.size > most_bytes:
                        raise DamagedBundleError(f"{path} has {member.size:,} bytes; the limit is {most_bytes:,}")
                    content = tar.extractfile(member)
                    return content.read() if content is not None else b""
                tar.members.clear()  # tarfile keeps each
        raise KeyError(path)

    return read


def unpack(packed: IO[bytes], digest: str, into: Path) -> int:
    """Unpack a bundle into the new folder `into`. Returns the number of files.

    Nothing is written outside of `into`, and only files and links within it are made. Raises DamagedBundleError for an archive that holds
    anything else, or whose digest is another, and OSError where the disk is full; what was unpacked until then stays for the caller to remove."""
    measured = _Measured(packed)
    files = unpack_tar(measured, into)
    found = measured.finish()
    if found != digest:
        raise DamagedBundleError(f"its digest is {found}, not {digest}")
    return files


def unpack_tar(plain: Any, into: Path) -> int:
    """Unpack a plain tar archive, which is only read, into the new folder `into`: as `unpack` does. Returns the number of files."""
    new, files = _NewFolder(into), 0
    try:
        tar: Any  # whose list of members is no part of its types
        with tarfile.open(fileobj=plain, mode="r|", bufsize=_STREAM) as tar:
            for member in tar:
                files += 1
                if files > MOST_FILES:
                    raise DamagedBundleError(f"it has more than {MOST_FILES:,} files, the most that a bundle may have")
                new.write(tar, member)
                tar.members.clear()  # tarfile keeps each
    except (tarfile.TarError, ValueError, FileExistsError, NotADirectoryError) as error:
        raise DamagedBundleError(f"it cannot be unpacked: {error}") from error
    return files


def _path_of(member: tarfile.TarInfo) -> PurePosixPath:
    """The path of a file or link of an archive, below the folder. Raises DamagedBundleError for anything else, for what would lead out of the
    folder, and for what no node can hold."""
    path = PurePosixPath(member.name)
    is_file_or_link = (member.isreg() and not member.issparse()) or member.issym()
    if path.is_absolute() or ".." in path.parts or not is_file_or_link:
        raise DamagedBundleError(f"{member.name!r} in it is no file or link below the folder")
    if member.issym() and leads_outside(member.name, member.linkname):
        raise DamagedBundleError(f"{member.name!r} in it is a link to {member.linkname!r}, outside of the folder")
    if (what := what_is_too_long(str(path), member.linkname if member.issym() else None)) is not None:
        raise PathTooLongError(what)
    return path


class _NewFolder:
    """A new folder that the files and links of an archive are written to. It knows the folders and links that it has made itself, so that a file is
    written without a question to the file system."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder, self._folders, self._links = str(folder), set[PurePosixPath](), set[PurePosixPath]()

    def write(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Write a file or link of an archive. Raises DamagedBundleError for anything else, and for what would lead out of the folder.

        Not by `tar.extract`: its filters came with Python 3.11.4, and that of Debian 12 is 3.11.2."""
        inner = _path_of(member)
        if not self._links.isdisjoint(inner.parents):
            raise DamagedBundleError(f"{member.name!r} in it leads through a link")
        if inner.parent not in self._folders:
            os.makedirs(f"{self._folder}/{inner.parent}", exist_ok=True)
            self._folders.add(inner.parent)
        path = f"{self._folder}/{inner}"
        if member.issym():
            # '..' only at the start: a chain of such links cannot leave the folder either
            os.symlink(posixpath.normpath(member.linkname), path)
            self._links.add(inner)
            return
        content = tar.extractfile(member)
        assert content is not None  # it is no folder
        with open(path, "xb") as file:
            shutil.copyfileobj(content, file, _BLOCK)
            os.fchmod(file.fileno(), 0o755 if member.mode & 0o100 else 0o644)
