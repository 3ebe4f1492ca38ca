"""Who may destroy what of a job: its owner and admins. The one place of this rule; reading, and what can be undone, is every member's."""

from __future__ import annotations

from api.errors import ProblemError
from api.services.identity import Caller
from api.settings import Settings
from db.models.jobs import JobRow


def require_owner_or_admin(caller: Caller, job: JobRow, settings: Settings, what: str) -> None:
    """For whoever may submit jobs. `what` follows "may", as in "cancel it". Raises ProblemError `not_the_owner` (403), naming the owner.

    A job belongs to the user who submitted it, whatever key or session that user came with. What a job left (checkpoints, artifacts, data) is its.
    """
    if settings.members_may == "all" or caller.may("admin") or job.created_by_id == caller.user_id:
        return
    raise ProblemError(
        "not_the_owner",
        f"job {job.name} ({job.id}) is {job.created_by}'s: only {job.created_by} or an admin may {what}, and you are {caller.name}, "
        f"{caller.role}; ask one of them, or set PACELINE_MEMBERS_MAY=all where the coordinator starts",
    )
