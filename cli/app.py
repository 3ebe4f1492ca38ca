"""The commands of `paceline`. Command modules import cheaply; what is heavy is imported when a command runs."""

from __future__ import annotations

import typer

from paceline.cli import exits
from paceline.cli.commands import (
    artifacts,
    backup,
    checkpoints,
    cluster,
    config,
    data,
    demo,
    events,
    experiment,
    gradients,
    history,
    identity,
    jobs,
    logs,
    metrics,
    nodes,
    plan,
    run,
    simulate,
    stack,
    stacks,
    storage,
    submit,
    worker,
)

app = typer.Typer(
    name="paceline",
    help="Distributed PyTorch training that closes up when a rank dies.",
    epilog=exits.epilog(),
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

HERE, JOBS, CLUSTER, ACCESS = "This machine", "Jobs", "Cluster", "Access"

#: Of commands that read their words in a way of their own.
CLASSES = {"run": run.LaunchCommand}

for panel, name, function in (
    (HERE, "up", stack.up),
    (HERE, "down", stack.down),
    (HERE, "demo", demo.demo),
    (HERE, "worker", worker.worker),
    (HERE, "simulate", simulate.simulate),
    (HERE, "backup", backup.backup),
    (JOBS, "submit", submit.submit),
    (JOBS, "run", run.run),
    (JOBS, "plan", plan.plan),
    (JOBS, "jobs", jobs.jobs),
    (JOBS, "show", jobs.show),
    (JOBS, "logs", logs.logs),
    (JOBS, "metrics", metrics.metrics),
    (JOBS, "incidents", history.incidents),
    (JOBS, "samples", history.samples),
    (JOBS, "compare", history.compare),
    (JOBS, "tensorboard", artifacts.tensorboard),
    (JOBS, "stacks", stacks.stacks),
    (JOBS, "gradients", gradients.gradients),
    (JOBS, "profile", artifacts.profile),
    (JOBS, "artifacts", artifacts.artifacts),
    (JOBS, "wait", jobs.wait),
    (JOBS, "pause", jobs.pause),
    (JOBS, "resume", jobs.resume),
    (JOBS, "resize", jobs.resize),
    (JOBS, "cancel", jobs.cancel),
    (JOBS, "delete", storage.delete),
    (JOBS, "restore", checkpoints.restore),
    (JOBS, "export", checkpoints.export),
    (CLUSTER, "cluster", cluster.cluster),
    (CLUSTER, "gpus", cluster.gpus),
    (CLUSTER, "events", events.events),
    (CLUSTER, "storage", storage.storage),
    (ACCESS, "login", identity.login),
    (ACCESS, "login-link", identity.login_link),
):
    app.command(name, rich_help_panel=panel, cls=CLASSES.get(name))(function)

app.add_typer(backup.app, name="db", rich_help_panel=HERE)
app.add_typer(data.app, name="data", rich_help_panel=JOBS)
app.add_typer(checkpoints.app, name="checkpoints", rich_help_panel=JOBS)
app.add_typer(experiment.app, name="experiment", rich_help_panel=JOBS)
app.add_typer(nodes.app, name="nodes", rich_help_panel=CLUSTER)
app.add_typer(identity.keys, name="keys", rich_help_panel=ACCESS)
app.add_typer(config.app, name="config", rich_help_panel=ACCESS)
