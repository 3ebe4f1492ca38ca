"""Every problem the API answers with: one catalogue of codes, one exception, RFC 9457 on the wire.

ProblemError(code, detail, errors)      raised anywhere below a route; `CATALOGUE` gives status and title
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from paceline.api.schemas.common import FieldError, Problem


@dataclass(frozen=True)
class ProblemKind:
    status: int
    title: str


CATALOGUE: Mapping[str, ProblemKind] = {
    # the request itself
    "malformed_body": ProblemKind(400, "The body could not be read"),
    "unknown_parameter": ProblemKind(400, "Unknown query parameter"),
    "invalid_parameter": ProblemKind(400, "A query parameter has a value that it cannot have"),
    "invalid_cursor": ProblemKind(400, "The cursor is not one of ours"),
    "invalid_request": ProblemKind(422, "The request does not fit its schema"),
    "invalid_spec": ProblemKind(422, "The job spec is not valid"),
    "address_too_long": ProblemKind(414, "The address is too long"),
    "body_too_large": ProblemKind(413, "The body is too large"),
    "body_too_slow": ProblemKind(408, "The body did not arrive in time"),
    "unsupported_media_type": ProblemKind(415, "This media type is not understood"),
    "not_found": ProblemKind(404, "There is no such thing"),
    "method_not_allowed": ProblemKind(405, "This method is not allowed here"),
    # identity
    "not_authenticated": ProblemKind(401, "Identity is required"),
    "invalid_credential": ProblemKind(401, "The credential is not valid"),
    "invalid_login_link": ProblemKind(401, "The login link is not valid"),
    "invalid_join_token": ProblemKind(401, "The join token is not valid"),
    "forbidden": ProblemKind(403, "Your role does not allow this"),
    "not_the_owner": ProblemKind(403, "It belongs to somebody else"),
    "csrf": ProblemKind(403, "The request could not be tied to the dashboard"),
    "host_not_allowed": ProblemKind(403, "This host name is not allowed"),
    "insecure_transport": ProblemKind(403, "Plain http is refused from other machines"),
    "rate_limited": ProblemKind(429, "Too many attempts"),
    # creation and change
    "idempotency_conflict": ProblemKind(409, "The same request is still running"),
    "idempotency_key_reused": ProblemKind(422, "The idempotency key belongs to another request"),
    "already_created": ProblemKind(409, "This was created before, and its secret was shown then"),
    "already_exists": ProblemKind(409, "The name is taken"),
    "last_admin": ProblemKind(409, "The last admin cannot be removed"),
    "precondition_failed": ProblemKind(412, "It has changed since you read it"),
    # jobs
    "job_finished": ProblemKind(409, "The job has finished"),
    "job_not_paused": ProblemKind(409, "The job is not paused"),
    "job_not_running": ProblemKind(409, "The job is not running"),
    "job_being_cancelled": ProblemKind(409, "The job is being cancelled"),
    "job_already_paused": ProblemKind(409, "The job is already paused"),
    "unreadable_spec": ProblemKind(409, "The stored spec of the job cannot be read"),
    "cannot_pause": ProblemKind(409, "This job cannot be paused"),
    "cannot_resize": ProblemKind(409, "This job cannot have that size"),
    "cannot_set_back": ProblemKind(409, "The job cannot be set back in place"),
    "nothing_recorded": ProblemKind(409, "The job has recorded nothing yet"),
    "cannot_profile": ProblemKind(409, "This job cannot be traced like that"),
    "already_profiling": ProblemKind(409, "A trace is being taken"),
    "artifact_not_ready": ProblemKind(409, "The file cannot be downloaded"),
    "cannot_choose": ProblemKind(422, "There is no plan to choose"),
    "nothing_fits": ProblemKind(422, "No plan fits into the slots' memory"),
    "no_shared_folder": ProblemKind(422, "The nodes share no folder for the job's checkpoints"),
    "plan_too_large": ProblemKind(422, "The plan takes too long to make"),
    "plan_changed": ProblemKind(409, "The plan would be another by now"),
    "job_not_ended": ProblemKind(409, "The job has not ended"),
    "no_longer_kept": ProblemKind(410, "What was recorded is no longer kept"),
    # experiments
    "invalid_experiment": ProblemKind(422, "Nothing of the experiment can run"),
    "search_unavailable": ProblemKind(501, "This coordinator cannot draw the values of a search"),
    "experiment_finished": ProblemKind(409, "The experiment has finished"),
    "experiment_already_paused": ProblemKind(409, "The experiment is already paused"),
    "experiment_not_paused": ProblemKind(409, "The experiment is not paused"),
    "not_analyzed": ProblemKind(409, "The experiment has not been analyzed"),
    "nothing_to_show": ProblemKind(409, "There is nothing to show in it yet"),
    "figures_unavailable": ProblemKind(501, "This coordinator cannot draw figures"),
    # nodes and checkpoints
    "node_gone": ProblemKind(409, "The node is gone"),
    "node_state": ProblemKind(409, "The node's state does not allow this"),
    "checkpoint_in_use": ProblemKind(409, "Something depends on this checkpoint"),
    "checkpoint_not_usable": ProblemKind(409, "This checkpoint cannot be used"),
    # agents
    "too_many_records": ProblemKind(413, "Too many records in one upload"),
    "name_taken": ProblemKind(409, "A node of this name is present"),
    "node_removed": ProblemKind(403, "This node was removed"),
    # ourselves
    "busy": ProblemKind(503, "The coordinator is busy"),
    "disk_low": ProblemKind(507, "The coordinator's disk is nearly full"),
    "not_ready": ProblemKind(503, "The coordinator is not ready"),
    "internal": ProblemKind(500, "The coordinator has a bug"),
}


class ProblemError(Exception):
    """A problem as the answer of a request. `detail` gives the value, the limit and the way out."""

    def __init__(self, code: str, detail: str, *, errors: Sequence[FieldError] = (), headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, so that a worker process can raise it."""
        return partial(ProblemError, errors=self.errors, headers=self.headers), (self.code, self.detail)

    @property
    def status(self) -> int:
        return CATALOGUE[self.code].status

    def document(self, *, instance: str, request_id: str) -> Problem:
        kind = CATALOGUE[self.code]
        return Problem(
            type=f"urn:paceline:problem:{self.code}",
            title=kind.title,
            status=kind.status,
            detail=self.detail,
            instance=instance,
            code=self.code,
            errors=self.errors,
            request_id=request_id,
        )


class HeadOnlyError(Exception):
    """The answer to a HEAD whose body would have to be computed: 200, without it."""


def not_found(noun: str, id: str) -> ProblemError:
    return ProblemError("not_found", f"there is no {noun} {id!r}")
