"""The secrets of this node's jobs: asked for when a rank is to start, kept in memory alone, and masked in all that leaves the node.

An agent that takes over ranks asks for their secrets before it sends anything of them. Values that were replaced meanwhile come along, as ranks which
still run may print them.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from pathlib import Path

import httpx
import msgspec

from paceline.cluster.agent.upload.masking import NOTHING, WITHHELD, SecretMask
from paceline.cluster.agent.upload.transfer import refuses_for_good
from paceline.cluster.protocol import SECRETS_PATH, JobSecrets, ObservedAssignment
from paceline.cluster.stacks import ProcessStack, PythonFrame, StackSample, ThreadStack
from paceline.monitoring.backoff import Backoff
from paceline.monitoring.files import write_durably
from paceline.training.link import FailureReport, RankOrder
from paceline.training.rank_folder import FILES

REQUEST_TIMEOUT_SECONDS = 30.0
#: For which a coordinator may be away, or without its key.
FETCH_SECONDS = 120.0
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.5, 8.0
MOST_SHOWN = 500
STACKS_WITHHELD = "its agent does not know any more which secrets are to be masked in its stacks"
_GENERATION = re.compile(r"g(\d+)(\.rank\d+(\.sent)?)?\Z")

log = logging.getLogger(__name__)
_decoder = msgspec.json.Decoder(JobSecrets)


class SecretsNotFetchedError(Exception):
    """The job's secrets could not be had. The message says why, and has no value."""


class NotAvailableError(Exception):
    """The coordinator cannot give secrets at the moment: another try may succeed."""


def names_secrets(order: RankOrder) -> bool:
    """Whether the job of an order has secrets."""
    return bool(order.spec.part("environment", "secrets"))


