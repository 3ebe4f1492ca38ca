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
    #: What to do about it, for the documentation: Markdown, with links as from its page of errors.
    remedy: str


#: The page of the documentation that explains each code, on every coordinator.
ERRORS_PAGE = "/docs/reference/errors.html"

# fmt: off  # a row for each
CATALOGUE: Mapping[str, ProblemKind] = {
    # the request itself
    "malformed_body": ProblemKind(400, "The body could not be read", "Send JSON, or YAML where the request takes it, in UTF-8."),
    "unknown_parameter": ProblemKind(
        400, "Unknown query parameter", "Remove the parameter that the detail names, or correct its spelling."
    ),
    "invalid_parameter": ProblemKind(400, "A query parameter has a value that it cannot have", "Use a value that the detail allows."),
    "invalid_cursor": ProblemKind(400, "The cursor is not one of ours", "Begin the list anew, without `cursor`."),
    "invalid_request": ProblemKind(422, "The request does not fit its schema", "Correct the fields that `errors` lists."),
    "invalid_spec": ProblemKind(
        422,
        "The job spec is not valid",
        "Correct the fields that `errors` lists. `paceline plan FILE` checks a spec without submitting it.",
    ),
    "address_too_long": ProblemKind(414, "The address is too long", "Ask for fewer things in one request."),
    "body_too_large": ProblemKind(413, "The body is too large", "Send less in one request. The detail gives the limit."),
    "body_too_slow": ProblemKind(408, "The body did not arrive in time", "Retry on a faster or more stable connection."),
    "unsupported_media_type": ProblemKind(
        415, "This media type is not understood", "Send `Content-Type: application/json`, or what the detail names."
    ),
    "not_found": ProblemKind(404, "There is no such thing", "Check the id or name. It may have been deleted."),
    "method_not_allowed": ProblemKind(
        405, "This method is not allowed here", "Use a method that the [REST reference](rest.md) lists for this path."
    ),
    # identity
    "not_authenticated": ProblemKind(401, "Identity is required", "Sign in, or send a key as `Authorization: Bearer KEY`."),
    "invalid_credential": ProblemKind(
        401, "The credential is not valid", "Make a new key or sign in again: this one is wrong, revoked or expired."
    ),
    "invalid_login_link": ProblemKind(
        401, "The login link is not valid", "Make a new link with `paceline login-link`. A link works once and for a short time."
    ),
    "oidc_refused": ProblemKind(
        401, "The provider did not confirm who you are", "Sign in again. If it persists, ask who runs the provider."
    ),
    "oidc_no_role": ProblemKind(
        403, "The provider gives you no role here", "Ask an admin for a role, or the provider's administrator for the group that gives one."
    ),
    "oidc_unavailable": ProblemKind(
        503, "The provider does not answer", "Wait until the provider answers again, or sign in with a login link or key."
    ),
    "invalid_join_token": ProblemKind(
        401, "The join token is not valid", "Make a new token under *Cluster*, *Add node*, or with `paceline nodes add`."
    ),
    "forbidden": ProblemKind(403, "Your role does not allow this", "Ask an admin for the role that the detail names."),
    "not_the_owner": ProblemKind(403, "It belongs to somebody else", "Ask the owner or an admin to do it."),
    "csrf": ProblemKind(
        403, "The request could not be tied to the dashboard", "Reload the page and try again. Programs send a key in place of a cookie."
    ),
    "host_not_allowed": ProblemKind(
        403,
        "This host name is not allowed",
        "Use a host name that the coordinator knows, or allow this one in its [settings](settings.md).",
    ),
    "insecure_transport": ProblemKind(
        403, "Plain http is refused from other machines", "Use https, or set the coordinator up for plain http as the detail says."
    ),
    "rate_limited": ProblemKind(429, "Too many attempts", "Wait as long as `Retry-After` says."),
    # creation and change
    "idempotency_conflict": ProblemKind(
        409, "The same request is still running", "Wait for the first request, then retry with the same key."
    ),
    "idempotency_key_reused": ProblemKind(
        422, "The idempotency key belongs to another request", "Use a new idempotency key for another request."
    ),
    "already_created": ProblemKind(
        409, "This was created before, and its secret was shown then", "Use the secret that was shown then, or make another."
    ),
    "already_exists": ProblemKind(409, "The name is taken", "Choose another name."),
    "user_disabled": ProblemKind(409, "The user is disabled", "Enable the user first: `paceline users enable NAME`."),
    "last_admin": ProblemKind(409, "The last admin cannot be removed", "Make another user an admin first."),
    "precondition_failed": ProblemKind(
        412, "It has changed since you read it", "Read it again, and repeat the change if it still applies."
    ),
    # jobs
    "job_finished": ProblemKind(409, "The job has finished", "Submit the job again, or restore one of its checkpoints."),
    "job_not_paused": ProblemKind(409, "The job is not paused", "Pause the job first, or look at its state: it may be running already."),
    "job_not_running": ProblemKind(409, "The job is not running", "Wait until the job runs."),
    "job_being_cancelled": ProblemKind(409, "The job is being cancelled", "Wait until it has ended, then submit it again."),
    "job_already_paused": ProblemKind(409, "The job is already paused", "Resume it when you want it to go on."),
    "unreadable_spec": ProblemKind(
        409, "The stored spec of the job cannot be read", "Submit the job again with a spec that this version reads."
    ),
    "unreadable_experiment": ProblemKind(
        409, "The stored spec of the experiment cannot be read", "Post it under another name, with a spec that this version reads."
    ),
    "cannot_pause": ProblemKind(
        409, "This job cannot be paused", "Cancel it instead, or let the script save on SIGTERM (`script.saves_on_sigterm`)."
    ),
    "cannot_resize": ProblemKind(409, "This job cannot have that size", "Choose a size that the detail allows."),
    "cannot_set_back": ProblemKind(409, "The job cannot be set back in place", "Restore the checkpoint as a new job."),
    "nothing_recorded": ProblemKind(409, "The job has recorded nothing yet", "Wait until the job has reported something."),
    "cannot_profile": ProblemKind(409, "This job cannot be traced like that", "Choose ranks and steps that the detail allows."),
    "exec_off": ProblemKind(
        403, "Commands beside ranks are switched off", "Ask an admin to allow them: `PACELINE_EXEC` in the [settings](settings.md)."
    ),
    "rank_not_running": ProblemKind(409, "The rank does not run", "Choose a rank that runs, or wait until it does."),
    "node_away": ProblemKind(409, "The node's agent cannot be reached", "Wait until the agent is back, or look at its log on the node."),
    "too_many_sessions": ProblemKind(429, "Too many sessions are open", "Close a session, then try again."),
    "already_profiling": ProblemKind(409, "A trace is being taken", "Wait until the present trace is taken."),
    "cannot_record_gradients": ProblemKind(
        409, "This job's gradients cannot be recorded", "Use a built-in model or an entrypoint, or record them in the loop of the script."
    ),
    "already_recording_gradients": ProblemKind(409, "Gradients are being recorded", "Wait until every rank has recorded the present step."),
    "artifact_not_ready": ProblemKind(409, "The file cannot be downloaded", "Wait until the file has arrived, or look why it failed."),
    "cannot_choose": ProblemKind(422, "There is no plan to choose", "Give the strategy yourself in place of `auto`."),
    "nothing_fits": ProblemKind(
        422, "No plan fits into the slots' memory", "Use a smaller model or micro-batch, more slots, or slots with more memory."
    ),
    "no_shared_folder": ProblemKind(
        422,
        "The nodes share no folder for the job's checkpoints",
        "Set `checkpoint.directory` to a folder that all nodes mount, or to an object store. Where it is one folder and the nodes do not see that, set `checkpoint.shared`. "
        "See [A second machine](../second_machine.md#what-goes-wrong) and [Object stores](../object_stores.md).",
    ),
    "no_container_engine": ProblemKind(
        422,
        "No node can run containers",
        "The job names `environment.image`, and no node has podman, docker or apptainer that works. Install one on a node and start its agent again, "
        "or use `environment.requirements`. A pool with `autoscale` that has had no node yet needs `containers: true`.",
    ),
    "no_uv": ProblemKind(
        422,
        "No node can install packages",
        "The job names `environment.requirements`, and no node has uv beside its Paceline. Run `pip install 'paceline[worker]'` on a node and start its "
        "agent again, or use `environment.image` or `environment.python`.",
    ),
    "no_bundle": ProblemKind(
        422,
        "The job's code is not here",
        "Send the folder with `paceline submit --workdir FOLDER`. See [Send your code along](../code.md).",
    ),
    "no_secret": ProblemKind(
        422, "The project has no such secret", "Set it with `paceline secret set NAME --project PROJECT`. See [Secrets](../secrets.md)."
    ),
    "secret_key_missing": ProblemKind(
        503,
        "The key of the secrets is not here",
        "Bring the coordinator's `secrets.key` back, or set `PACELINE_SECRETS_KEY`. See [Secrets](../secrets.md).",
    ),
    "plan_too_large": ProblemKind(422, "The plan takes too long to make", "Ask for fewer ranks or layers, or give the strategy yourself."),
    "plan_changed": ProblemKind(409, "The plan would be another by now", "Look at the new plan, and submit again."),
    "job_not_ended": ProblemKind(409, "The job has not ended", "Cancel the job, or wait until it has ended."),
    "no_longer_kept": ProblemKind(
        410,
        "What was recorded is no longer kept",
        "Nothing brings it back. `PACELINE_KEEP_*` in the [settings](settings.md) says how long what is kept.",
    ),
    # experiments
    "invalid_experiment": ProblemKind(
        422, "Nothing of the experiment can run", "Correct what the detail names, so that at least one configuration can run."
    ),
    "search_unavailable": ProblemKind(
        501,
        "This coordinator cannot draw the values of a search",
        "Install the package that the detail names on the coordinator, or give a grid.",
    ),
    "experiment_finished": ProblemKind(409, "The experiment has finished", "Extend it, or start another experiment from it."),
    "experiment_already_paused": ProblemKind(409, "The experiment is already paused", "Resume it when you want it to go on."),
    "experiment_not_paused": ProblemKind(409, "The experiment is not paused", "Pause it first."),
    "not_analyzed": ProblemKind(409, "The experiment has not been analyzed", "Analyze it, once trials have ended."),
    "nothing_to_show": ProblemKind(409, "There is nothing to show in it yet", "Wait until trials have ended."),
    "figures_unavailable": ProblemKind(
        501, "This coordinator cannot draw figures", "Install the package that the detail names on the coordinator, or export a table."
    ),
    # nodes and checkpoints
    "node_state": ProblemKind(
        409, "The node's state does not allow this", "Look at the node's state, and choose an action that it allows."
    ),
    "pool_full": ProblemKind(
        409,
        "The pool has no room for so many nodes",
        "Ask for fewer nodes, raise `max_nodes` of the pool, or give it more hosts. See [Your machines](../nodes.md).",
    ),
    "pool_in_use": ProblemKind(
        409, "The pool has nodes", "Remove its nodes first, or delete it with `--drain`. See [Your machines](../nodes.md)."
    ),
    "launch_joined": ProblemKind(409, "The node has joined already", "Remove the node with `paceline nodes remove`."),
    "range_not_satisfiable": ProblemKind(416, "There are no such bytes", "Ask for bytes within the file's size."),
    "model_in_use": ProblemKind(
        409, "A registered model depends on this", "Delete the version of the model first. See [Models](../models.md)."
    ),
    "checkpoint_not_here": ProblemKind(
        409, "The checkpoint lies on another machine", "Run `paceline export` on a machine that sees the checkpoint's folder."
    ),
    "checkpoint_in_use": ProblemKind(
        409, "Something depends on this checkpoint", "Wait for the jobs that the detail names, or choose another checkpoint."
    ),
    "checkpoint_not_usable": ProblemKind(
        409, "This checkpoint cannot be used", "Choose another checkpoint: this one is incomplete, damaged or deleted."
    ),
    # notifications
    "no_mail_server": ProblemKind(
        422, "The coordinator has no mail server", "Ask an admin to set `PACELINE_SMTP_HOST`. See [Notifications](../notifications.md)."
    ),
    "target_refused": ProblemKind(
        422,
        "Webhooks may not go there",
        "Use a public address, or ask an admin to allow this one. See [Notifications](../notifications.md).",
    ),
    "still_pending": ProblemKind(409, "It is still to be sent", "Wait until it was sent, or has failed."),
    # agents
    "too_many_records": ProblemKind(413, "Too many records in one upload", "Agents send less at once. Update the agent if it persists."),
    "name_taken": ProblemKind(409, "A node of this name is present", "Start the agent with another name, or remove the node of that name."),
    "node_removed": ProblemKind(403, "This node was removed", "Join again with a new token and an empty data folder."),
    # ourselves
    "busy": ProblemKind(503, "The coordinator is busy", "Retry after the time in `Retry-After`."),
    "disk_low": ProblemKind(
        507, "The coordinator's disk is nearly full", "Free disk on the coordinator, or delete jobs' data under *Storage*."
    ),
    "internal": ProblemKind(500, "The coordinator has a bug", "Report it with the `request_id`. The coordinator's log has the traceback."),
}
# fmt: on


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
            type=f"{ERRORS_PAGE}#{self.code}",
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
