"""A spec on its way from the database to a rank: the same bytes in every message, typed where it is needed."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import msgspec
import pytest

from paceline.cluster.agent.spawner_link import Spawn, decode_to_spawner, encode_to_spawner
from paceline.cluster.protocol import Desired, decode_to_agent, encode_to_agent
from paceline.training.errors import UnreadableSpecError
from paceline.training.link import RankOrder, Reform, decode_order, decode_to_rank, encode_order, encode_to_rank
from paceline.training.spec.job import JobSpec
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import assignment, training_job, world

#: No defaults, fields in an order of their own, and numbers in their own spelling: whatever a reader would make of it, it is sent on as it came.
DOCUMENT = {"training": {"steps": 1, "gradient_clip_norm": 1}, "name": "j\u00f6b", "script": None, "unheard": {"of": [1, 2.5, True]}}
ORDER = RankOrder(spec=StoredSpec(DOCUMENT), world=world("job"), folder="/folder", agent_socket="/socket")


def test_a_document_that_the_schema_refuses_is_kept_with_the_reason() -> None:
    stored = StoredSpec({"name": "old", "script": {"path": "train.py"}, "nonsense": 1})
    assert stored.readable is None
    assert stored.why_unreadable is not None
    assert "`nonsense` is not a field of a job spec" in stored.why_unreadable
    assert (stored.part("script", "path"), stored.part("script", "path", "more"), stored.part("model", "kind")) == ("train.py", None, None)


def test_a_message_holds_the_document_as_it_is() -> None:
    desired = Desired(revision=1, assignments=(assignment("job", spec=DOCUMENT),))
    spawn = Spawn(order=ORDER, environment={})
    sent = [encode_to_agent(desired).encode(), encode_to_spawner(spawn), encode_to_rank(Reform(order=ORDER)), encode_order(ORDER)]
    for message in sent:
        assert b'"spec":' + msgspec.json.encode(DOCUMENT) in message
    assert [decode_to_agent(sent[0]), decode_to_spawner(sent[1]), decode_to_rank(sent[2]), decode_order(sent[3])] == [
        desired,
        spawn,
        Reform(order=ORDER),
        ORDER,
    ]
    assert pickle.loads(pickle.dumps(ORDER)) == ORDER


def test_what_is_no_document_is_no_message() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"document of a spec, got list - at `\$\.spec`"):
        decode_order(encode_order(ORDER).replace(msgspec.json.encode(DOCUMENT), b"[]"))


def test_messages_that_repeat_a_spec_read_it_once_and_only_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    validate = JobSpec.model_validate

    def counted(document: object) -> object:
        read.append(json.dumps(document))
        return validate(document)

    monkeypatch.setattr(JobSpec, "model_validate", counted)
    frame = encode_to_agent(Desired(revision=1, assignments=(assignment("job", spec=training_job(told="twice")),)))
    first, again = decode_to_agent(frame), decode_to_agent(frame)
    assert isinstance(first, Desired)
    assert isinstance(again, Desired)
    assert read == []
    typed = [each.assignments[0].spec.readable for each in (first, first, again)]
    assert typed[0] is typed[1] is typed[2] is not None
    assert len(read) == 1


def test_an_order_with_an_unreadable_spec_says_what_is_wrong_and_the_way_out() -> None:
    with pytest.raises(UnreadableSpecError, match=r"`unheard` is not a field of a job spec.*install the coordinator's version on the node"):
        assert ORDER.job_spec


def test_an_agent_is_imported_without_the_schema() -> None:
    """It was a quarter of what an agent imported before it started its spawner."""
    code = "import sys, paceline.cluster.agent.main; print('paceline.training.spec.job' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"
