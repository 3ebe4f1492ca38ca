"""Data to train on: text to memory-mapped token files. On this machine, without a coordinator."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.errors import CliError, TakenError, UsageProblem
from paceline.cli.exits import ExitCode
from paceline.cli.help import CommandGroup
from paceline.cli.render.output import Format, emit, fields, note
from paceline.cli.session import command

if TYPE_CHECKING:
    from paceline.training.data.token_set import TokenSet
    from paceline.training.data.tokenize import TokenizeProgress

app = CommandGroup(no_args_is_help=True)
PROGRESS_S = 2.0
MEGABYTE = 1_000_000

Inputs = Annotated[
    list[Path],
    typer.Argument(metavar="INPUT...", help="text files, one document each; .jsonl files, one a line; folders of both", show_default=False),
]
Folder = Annotated[Path, typer.Option("--output", metavar="DIR", help="new folder for the token files", show_default=False)]
Made = Annotated[Path, typer.Argument(metavar="DIR", help="a folder that 'data tokenize' made", show_default=False)]
TokenizerName = Annotated[str, typer.Option("--tokenizer", metavar="NAME", help="'bytes', or the path of a Hugging Face tokenizer.json")]
EndToken = Annotated[str | None, typer.Option("--end-token", help="what ends a document; default: the tokenizer's own")]
Field = Annotated[str, typer.Option(help="of JSONL lines: what holds the text")]
Match = Annotated[str, typer.Option(metavar="PATTERN", help="in folders only files with such names, e.g. '*.py'")]
Workers = Annotated[int | None, typer.Option(min=1, help="processes; default: one for each CPU")]
ShardSize = Annotated[int, typer.Option("--shard-mb", min=1, max=100_000, help="megabytes of input to a shard")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document")]


@app.callback()
def data() -> None:
    """Make and verify token files to train on."""


@app.command()
@command
def tokenize(
    inputs: Inputs,
    output: Folder,
    tokenizer: TokenizerName = "bytes",
    end_token: EndToken = None,
    field: Field = "text",
    match: Match = "*",
    workers: Workers = None,
    shard_mb: ShardSize = 64,
    json: Json = False,
) -> None:
    """Make token files of text, for jobs with 'data: {kind: tokens, path: DIR}'.

    A run that broke off goes on where it was when it is repeated; until it ends, nothing takes its folder for whole.
    """
    from paceline.training.data import documents
    from paceline.training.data.tokenize import TokenizeRecipe, tokenize

    with _as_cli_errors():
        portions = documents.cut(documents.find(inputs, match), shard_mb * MEGABYTE)
        made = tokenize(
            output, portions, TokenizeRecipe(tokenizer, end_token, field), workers or len(os.sched_getaffinity(0)), _ProgressLines().show
        )
    _print(output, made, json=json)
    if not json:
        note(f"next: a job with 'data: {{kind: tokens, path: {output.resolve()}}}' and 'vocab_size: {made.vocabulary}' or more")


@app.command()
@command
def verify(folder: Made, json: Json = False) -> None:
    """Compare every byte of a folder of token files with its manifest; exits 1 where one differs."""
    from paceline.training.data import token_set
    from paceline.training.errors import InvalidInputError

    try:
        made = token_set.read(folder)
        token_set.check_sizes(folder, made)
        for _ in token_set.check_hashes(folder, made):
            pass
    except (InvalidInputError, OSError) as error:
        raise CliError(str(error)) from error
    _print(folder, made, json=json)
    if not json:
        note("OK: every byte is as the manifest says.")


def _print(folder: Path, made: TokenSet, *, json: bool) -> None:
    from paceline.training.data import token_set

    document: dict[str, Any] = {
        "folder": str(folder.resolve()),
        "tokenizer": made.tokenizer,
        "vocabulary": made.vocabulary,
        "documents": made.documents,
        "tokens": made.tokens,
        "shards": len(made.shards),
        "bytes": sum(file.bytes for file in made.files.values()),
        "sha256": token_set.digest(folder),
    }
    emit(document, Format.JSON if json else Format.TABLE, lambda: fields([(name, str(value)) for name, value in document.items()]))


@contextlib.contextmanager
def _as_cli_errors() -> Iterator[None]:
    """A context that turns errors of the library into lines and exit codes of a command."""
    from paceline.training.errors import InvalidInputError, TokenSetExistsError, TrainingError

    try:
        yield
    except TokenSetExistsError as error:
        raise TakenError(str(error)) from error
    except InvalidInputError as error:
        raise UsageProblem(str(error)) from error
    except (TrainingError, OSError) as error:
        raise CliError(str(error)) from error
    except KeyboardInterrupt:
        note("interrupted; the same command goes on from the shards that are done")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


class _ProgressLines:
    """Progress on stderr: the first line, the last, and one every few seconds in between."""

    def __init__(self) -> None:
        self._next = 0.0

    def show(self, progress: TokenizeProgress) -> None:
        if time.monotonic() >= self._next or progress.shards == progress.of_shards:
            self._next = time.monotonic() + PROGRESS_S
            share = f"{progress.bytes / MEGABYTE:.1f} of {progress.of_bytes / MEGABYTE:.1f} MB"
            note(f"{progress.shards} of {progress.of_shards} shards, {share}")
