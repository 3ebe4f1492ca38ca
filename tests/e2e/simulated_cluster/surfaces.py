"""Every page of the dashboard, as the simulated cluster shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from playwright.sync_api import Page


def nothing(page: Page) -> None:
    """Leave the page as it is."""


@dataclass(frozen=True)
class Surface:
    """`path` may have names of demo jobs and experiments in braces; `text` stands there once it is drawn; `act` opens what is looked at."""

    name: str
    path: str
    text: str
    act: Callable[[Page], None] = nothing


PAGES = (
    Surface("jobs", "/jobs", "gpt-7b-pretraining"),
    Surface("jobs, none match", "/jobs?q=nosuchjob", "No job matches"),
    Surface("new job", "/jobs/new", "Effective spec"),
    Surface("new job as YAML", "/jobs/new?view=yaml", "Effective spec"),
    Surface("job, failed", "/jobs/{wrong-vocabulary}", "Traceback"),
    Surface("job, queued", "/jobs/{needs-a-larger-cluster}", "80"),
    Surface("job, paused", "/jobs/{paused-for-the-night}", "Resume"),
    Surface("job, NaN", "/jobs/{loss-is-nan}", "NaN"),
    Surface("job, script", "/jobs/{torchrun-script}", "torchrun-script"),
    *(
        Surface(f"job, {tab}", f"/jobs/{{gpt-small-with-spares}}?tab={tab}", text)
        for tab, text in {
            "curves": "nats",
            "media": "No images, histograms or tables",
            "performance": "Exposed communication",
            "incidents": "Goodput",
            "logs": "Times:",
            "ranks": "Generations",
            "terminal": "Shift+F6 leaves the terminal",
            "checkpoints": "Blocking time",
            "artifacts": "PACELINE_ARTIFACTS",
            "timeline": "was submitted",
            "spec": "slots_per_node",
        }.items()
    ),
    Surface("timeline, one kind", "/jobs/{gpt-small-with-spares}?tab=timeline&events=people", "was submitted"),
    Surface("compare", "/compare?jobs={resnet-56-lr-1},{resnet-56-lr-2}", "Spec differences"),
    Surface("compare, nothing chosen", "/compare", "Choose two jobs"),
    Surface("experiments", "/experiments", "ddp-or-fsdp"),
    Surface("experiments, none match", "/experiments?q=nosuchexperiment", "No experiment"),
    Surface("experiment", "/experiments/{ddp-or-fsdp}", "Recommendation"),
    Surface("new experiment", "/experiments/new", "Configurations"),
    Surface("cluster", "/cluster", "sim-0"),
    Surface("checkpoints", "/checkpoints", "verified"),
    Surface("checkpoints, none match", "/checkpoints?q=nosuchjob", "No job of that name"),
    Surface("models", "/models", "Models"),
    Surface("storage", "/storage", "Retention"),
    Surface("notifications", "/notifications", "Channels"),
    *(
        Surface(f"people, {tab}", f"/people?tab={tab}", text)
        for tab, text in {"users": "guest", "keys": "API keys", "sessions": "Sessions", "secrets": "Secrets", "audit": "Audit"}.items()
    ),
    Surface("not found", "/nowhere", "Page not found"),
    Surface("job, not found", "/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV", "Could not load"),
    Surface("login", "/login", "paceline login-link"),
)

#: What people have open every day.
DAILY = tuple(surface for surface in PAGES if surface.name in {"jobs", "new job", "job, curves", "cluster"})
