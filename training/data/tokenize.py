"""Text to a token set: portions of the input become shards, each by itself, in processes side by side. No torch in here.

A run that broke off is taken up where it was: a shard is done when its record is there, and the record is written after the shard is on
disk. The manifest comes last of all, so that nothing passes for whole that is not.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from paceline.monitoring.file_hashes import File, describe
from paceline.monitoring.files import make_folders, write_durably
from paceline.training.data import token_set
from paceline.training.data.documents import Portion, documents
from paceline.training.data.token_set import TOKENIZER, TokenSet, TokenShard, dtype_of, shard_names
from paceline.training.data.tokenizer import BYTES, Tokenizer, open_tokenizer
from paceline.training.errors import InvalidInputError, TokenSetExistsError, WorkerLostError

PLAN = "unfinished.json"


@dataclass(frozen=True)
class TokenizeRecipe:
    """Options that decide how shards are made."""

    tokenizer: str  # "bytes", or the path of a tokenizer.json
    end_token: str | None
    field: str  # of JSONL lines


@dataclass(frozen=True)
class TokenizeProgress:
    shards: int
    of_shards: int
    bytes: int  # of input
    of_bytes: int


class _Plan(msgspec.Struct, frozen=True):
    """Options kept in an unfinished folder: a run that goes on there must have the same."""

    sha256: str


def tokenize(
    folder: Path, portions: Sequence[Portion], recipe: TokenizeRecipe, workers: int, tell: Callable[[TokenizeProgress], None]
) -> TokenSet:
    """Make `folder` the token set of these portions, or finish it. Raises TrainingError, and OSError where the disk refuses."""
    tokenizer = open_tokenizer(recipe.tokenizer, recipe.end_token)
    make_folders(folder)
    with alone_in(folder):
        begin(folder, fingerprint(portions, recipe))
        done = {number for number in range(len(portions)) if record_of(folder, number).exists()}
        tell(progress(portions, done))
        missing = sorted(set(range(len(portions))) - done)
        with processes(max(1, min(workers, len(missing)))) as pool:
            shards = {pool.submit(make_shard, folder, number, portions[number], recipe): number for number in missing}
            for shard in as_completed(shards):
                shard.result()
                done.add(shards[shard])
                tell(progress(portions, done))
        return finish(folder, len(portions), tokenizer, recipe)


def progress(portions: Sequence[Portion], done: Collection[int]) -> TokenizeProgress:
    sizes = [sum(source.bytes for source in portion) for portion in portions]
    return TokenizeProgress(len(done), len(portions), sum(sizes[number] for number in done), sum(sizes))


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """The kernel lets go of the lock however this process ends."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise TokenSetExistsError(f"another run is writing {folder}; wait for it, or choose another folder") from error
    finally:
        os.close(descriptor)


def begin(folder: Path, sha256: str) -> None:
    """Claim an empty folder, or one in which the same run broke off."""
    if (folder / token_set.MANIFEST).exists():
        raise TokenSetExistsError(f"{folder} is a token set already; choose another folder, or delete it first")
    if (folder / PLAN).exists():
        if msgspec.json.decode((folder / PLAN).read_bytes(), type=_Plan).sha256 != sha256:
            what = "a run that broke off, of other inputs or options"
            raise TokenSetExistsError(f"{folder} holds {what}: repeat that one, choose another folder, or delete it first")
        return
    if any(path.suffix != ".tmp" for path in folder.iterdir()):
        raise TokenSetExistsError(f"{folder} holds other files; choose an empty folder, or one that does not exist")
    write_durably(folder / PLAN, msgspec.json.encode(_Plan(sha256)))


def fingerprint(portions: Sequence[Portion], recipe: TokenizeRecipe) -> str:
    """Return a hash of everything that decides the content of the shards."""
    digest = hashlib.sha256(repr(recipe).encode())
    if recipe.tokenizer != BYTES:
        digest.update(describe(Path(recipe.tokenizer)).sha256.encode())
    for portion in portions:
        for source in portion:
            status = source.path.stat()
            digest.update(repr((str(source.path), source.start, source.end, status.st_size, status.st_mtime_ns)).encode())
        digest.update(b";")
    return digest.hexdigest()


