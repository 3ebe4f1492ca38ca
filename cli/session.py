"""The shared parts of every command that speaks to a coordinator: --server, --api-key, --output, --json, and errors with their exit
codes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.errors import CliError, OutputError
from paceline.cli.render.output import Format, emit, note
from paceline.cli.settings import ClientSettings, resolve

if TYPE_CHECKING:
    from paceline.cli.client import RestClient

Server = Annotated[str | None, typer.Option("--server", metavar="URL", help="coordinator to use", rich_help_panel="Connection and output")]
ContextName = Annotated[
    str | None,
    typer.Option(
        "--context", metavar="NAME", help="stored coordinator to use ('paceline context list')", rich_help_panel="Connection and output"
    ),
]
ApiKey = Annotated[
    str | None, typer.Option("--api-key", metavar="KEY", help="instead of the stored one", rich_help_panel="Connection and output")
]
Output = Annotated[Format, typer.Option("--output", "-o", help="form of the answer", rich_help_panel="Connection and output")]
Json = Annotated[bool, typer.Option("--json", help="the same as --output json", rich_help_panel="Connection and output")]


@dataclass(frozen=True)
class Session:
    settings: ClientSettings
    form: Format

    def client(self) -> RestClient:
        from paceline.cli.client import RestClient  # httpx costs 100 ms: --help does without

        return RestClient(self.settings)

    @property
    def for_people(self) -> bool:
        return self.form is Format.TABLE

    def emit(self, document: Any, human: Callable[[], str]) -> None:
        emit(document, self.form, human)

    def next_steps(self, *commands: str) -> None:
        """Print the one or two commands that come next; only for people."""
        if self.for_people:
            note(*(f"next: {command}" for command in commands))


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Turn a CliError into its lines on stderr and its exit code, and into a document on stdout where one was asked for."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except CliError as error:
            tell(error, _form(options))
            raise typer.Exit(error.exit_code) from error

    return run


def tell(error: CliError, form: Format) -> None:
    """Print an error: for people on stderr, and as a document on stdout where that is the form of the answer and there is none yet."""
    note(*error.lines())
    if form is not Format.TABLE and not error.after_answer and not isinstance(error, OutputError):
        emit(error.document(), form, str)


def _form(options: dict[str, Any]) -> Format:
    """The form of the answer that a command's options ask for. `data tokenize` has a folder as its --output."""
    output = options.get("output")
    return Format.JSON if options.get("json") else output if isinstance(output, Format) else Format.TABLE


def with_session(function: Callable[..., None]) -> Callable[..., None]:
    """Give `function(session, ...)` the shared options and its Session."""

    @functools.wraps(function)
    @command
    def run(
        *,
        server: str | None = None,
        context_name: str | None = None,
        api_key: str | None = None,
        output: Format = Format.TABLE,
        json: bool = False,
        **options: Any,
    ) -> None:
        settings = resolve(server, api_key, context=context_name)
        note(*settings.warnings)
        function(Session(settings, Format.JSON if json else output), **options)

    _add_shared_options(run, function)
    return run


def _add_shared_options(run: Callable[..., None], function: Callable[..., None]) -> None:
    """Add the shared options. typer reads the signature: the function's own parameters without the session, then the shared ones."""
    shared: dict[str, tuple[Any, Any]] = {
        "server": (Server, None),
        "context_name": (ContextName, None),
        "api_key": (ApiKey, None),
        "output": (Output, Format.TABLE),
        "json": (Json, False),
    }
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, keyword, default=default, annotation=kind) for name, (kind, default) in shared.items()]
    parameters = [*(parameter.replace(kind=keyword) for parameter in own), *added]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__  # type: ignore[attr-defined]
