"""The commands of `paceline`. A command's module is imported when the command is typed, so that `--help` lists them all at once."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer._click.exceptions import NoArgsIsHelpError, NoSuchOption, UsageError
from typer.core import TyperCommand

from paceline.cli import exits
from paceline.cli.errors import UsageProblem
from paceline.cli.help import CommandGroup, PlainCommand, PlainGroup, help_text
from paceline.cli.render.output import Format, note, print_line
from paceline.cli.render.usage_words import near_options, of_parser
from paceline.cli.session import tell

#: Sections of the help, with their commands: where each is defined, and the beginning of its own help.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "This machine": {
        "up": ("stack:up", "Start a coordinator and local agents in the background"),
        "down": ("stack:down", "Stop what 'up' started"),
        "demo": ("demo:demo", "Start a stack, train a small GPT on it, and watch it"),
        "worker": ("worker:worker", "Run this machine's agent in the foreground"),
        "simulate": ("simulate:simulate", "Add simulated nodes to a coordinator"),
        "backup": ("backup:backup", "Copy both databases, of one moment, into a new folder"),
        "db": ("backup:app", "Back up, restore and check the coordinator's databases on this machine"),
    },
    "Jobs": {
        "submit": ("submit:submit", "Submit the job in FILE"),
        "run": ("run:run", "Launch a script with torchrun's arguments"),
        "rerun": ("code:rerun", "Submit a job again, with the same spec and the same code"),
        "code": ("code:code", "Download the code that a job was submitted with"),
        "plan": ("plan:plan", "Show what the job in FILE would do"),
        "jobs": ("jobs:jobs", "List jobs, the newest first"),
        "show": ("jobs:show", "Show one job"),
        "open": ("jobs:open_dashboard", "Open a job's page in the browser"),
        "logs": ("logs:logs", "Print a job's log"),
        "metrics": ("metrics:metrics", "Show a job's curves"),
        "incidents": ("history:incidents", "List the faults of a job"),
        "samples": ("history:samples", "Audit which samples the committed steps used"),
        "compare": ("history:compare", "Compare two runs bit for bit"),
        "media": ("media:media", "List and download what a job has logged beside numbers"),
        "tensorboard": ("artifacts:tensorboard", "Download a job's curves as TensorBoard event files"),
        "exec": ("exec:run_beside", "Run a command beside a rank"),
        "attach": ("exec:attach", "Show a rank's live output until the job ends"),
        "stacks": ("stacks:stacks", "Show where every rank of a running job is"),
        "gradients": ("gradients:gradients", "Show the gradients that a job's ranks have recorded"),
        "profile": ("artifacts:profile", "Trace the next steps of a running job with torch.profiler"),
        "artifacts": ("files:app", "List and download the files that a job has left"),
        "wait": ("jobs:wait", "Wait for a job to end, or to reach a state"),
        "pause": ("job_actions:pause", "Save a checkpoint, stop the ranks and free the slots"),
        "resume": ("job_actions:resume", "Continue a paused job at its next step"),
        "resize": ("job_actions:resize", "Set how many ranks a job should have"),
        "cancel": ("job_actions:cancel", "Stop jobs for good"),
        "edit": ("job_edits:edit", "Change the name, project, priority, notes or labels of jobs"),
        "archive": ("job_edits:archive", "Hide ended jobs from lists"),
        "unarchive": ("job_edits:unarchive", "Bring archived jobs back into lists"),
        "delete": ("storage:delete", "Delete what ended jobs have recorded"),
        "restore": ("checkpoints:restore", "Start a new job from a checkpoint, or set its own job back to it"),
        "export": ("checkpoints:export", "Export a checkpoint to safetensors"),
        "data": ("data:app", "Make and verify token files to train on"),
        "checkpoints": ("checkpoints:app", "List, delete and pin checkpoints"),
        "models": ("models:app", "List, register and download models"),
        "experiment": ("experiment:app", "Vary a job spec over a grid, and analyze what comes of it"),
    },
    "Cluster": {
        "cluster": ("cluster:cluster", "Show the cluster in numbers"),
        "gpus": ("cluster:gpus", "List the GPUs of all nodes"),
        "events": ("events:events", "Print what happened, to a job or to everything"),
        "storage": ("storage:storage", "Show what is stored of jobs, and how much disk is left"),
        "nodes": ("nodes:app", "List, add, upgrade, drain and remove nodes"),
        "pools": ("pools:app", "List, create, change and delete pools of nodes"),
        "notify": ("notify:app", "Be told by webhook, Slack or e-mail when jobs fail, finish, wait or lose time"),
    },
    "Access": {
        "login": ("identity:login", "Try a key, and store it with its server"),
        "login-link": ("identity:login_link", "Make a single-use link that signs a browser in"),
        "users": ("users:app", "List, create, enable and disable users"),
        "keys": ("keys:app", "List, create and revoke API keys"),
        "sessions": ("sessions:app", "List signed-in browsers, and sign them out"),
        "audit": ("audit:audit", "Print who did what and from where"),
        "secret": ("secret:app", "Set, list and delete secrets that jobs get as variables"),
        "context": ("context:app", "Switch between coordinators"),
        "config": ("config:app", "Show the effective settings and where they come from"),
    },
}

#: The parsers of commands that read their words in a way of their own.
PARSERS = {"run": "LaunchCommand"}


class CommandTable(PlainGroup):
    """The commands of COMMANDS. Each is only a name and a line of help until it is typed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for panel, entries in COMMANDS.items():
            for name, (_, summary) in entries.items():
                self.commands[name] = TyperCommand(name, short_help=summary, rich_help_panel=panel, rich_markup_mode=None)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        place = next((entries[cmd_name][0] for entries in COMMANDS.values() if cmd_name in entries), None)
        return None if place is None else load(cmd_name, place)


