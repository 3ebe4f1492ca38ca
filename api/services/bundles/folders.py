"""Folders that a browser sends: packed here as `paceline submit --workdir` packs them, by the same rules of what is left out."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from paceline.api.core.context import Services
from paceline.api.errors import ProblemError
from paceline.api.schemas.bundles import BundleOffer, FolderBundle
from paceline.api.services.bundles import bundles
from paceline.api.services.bundles.bundles import MEMORY_BYTES
from paceline.bundles.archive import CHUNK_BYTES, PackedBundle, pack, unpack_tar
from paceline.bundles.errors import BundleError
from paceline.bundles.listing import FolderListing, list_files

#: How many of the files that were left out of a folder are named.
MOST_LEFT_OUT_NAMED = 100


async def store(services: Services, name: str, archive: AsyncIterator[bytes], by: str) -> FolderBundle:
    """Store the folder `name`, sent as a plain tar archive. Raises ProblemError invalid_request, which says what is in the way."""
    with tempfile.TemporaryDirectory(prefix="paceline-folder-") as scratch, _file() as sent, _file() as packed:
        async for data in archive:
            await asyncio.to_thread(sent.write, data)
        folder = Path(scratch, "folder").resolve()
        try:
            listing, bundle = await asyncio.to_thread(_pack, sent, folder, packed)
        except BundleError as error:
            raise ProblemError("invalid_request", f"the folder {name} cannot be sent: {str(error).replace(str(folder), name)}") from error
        await _keep(services, bundle, packed, by)
    async with services.control.read() as session:
        stored = await bundles.describe(services, await bundles.find(session, bundle.digest))
    left = listing.left_out
    return FolderBundle(**stored.model_dump(), left_out=list(left[:MOST_LEFT_OUT_NAMED]), left_out_count=len(left))


def _file() -> IO[bytes]:
    return tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)


def _pack(sent: IO[bytes], folder: Path, target: IO[bytes]) -> tuple[FolderListing, PackedBundle]:
    sent.seek(0)
    unpack_tar(sent, folder)
    listing = list_files(folder)
    return listing, pack(listing, target)


async def _keep(services: Services, bundle: PackedBundle, packed: IO[bytes], by: str) -> None:
    offer = BundleOffer(bytes=bundle.bytes, unpacked_bytes=bundle.unpacked_bytes, files=bundle.files)
    answer = await bundles.offer(services, bundle.digest, offer, by)
    while answer.next_chunk is not None:
        packed.seek(answer.next_chunk * CHUNK_BYTES)
        answer = await bundles.store_chunk(services, bundle.digest, answer.next_chunk, await asyncio.to_thread(packed.read, CHUNK_BYTES))
