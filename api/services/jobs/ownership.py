"""Decides who may destroy parts of a job or an experiment: its owner and admins. The one place of this rule; reading, and actions that can be undone, are
for every member."""

from __future__ import annotations

from paceline.api.core.identity import Caller
from paceline.api.errors import ProblemError
from paceline.api.settings import Settings
from paceline.db.models.experiments import ExperimentRow
from paceline.db.models.jobs import JobRow
from paceline.db.models.registry import ModelVersionRow
from paceline.db.models.saved_views import SavedViewRow
from paceline.db.models.secrets import SecretRow


def require_owner_or_admin(caller: Caller, job: JobRow, settings: Settings, what: str) -> None:
    """Require the owner or an admin, of users that may submit jobs. `what` follows "may", as in "cancel it". Raises ProblemError
    `not_the_owner` (403), naming the owner.

    A job belongs to the user who submitted it, with any key or session of that user. So do its checkpoints, artifacts and data."""
    require_owner_or_admin_of(caller, "job", job, settings, what)


def require_registrant_or_admin(caller: Caller, reference: str, version: ModelVersionRow, settings: Settings) -> None:
    """Require the user who registered a version of a model, or an admin. Raises ProblemError `not_the_owner`."""
    if settings.members_may == "all" or caller.may("admin") or version.created_by_id == caller.user_id:
        return
    raise ProblemError(
        "not_the_owner",
        f"model version {reference} was registered by {version.created_by}: only {version.created_by} or an admin may delete it, and you are "
        f"{caller.name}, {caller.role}; ask one of them",
    )


def require_owner_or_admin_of(
    caller: Caller, noun: str, row: JobRow | ExperimentRow | SavedViewRow | SecretRow, settings: Settings, what: str
) -> None:
    """Require the owner of a row of any noun, as `require_owner_or_admin` does of jobs."""
    if settings.members_may == "all" or caller.may("admin") or row.created_by_id == caller.user_id:
        return
    raise ProblemError(
        "not_the_owner",
        f"{noun} {row.name} ({row.id}) is {row.created_by}'s: only {row.created_by} or an admin may {what}, and you are {caller.name}, "
        f"{caller.role}; ask one of them, or set PACELINE_MEMBERS_MAY=all where the coordinator starts",
    )