def record_of(folder: Path, number: int) -> Path:
    return folder / f"{number:05}.json"


@contextlib.contextmanager
def processes(count: int) -> Iterator[Executor]:
    """Yield a pool of `count` processes.

    The processes end with the block, however it is left, and with this process, however it ends: then the kernel closes the pipe.
    """
    context = multiprocessing.get_context("spawn")
    leash, hand = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(count, context, initializer=end_with, initargs=(leash,))
    try:
        with leash, hand:
            yield pool
    except BrokenProcessPool as error:
        way_out = "run the same command again to go on from the shards that are done, with fewer --workers if memory is short"
        raise WorkerLostError(f"a process that made a shard was killed, perhaps for want of memory; {way_out}") from error
    finally:
        pool.shutdown(cancel_futures=True)


def end_with(leash: Connection) -> None:
    """Prepare a new worker process: keys pressed at the terminal are its parent's, and it ends when the other end of `leash` is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_wait_and_end, args=(leash,), daemon=True).start()


def _wait_and_end(leash: Connection) -> None:
    leash.poll(None)
    os._exit(1)


def make_shard(folder: Path, number: int, portion: Portion, recipe: TokenizeRecipe) -> None:
    """Make a shard, which counts once its record is on disk."""
    tokenizer = open_tokenizer(recipe.tokenizer, recipe.end_token)
    names = tokens_file, ends_file = shard_names(number)
    with durable(folder / tokens_file) as file:
        ends = np.array(list(write_documents(file, tokenizer, portion, recipe.field)), dtype="<u8")
    with durable(folder / ends_file) as file:
        file.write(ends.tobytes())
    shard = TokenShard(
        documents=len(ends),
        tokens=int(ends[-1]) if len(ends) else 0,
        tokens_file=tokens_file,
        ends_file=ends_file,
        files={name: describe(folder / name) for name in names},
    )
    write_durably(record_of(folder, number), msgspec.json.encode(shard))


@contextlib.contextmanager
def durable(path: Path) -> Iterator[BinaryIO]:
    with open(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def write_documents(file: BinaryIO, tokenizer: Tokenizer, portion: Portion, field: str) -> Iterator[int]:
    """The number of tokens up to the end of each."""
    kind = dtype_of(tokenizer.vocabulary)
    end = np.array([tokenizer.end], dtype=kind)
    total = 0
    for document in (document for source in portion for document in documents(source, field)):
        try:
            ids = tokenizer.encode(document.text)
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"{document.origin} is not UTF-8 text ({error}); leave it out with --match, or use bytes") from error
        file.write(ids.astype(kind).tobytes())
        file.write(end.tobytes())
        total += len(ids) + 1
        yield total


def finish(folder: Path, portions: int, tokenizer: Tokenizer, recipe: TokenizeRecipe) -> TokenSet:
    """Name all shards in the manifest, and only then delete what an unfinished run needs."""
    records = [record_of(folder, number) for number in range(portions)]
    shards = tuple(shard for record in records if (shard := msgspec.json.decode(record.read_bytes(), type=TokenShard)).documents)
    if not shards:
        raise InvalidInputError("the inputs hold no text")
    made = TokenSet(
        tokenizer=tokenizer.kind,
        vocabulary=tokenizer.vocabulary,
        end=tokenizer.end,
        tokenizer_files=keep_tokenizer(folder, recipe.tokenizer),
        shards=shards,
    )
    token_set.write(folder, made)
    for leftover in {*records, folder / PLAN, *folder.glob("*.tmp")}:
        leftover.unlink(missing_ok=True)
    return made


def keep_tokenizer(folder: Path, name: str) -> dict[str, File]:
    if name == BYTES:
        return {}
    with open(name, "rb") as source, durable(folder / TOKENIZER) as copy:
        shutil.copyfileobj(source, copy)
    return {TOKENIZER: describe(folder / TOKENIZER)}
