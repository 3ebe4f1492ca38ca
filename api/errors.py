"""Every problem the API answers with: one catalogue of codes, one exception, RFC 9457 on the wire.

ProblemError(code, detail, errors)      raised anywhere below a route; `CATALOGUE` gives status and title
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from api.schemas.common import FieldError, Problem


@dataclass(frozen=True)
class Kind:
    status: int
    title: str


CATALOGUE: Mapping[str, Kind] = {
    # the request itself
    "malformed_body": Kind(400, "The body could not be read"),
    "unknown_parameter": Kind(400, "Unknown query parameter"),
    "invalid_parameter": Kind(400, "A query parameter has a value that it cannot have"),
    "invalid_cursor": Kind(400, "The cursor is not one of ours"),
    "invalid_request": Kind(422, "The request does not fit its schema"),
    "invalid_spec": Kind(422, "The job spec is not valid"),
    "address_too_long": Kind(414, "The address is too long"),
    "body_too_large": Kind(413, "The body is too large"),
    "body_too_slow": Kind(408, "The body did not arrive in time"),
    "unsupported_media_type": Kind(415, "This media type is not understood"),
    "not_found": Kind(404, "There is no such thing"),
    "method_not_allowed": Kind(405, "This method is not allowed here"),
    # identity
    "not_authenticated": Kind(401, "Identity is required"),
    "invalid_credential": Kind(401, "The credential is not valid"),
    "invalid_login_link": Kind(401, "The login link is not valid"),
    "invalid_join_token": Kind(401, "The join token is not valid"),
    "forbidden": Kind(403, "Your role does not allow this"),
    "not_the_owner": Kind(403, "It belongs to somebody else"),
    "csrf": Kind(403, "The request could not be tied to the dashboard"),
    "host_not_allowed": Kind(403, "This host name is not allowed"),
    "insecure_transport": Kind(403, "Plain http is refused from other machines"),
    "rate_limited": Kind(429, "Too many attempts"),
    # creation and change
    "idempotency_conflict": Kind(409, "The same request is still running"),
    "idempotency_key_reused": Kind(422, "The idempotency key belongs to another request"),
    "already_created": Kind(409, "This was created before, and its secret was shown then"),
    "already_exists": Kind(409, "The name is taken"),
    "last_admin": Kind(409, "The last admin cannot be removed"),
    "precondition_required": Kind(428, "If-Match is required"),
    "precondition_failed": Kind(412, "It has changed since you read it"),
    # jobs
    "job_finished": Kind(409, "The job has finished"),
    "job_not_paused": Kind(409, "The job is not paused"),
    "job_not_running": Kind(409, "The job is not running"),
    "job_being_cancelled": Kind(409, "The job is being cancelled"),
    "job_already_paused": Kind(409, "The job is already paused"),
    "unreadable_spec": Kind(409, "The stored spec of the job cannot be read"),
    "cannot_pause": Kind(409, "This job cannot be paused"),
    "cannot_resize": Kind(409, "This job cannot have that size"),
    "nothing_recorded": Kind(409, "The job has recorded nothing yet"),
    "cannot_profile": Kind(409, "This job cannot be traced like that"),
    "already_profiling": Kind(409, "A trace is being taken"),
    "artifact_not_ready": Kind(409, "The file cannot be downloaded"),
    "cannot_choose": Kind(422, "There is no plan to choose"),
    "nothing_fits": Kind(422, "No plan fits into the slots' memory"),
    "no_shared_folder": Kind(422, "The nodes share no folder for the job's checkpoints"),
    "plan_too_large": Kind(422, "The plan takes too long to make"),
    "plan_changed": Kind(409, "The plan would be another by now"),
    "job_not_ended": Kind(409, "The job has not ended"),
    "no_longer_kept": Kind(410, "What was recorded is no longer kept"),
    # nodes and checkpoints
    "node_gone": Kind(409, "The node is gone"),
    "node_state": Kind(409, "The node's state does not allow this"),
    "checkpoint_in_use": Kind(409, "Something depends on this checkpoint"),
    "checkpoint_not_usable": Kind(409, "This checkpoint cannot be used"),
    # agents
    "too_many_records": Kind(413, "Too many records in one upload"),
    "name_taken": Kind(409, "A node of this name is present"),
    "node_removed": Kind(403, "This node was removed"),
    # ourselves
    "busy": Kind(503, "The coordinator is busy"),
    "disk_low": Kind(507, "The coordinator's disk is nearly full"),
    "not_ready": Kind(503, "The coordinator is not ready"),
    "internal": Kind(500, "The coordinator has a bug"),
}


class ProblemError(Exception):
    """An answer that is not the wanted one. `detail` gives the value, the limit and the way out."""

    def __init__(self, code: str, detail: str, *, errors: Sequence[FieldError] = (), headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})

    def __reduce__(self) -> tuple[Any, ...]:
        """So that a worker process can raise it."""
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
    """A HEAD whose answer would have to be computed: it is 200, and that is all."""


def not_found(noun: str, id: str) -> ProblemError:
    return ProblemError("not_found", f"there is no {noun} {id!r}")