def load(name: str, place: str) -> Any:
    """Import the command `name` from `place`, a module of `cli/commands` and what is in it: a function, or a group of commands."""
    module_name, _, attribute = place.partition(":")
    module = importlib.import_module(f"paceline.cli.commands.{module_name}")
    found = getattr(module, attribute)
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
        command.name = name
        return command
    alone = CommandGroup(add_completion=False)
    alone.command(name, cls=getattr(module, PARSERS[name]) if name in PARSERS else PlainCommand)(found)
    return typer.main.get_command(alone)


def print_version(wanted: bool) -> None:
    """Print the version and end, where --version was typed."""
    if wanted:
        from paceline.version import version as installed

        typer.echo(f"paceline {installed()}")
        raise typer.Exit


app = CommandGroup(
    cls=CommandTable,
    name="paceline",
    help="Distributed PyTorch training that keeps going when a rank dies.",
    epilog=exits.epilog(),
    no_args_is_help=True,
)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version.", is_eager=True, callback=print_version, show_default=False)
    ] = False,
) -> None:
    """Distributed PyTorch training that keeps going when a rank dies."""


def run(arguments: list[str]) -> int:
    """Run the command that was typed. Returns the exit code."""
    root_command = typer.main.get_command(app)
    if (text := help_text(root_command, arguments)) is not None:
        print_line(text)
        return exits.ExitCode.DONE
    try:
        return int(root_command.main(arguments, prog_name="paceline", standalone_mode=False) or exits.ExitCode.DONE)
    except typer.Abort:
        note("Aborted.")
        return exits.ExitCode.ERROR
    except NoArgsIsHelpError as error:
        note(error.message)
    except UsageError as error:
        if isinstance(error, NoSuchOption) and error.ctx is not None and error.option_name.startswith("--"):
            error.possibilities = near_options(error.option_name, _long_options(error.ctx))
        hint = f"'{error.ctx.command_path} --help' lists arguments and options" if error.ctx else None
        tell(UsageProblem(of_parser(error.format_message()), hint), Format.JSON if "--json" in arguments else Format.TABLE)
    return exits.ExitCode.USAGE


def _long_options(context: Any) -> list[str]:
    """The long options of the command that was typed, in the order of its help."""
    shown = [each for each in context.command.get_params(context) if not getattr(each, "hidden", False)]
    return [word for each in shown for word in (*each.opts, *each.secondary_opts) if word.startswith("--")]