class JobSecretsKeeper:
    def __init__(self, http: httpx.AsyncClient, jobs: Path, marks: Path) -> None:
        """Make a keeper. `jobs`: the folder of all jobs. `marks`: a folder with a file for each job that has secrets, by which an agent that comes later
        knows that what is left of a job may have them in it. In the file is the newest generation whose secrets are not known any more, if any."""
        self._http, self._jobs, self._marks = http, jobs, marks
        self._values: dict[str, dict[str, str]] = {}  # by job
        self._masks: dict[str, SecretMask] = {}  # by job
        self._withheld: dict[str, int] = {}  # by job: the newest generation whose secrets are not known any more
        self._unknown: dict[str, None] = {}  # jobs whose ranks were taken over
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._news = asyncio.Event()

    def mask_of(self, job_id: str, generation: int) -> SecretMask | None:
        """The mask for what leaves the node of a job's generation. None: not known yet, so nothing may leave."""
        if job_id in self._unknown:
            return None
        if generation <= self._withheld.get(job_id, -1):
            return WITHHELD
        return self._masks.get(job_id, WITHHELD if job_id in self._withheld else NOTHING)

    def values_of(self, job_id: str) -> dict[str, str]:
        """The variables of a job's ranks, as they were asked for last."""
        return self._values.get(job_id, {})

    def adopt(self) -> None:
        """Take over the jobs of a previous agent: their secrets are to be asked for."""
        for path in self._marks.iterdir() if self._marks.is_dir() else ():
            if path.name not in self._masks:
                self._unknown[path.name] = None
                if noted := path.read_text():
                    self._withheld[path.name] = int(noted)
        self._news.set()

    def forget(self, job_id: str) -> None:
        """Forget the values of a job that has no rank here any more. Its mask stays: files of it may still be on their way."""
        self._values.pop(job_id, None)

    def forget_removed(self) -> None:
        """Forget the jobs of which nothing is left on this node."""
        for path in list(self._marks.iterdir()) if self._marks.is_dir() else ():
            if not (self._jobs / path.name).exists() and not self._values.get(path.name):
                self._masks.pop(path.name, None)
                self._withheld.pop(path.name, None)
                self._unknown.pop(path.name, None)
                path.unlink(missing_ok=True)

    async def run(self) -> None:
        """Ask for the secrets of ranks that were taken over, until they are known."""
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        while True:
            while not self._unknown:
                self._news.clear()
                await self._news.wait()
            for job_id in list(self._unknown):
                try:
                    await self._ask(job_id)
                    backoff.reset()
                except NotAvailableError as error:
                    log.warning("nothing is sent of job %s before its secrets are known: %s; trying again", job_id, error)
                except SecretsNotFetchedError as error:
                    log.warning(
                        "the output of job %s is masked altogether, and its files stay on this node for some days: %s", job_id, error
                    )
                    if job_id in self._unknown:  # no rank of it was started meanwhile
                        self._withhold(job_id, self._newest_generation(job_id))
                        del self._unknown[job_id]
            if self._unknown:
                await backoff.pause()

    async def fetch(self, order: RankOrder) -> dict[str, str]:
        """The secrets that a rank is to start with, by variable. Raises SecretsNotFetchedError."""
        if not names_secrets(order):
            return {}
        job_id, backoff, why = order.world.job_id, Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS), "no answer"
        self._marks.mkdir(mode=0o700, exist_ok=True)
        (self._marks / job_id).touch(mode=0o600)
        try:
            async with asyncio.timeout(FETCH_SECONDS), self._turns[job_id]:
                while True:
                    try:
                        found = await self._ask(job_id)
                        break
                    except NotAvailableError as error:
                        why = str(error)
                        log.warning("the secrets of job %s are not here: %s; trying again", job_id, error)
                    await backoff.pause()
        except TimeoutError:
            raise SecretsNotFetchedError(f"the job's secrets were not fetched within {FETCH_SECONDS:g} s: {why}") from None
        if found.missing:
            project, name = order.spec.part("project") or "default", found.missing[0]
            raise SecretsNotFetchedError(
                f"the secret {name} of project {project} was deleted; set it with `paceline secret set {name} --project {project}`"
            )
        return dict(found.values)

    async def _ask(self, job_id: str) -> JobSecrets:
        try:
            response = await self._http.get(f"{SECRETS_PATH}/{job_id}", timeout=REQUEST_TIMEOUT_SECONDS)
        except httpx.HTTPError as error:
            raise NotAvailableError(str(error) or type(error).__name__) from error
        if refuses_for_good(response):
            raise SecretsNotFetchedError("the coordinator does not know any more what they were")
        if response.status_code != httpx.codes.OK:
            raise NotAvailableError(f"the coordinator answered {response.status_code}: {response.text[:MOST_SHOWN]}")
        try:
            found = _decoder.decode(response.content)
        except msgspec.DecodeError as error:
            raise NotAvailableError(f"the coordinator's answer cannot be read: {error}") from error
        self._note(job_id, found)
        return found

    def _note(self, job_id: str, found: JobSecrets) -> None:
        self._values[job_id] = dict(found.values)
        mask = SecretMask([*found.values.values(), *found.former])
        if job_id in self._masks:
            mask = self._masks[job_id] | mask
        elif found.since > 1:
            self._withhold(job_id, found.since - 1)
        self._masks[job_id] = mask
        self._unknown.pop(job_id, None)

    def _withhold(self, job_id: str, generation: int) -> None:
        """Withhold what generations of a job up to this one have left, also from agents that come later."""
        if generation > self._withheld.get(job_id, -1):
            self._withheld[job_id] = generation
            write_durably(self._marks / job_id, str(generation).encode())

    def _newest_generation(self, job_id: str) -> int:
        """The newest generation that has left something of a job on this node."""
        found = [*(self._jobs / job_id).glob("g*"), *(self._jobs / job_id / FILES).glob("g*.rank*")]
        return max((int(match[1]) for path in found if (match := _GENERATION.match(path.name))), default=0)

    def masked(self, assignment: ObservedAssignment) -> ObservedAssignment:
        """A report with the secrets of its job masked. What ranks say of their end is in it, and the command lines of their processes. Stacks
        wait until the secrets are known: without its functions a rank would seem to be elsewhere than those that wait for it."""
        known = self.mask_of(assignment.job_id, assignment.generation)
        mask = WITHHELD if known is None else known
        if not mask:
            return assignment
        ranks = tuple(
            msgspec.structs.replace(
                rank,
                failure=None if rank.failure is None else _masked_failure(rank.failure, mask),
                stall=None if rank.stall is None else msgspec.structs.replace(rank.stall, where=mask.text(rank.stall.where)),
                stacks=None if rank.stacks is None or known is None else _masked_stacks(rank.stacks, mask),
            )
            for rank in assignment.ranks
        )
        return msgspec.structs.replace(assignment, ranks=ranks)


def _masked_failure(failure: FailureReport, mask: SecretMask) -> FailureReport:
    texts = {name: mask.text(getattr(failure, name)) for name in ("message", "exception", "traceback", "users_traceback", "where")}
    return msgspec.structs.replace(failure, **texts, last_lines=tuple(map(mask.text, failure.last_lines)))


def _masked_stacks(stacks: StackSample, mask: SecretMask) -> StackSample:
    if mask.withheld:
        return msgspec.structs.replace(stacks, processes=(), error=STACKS_WITHHELD)
    processes = tuple(_masked_process(process, mask) for process in stacks.processes)
    return msgspec.structs.replace(stacks, processes=processes, error=mask.text(stacks.error))


def _masked_process(process: ProcessStack, mask: SecretMask) -> ProcessStack:
    threads = tuple(
        ThreadStack(mask.text(thread.name), tuple(_masked_frame(each, mask) for each in thread.frames)) for thread in process.threads
    )
    return msgspec.structs.replace(process, command=mask.text(process.command), threads=threads, error=mask.text(process.error))


def _masked_frame(frame: PythonFrame, mask: SecretMask) -> PythonFrame:
    return msgspec.structs.replace(frame, function=mask.text(frame.function), file=mask.text(frame.file))
