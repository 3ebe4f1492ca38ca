"""The spec of a submitted job, as it is stored and sent: a document that stays as it is, which today's schema reads at most once.

A spec was checked when it was submitted, by the schema of that day. Another release may refuse it: the coordinator's later one, or that of
a node. Such a spec is *unreadable*, and fails what needs it and nothing else.
"""

from __future__ import annotations

import json
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

if TYPE_CHECKING:
    from paceline.training.spec.job import JobSpec

#: Parsed specs that are kept. They are frozen, and found by what the document says: a changed document is another one.
MOST_KEPT = 1024
#: How many of the wrong fields of one spec are named.
MOST_NAMED = 3


class StoredSpec:
    """A spec as it was submitted (`document`, which nobody changes), and what today's schema makes of it.

    Messages hold it as their field `spec`, where it is the document: see `SpecField`, `spec_to_json` and `spec_from_json`.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    @classmethod
    def of(cls, spec: JobSpec) -> StoredSpec:
        """Return the document of a typed spec, which need not be read again."""
        stored = cls(spec.model_dump(mode="json"))
        stored._parsed = spec
        return stored

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredSpec) and self.document == other.document

    def __repr__(self) -> str:
        return f"StoredSpec({self.document!r})"

    @property
    def readable(self) -> JobSpec | None:
        """The typed spec. None where today's schema refuses the document: see `why_unreadable`."""
        return None if isinstance(self._parsed, str) else self._parsed

    @property
    def why_unreadable(self) -> str | None:
        """The schema's objection to the document. None where it can be read."""
        return self._parsed if isinstance(self._parsed, str) else None

    @property
    def is_script(self) -> bool:
        """Whether the ranks of the job are those of a script. The rest of the document may be unreadable."""
        return self.part("script") is not None

    @property
    def model(self) -> str:
        """The kind of model that the job trains, `entrypoint` or `script`. The rest of the document may be unreadable; `unknown` where it does not say."""
        if self.is_script:
            return "script"
        return "entrypoint" if self.part("entrypoint") is not None else str(self.part("model", "kind") or "unknown")

    @property
    def installs_packages(self) -> bool:
        """Whether nodes prepare packages or a container's image for the job's ranks."""
        return any(self.part("environment", name) is not None for name in ("requirements", "python", "image"))

    @property
    def needs_preparation(self) -> bool:
        """Whether nodes have to get anything before they start the job's ranks: its code, packages, or a container's image. Any of them may take minutes."""
        return self.installs_packages or self.part("environment", "code") is not None

    def part(self, *names: str) -> Any:
        """One value of the document, whether or not all of it can be read. None where it is not there."""
        value: Any = self.document
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    @cached_property
    def _parsed(self) -> JobSpec | str:
        return parse_document(json.dumps(self.document))


def schema() -> type[JobSpec]:
    """Import the schema, which takes a fifth of a second of the processor: an agent does so while its spawner imports torch, and not before."""
    from paceline.training.spec.job import JobSpec

    return JobSpec


@lru_cache(maxsize=MOST_KEPT)
def parse_document(document: str) -> JobSpec | str:
    """The only place where a stored spec becomes a typed one. Returns what is wrong where the schema refuses it."""
    from pydantic import ValidationError

    from paceline.training.spec.refusals import told

    try:
        return schema().model_validate(json.loads(document))
    except ValidationError as error:
        return told(error, MOST_NAMED)
    except Exception as error:  # noqa: BLE001 - a check of ours met something that it did not expect, which is no reason to fail whoever asks
        return f"{type(error).__name__}: {error}"


#: The type of a message's field that holds a spec: an object of JSON, as which `msgspec` is to describe it.
SpecField = Annotated[StoredSpec, msgspec.Meta(extra_json_schema={"type": "object"})]


def spec_to_json(value: Any) -> Any:
    """Return the document of a spec: the `enc_hook` of messages with a `SpecField`. Raises NotImplementedError for any other value."""
    if isinstance(value, StoredSpec):
        return value.document
    raise NotImplementedError(f"{type(value).__name__} has no place in a message")


def spec_from_json(kind: type, value: Any) -> StoredSpec:
    """Return the spec with this document: the `dec_hook` of messages with a `SpecField`. Reads nothing of it, so that the message of a node
    with many jobs costs no validation, and an unreadable spec spoils no message. Raises ValueError for what is no document."""
    if kind is StoredSpec and isinstance(value, dict):
        return StoredSpec(value)
    raise ValueError(f"expected the document of a spec, got {type(value).__name__}")
