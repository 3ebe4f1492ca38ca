"""Text to token files: complete, in order, taken up where it broke off, and never half."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from paceline.training.data import token_set, tokenize
from paceline.training.data.documents import cut, find
from paceline.training.data.token_set import dtype_of
from paceline.training.data.tokenize import TokenizeProgress, TokenizeRecipe, fingerprint
from paceline.training.errors import InvalidInputError, TokenSetExistsError, WorkerLostError
from tests.training.data.token_sets import BYTES, make, nobody, texts, write_texts


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_document_is_there_once_and_in_order(tmp_path: Path) -> None:
    written = write_texts(tmp_path / "in")
    made = make(tmp_path / "out", [tmp_path / "in"], portion_bytes=200)
    assert texts(tmp_path / "out") == written
    assert len(made.shards) > 5
    assert (made.documents, made.tokens) == (len(written), sum(len(text) + 1 for text in written))
    assert (made.vocabulary, made.end, made.dtype) == (257, 256, np.dtype("<u2"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {token_set.MANIFEST, *made.files}
    token_set.check_sizes(tmp_path / "out", made)
    assert set(token_set.check_hashes(tmp_path / "out", made)) == set(made.files)


def test_ids_that_do_not_fit_two_bytes_get_four() -> None:
    assert [dtype_of(vocabulary).itemsize for vocabulary in (257, 65_536, 65_537)] == [2, 2, 4]


class Interrupted(Exception):
    pass


def test_a_run_that_broke_off_is_no_token_set_and_goes_on_where_it_was(tmp_path: Path) -> None:
    write_texts(tmp_path / "in")
    portions, out = cut(find([tmp_path / "in"], "*"), 200), tmp_path / "out"
    told: list[TokenizeProgress] = []

    def break_off(progress: TokenizeProgress) -> None:
        told.append(progress)
        if progress.shards == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        tokenize.tokenize(out, portions, BYTES, 1, break_off)
    with pytest.raises(InvalidInputError, match=r"no token set on this machine .*finish that run if it broke off"):
        token_set.read(out)
    done = {path.name: path.stat().st_mtime_ns for path in out.glob("*.tokens") if path.with_suffix(".json").exists()}
    assert len(done) >= 2
    tokenize.tokenize(out, portions, BYTES, 1, told.append)
    assert told[3].shards == len(done), "it began anew"
    assert {name: (out / name).stat().st_mtime_ns for name in done} == done
    make(tmp_path / "straight", [tmp_path / "in"], portion_bytes=200)
    assert contents(out) == contents(tmp_path / "straight")


def test_an_unfinished_folder_belongs_to_its_own_inputs_and_options(tmp_path: Path) -> None:
    write_texts(tmp_path / "in", 3)
    portions, out = cut(find([tmp_path / "in"], "*"), 10), tmp_path / "out"
    out.mkdir()
    tokenize.begin(out, fingerprint(portions, BYTES))
    tokenize.begin(out, fingerprint(portions, BYTES))
    with pytest.raises(TokenSetExistsError, match="of other inputs or options"):
        tokenize.begin(out, fingerprint(portions, TokenizeRecipe("bytes", None, "body")))
    (tmp_path / "in" / "000.txt").write_text("changed")
    with pytest.raises(TokenSetExistsError, match="of other inputs or options"):
        tokenize.begin(out, fingerprint(portions, BYTES))


def test_nothing_that_is_there_already_is_overwritten(tmp_path: Path) -> None:
    write_texts(tmp_path / "in", 3)
    make(tmp_path / "out", [tmp_path / "in"])
    before = contents(tmp_path / "out")
    with pytest.raises(TokenSetExistsError, match="is a token set already"):
        make(tmp_path / "out", [tmp_path / "in"])
    assert contents(tmp_path / "out") == before
    with pytest.raises(TokenSetExistsError, match="holds other files"):
        make(tmp_path / "in", [tmp_path / "in"])


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    write_texts(tmp_path / "in", 3)
    (tmp_path / "out").mkdir()
    descriptor = os.open(tmp_path / "out", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(TokenSetExistsError, match="another run is writing"):
        make(tmp_path / "out", [tmp_path / "in"])
    os.close(descriptor)
    make(tmp_path / "out", [tmp_path / "in"])


def test_what_a_worker_finds_wrong_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text('{"text": "x"}\n{"nothing": 1}\n')
    with pytest.raises(InvalidInputError, match="no field 'text'"):
        make(tmp_path / "out", [tmp_path / "lines.jsonl"])


def test_inputs_without_a_single_character_make_no_token_set(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    with pytest.raises(InvalidInputError, match="hold no text"):
        make(tmp_path / "out", [tmp_path / "empty.txt"])


def test_a_worker_that_is_killed_ends_the_run_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(WorkerLostError, match=r"run the same command again .* --workers"), tokenize.processes(1) as pool:
        pool.submit(os.abort).result()


def test_processes_end_when_the_block_is_left_early() -> None:
    started: list[int] = []

    def begin_and_break_off() -> None:
        with tokenize.processes(1) as pool:
            started.append(pool.submit(os.getpid).result())
            raise Interrupted

    with pytest.raises(Interrupted):
        begin_and_break_off()
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda manifest: manifest[: len(manifest) // 2],
        lambda manifest: manifest.replace(b'"vocabulary": 257', b'"vocabulary": 256'),
        lambda manifest: manifest.replace(b'"format": 1', b'"format": 2'),
        lambda manifest: b"[]",
        lambda manifest: b"",
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    write_texts(tmp_path / "in", 3)
    make(tmp_path / "out", [tmp_path / "in"])
    manifest = tmp_path / "out" / token_set.MANIFEST
    manifest.write_bytes(damage(manifest.read_bytes()))
    with pytest.raises(InvalidInputError, match=r"manifest.json"):
        token_set.read(tmp_path / "out")


def test_a_copy_that_broke_off_and_a_flipped_bit_are_found(tmp_path: Path) -> None:
    write_texts(tmp_path / "in", 3)
    out, made = tmp_path / "out", make(tmp_path / "out", [tmp_path / "in"])
    shard = out / made.shards[0].tokens_file
    content = bytearray(shard.read_bytes())
    content[5] ^= 1
    shard.write_bytes(content)
    token_set.check_sizes(out, made)
    with pytest.raises(InvalidInputError, match=r"00000.tokens does not match the SHA-256"):
        list(token_set.check_hashes(out, made))
    shard.write_bytes(content[:-2])
    with pytest.raises(InvalidInputError, match=rf"has {len(content) - 2} bytes, its manifest says {len(content)}"):
        token_set.check_sizes(out, made)
    shard.unlink()
    with pytest.raises(InvalidInputError, match="No such file"):
        token_set.check_sizes(out, made)


def test_the_manifest_says_what_the_set_is_to_people_too(tmp_path: Path) -> None:
    write_texts(tmp_path / "in", 3)
    make(tmp_path / "out", [tmp_path / "in"])
    document = msgspec.json.decode((tmp_path / "out" / token_set.MANIFEST).read_bytes())
    assert document["tokenizer"] == "bytes"
    assert document["shards"][0]["documents"] == 3


def test_progress_counts_bytes_of_input(tmp_path: Path) -> None:
    written = write_texts(tmp_path / "in")
    told: list[TokenizeProgress] = []
    tokenize.tokenize(tmp_path / "out", cut(find([tmp_path / "in"], "*"), 200), BYTES, 2, told.append)
    total = sum(map(len, written))
    assert (told[0].bytes, told[-1].bytes, told[-1].of_bytes) == (0, total, total)
    assert [progress.shards for progress in told] == list(range(told[0].of_shards + 1))
    nobody(told[-1])
