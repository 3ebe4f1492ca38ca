"""Sends a folder with a job: packed once, uploaded once per content, named in the job's spec as `environment.code`."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from paceline.bundles.archive import CHUNK_BYTES, PackedBundle, measure, pack, unpack
from paceline.bundles.errors import BundleError, DamagedBundleError
from paceline.bundles.listing import FolderListing, list_files
from paceline.cli.errors import ApiProblemError, OutcomeUnknownError, OutputError, UnreachableError, UsageProblem
from paceline.cli.git_facts import MOST_PATH, git_facts
from paceline.cli.job_folder import near_names, script_path
from paceline.cli.render import formats
from paceline.cli.render.output import note
from paceline.cli.waiting import patient
from paceline.monitoring.words import plural

if TYPE_CHECKING:
    from paceline.cli.client import RestClient

Spec = dict[str, Any]
#: How much of a packed folder is kept in memory; the rest is in a file.
MEMORY_BYTES = 16 << 20
MOST_LEFT_OUT_NAMED = 6
#: As often as every chunk was sent twice, and some more: other clients may send the same bundle.
SPARE_CHUNKS = 8


def with_code(client: RestClient, spec: Spec, folder: Path) -> Spec:
    """The spec with the folder as the job's code, which is then stored at the coordinator. Raises UsageProblem."""
    try:
        listing = list_files(folder)
        spec = _with_script(spec, listing)
        bundle, sent = _stored(client, listing), False
        if bundle is None:
            with tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES) as packed:
                bundle = pack(listing, packed)
                sent = _send(client, bundle, packed)
    except BundleError as error:
        raise UsageProblem(str(error)) from error
    note(_summary(listing, bundle, sent))
    environment = spec.get("environment") or {}
    if not isinstance(environment, dict):
        return spec  # for the coordinator to refuse
    return {**spec, "environment": {**environment, "code": _section(listing.folder, bundle)}}


def _section(folder: Path, bundle: PackedBundle) -> dict[str, Any]:
    facts = git_facts(folder)
    known: dict[str, Any] = {"bundle": bundle.digest, "folder": folder.name[:MOST_PATH] or None}
    if facts is not None:
        known |= {"commit": facts.commit, "branch": facts.branch, "uncommitted": list(facts.uncommitted)}
    return {name: value for name, value in known.items() if value}


def _with_script(spec: Spec, listing: FolderListing) -> Spec:
    """The spec with its script named as the ranks find it in the folder, by whatever path it was given. One with an absolute path elsewhere is left to the
    nodes. Raises UsageProblem where the script is not among the files: no rank would find it."""
    path = script_path(spec)
    if path is None:
        return spec
    wanted = _path_within(listing.folder, os.path.expanduser(path))
    if os.path.isabs(wanted):
        return spec
    if any(file.path == wanted for file in listing.files):
        return {**spec, "script": {**spec["script"], "path": wanted}}
    if listing.leaves_out(wanted):
        lines = listing.patterns_for(wanted)
        hint = f"add {'the lines ' if len(lines) > 1 else ''}{' and '.join(lines)} to .pacelineignore"
        raise UsageProblem(f"script.path: {path} is left out of the bundle by .gitignore or .pacelineignore", hint)
    near = near_names(listing.folder / wanted)
    raise UsageProblem(f"script.path: there is no {path} in {listing.folder}", f"near it: {', '.join(near)}" if near else None)


def _path_within(folder: Path, path: str) -> str:
    """A path relative to `folder`; an absolute one that lies elsewhere as it is."""
    if not os.path.isabs(path):
        return os.path.normpath(path)
    place = Path(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return str(place.relative_to(folder)) if place.is_relative_to(folder) else path


def _stored(client: RestClient, listing: FolderListing) -> PackedBundle | None:
    """The folder's bundle, kept for a job that is about to name it, where the coordinator has it already: then nothing is compressed. Else None."""
    digest, _ = measure(listing)
    path = f"/training/bundles/{digest}"
    try:
        found = client.get(path)
    except ApiProblemError as error:
        if error.status != 404:
            raise
        return None
    facts = {name: found[name] for name in ("bytes", "unpacked_bytes", "files")}
    answer = _asked(lambda: client.put(path, body=facts)) if found["state"] == "ready" else found
    return PackedBundle(digest, **facts) if answer["next_chunk"] is None else None


def _send(client: RestClient, bundle: PackedBundle, packed: IO[bytes]) -> bool:
    """Send the chunks that the coordinator does not have. Returns whether there were any."""
    path = f"/training/bundles/{bundle.digest}"
    facts = {"bytes": bundle.bytes, "unpacked_bytes": bundle.unpacked_bytes, "files": bundle.files}
    answer = _asked(lambda: client.put(path, body=facts))
    most = 2 * -(-bundle.bytes // CHUNK_BYTES) + SPARE_CHUNKS
    for sent in range(most):
        if answer["next_chunk"] is None:
            return sent > 0
        packed.seek(answer["next_chunk"] * CHUNK_BYTES)
        chunk = f"{path}/chunks/{answer['next_chunk']}", packed.read(CHUNK_BYTES)
        answer = _asked(functools.partial(client.put_bytes, *chunk))
    raise OutputError(f"the coordinator asks for chunk {answer['next_chunk']} of the code again and again; {most} were sent")


def _asked(ask: Callable[[], Any]) -> Any:
    """Ask a coordinator that has answered before, and may be away for a while. What is sent of a bundle is harmless a second time, so that a lost
    answer leaves nothing unknown."""

    def ask_again() -> Any:
        try:
            return ask()
        except OutcomeUnknownError as error:
            raise UnreachableError(error.message, "no job was submitted: repeat the command once the coordinator answers") from error

    return patient(ask_again)


def _summary(listing: FolderListing, bundle: PackedBundle, sent: bool) -> str:
    left = listing.left_out
    more = f" and {len(left) - MOST_LEFT_OUT_NAMED:,} more" if len(left) > MOST_LEFT_OUT_NAMED else ""
    without = f", without {', '.join(left[:MOST_LEFT_OUT_NAMED])}{more}" if left else ""
    how = f"{formats.quantity(bundle.bytes, 'B')} sent" if sent else "stored already, nothing sent"
    return f"code: {listing.folder}, {plural(bundle.files, 'file')}{without}; {how}"


def fetch_code(client: RestClient, digest: str, into: Path) -> int:
    """Download a bundle into the new folder `into`. Returns the number of files."""
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UsageProblem(f"{into} is there already", "name a folder that does not exist: -d FOLDER")
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=f".{into.name}.") as scratch:
        archive = Path(scratch, "bundle")
        client.download(f"/training/bundles/{digest}/content", archive)
        try:
            with open(archive, "rb") as packed:
                files = unpack(packed, digest, Path(scratch, "code"))
            Path(scratch, "code").rename(into)
        except (DamagedBundleError, OSError) as error:
            raise OutputError(f"the code cannot be unpacked into {into}: {error}") from error
    return files
