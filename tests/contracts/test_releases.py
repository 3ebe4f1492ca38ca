"""Messages that an earlier release has sent, kept as it sent them: agents and coordinators of one minor version apart work with each other.

Before a release, PACELINE_WRITE_RELEASE=1 writes down what it sends, into `releases/VERSION.json`, which is not changed any more. A file is removed
with the second minor version after it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline.cluster import protocol
from paceline.cluster.protocol import (
    OLDEST_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
    AgentHello,
    CheckpointToDelete,
    ConnectionRefused,
    Desired,
    DesiredAssignment,
    Heartbeat,
    Inventory,
    JoinReply,
    JoinRequest,
    Leaving,
    Observed,
    ObservedAssignment,
    ObservedRank,
    OpenExec,
    RankKey,
    Welcome,
    decode_to_agent,
)
from paceline.cluster.states import RankState
from paceline.monitoring.points import LogLine, MetricRecord, RankBatch, Upload
from paceline.monitoring.samples import HostSample
from paceline.training.link import RankPlace
from paceline.training.spec.stored import StoredSpec
from paceline.version import version
from tests.factories import job_spec

RELEASES = Path(__file__).with_name("releases")
RECORDED = sorted(RELEASES.glob("*.json"))
#: How each kind of message is read by whom it is sent to.
FROM_AGENT = msgspec.json.Decoder(protocol.FromAgent)
READ = {
    **dict.fromkeys(("AgentHello", "Heartbeat", "Observed", "Leaving"), FROM_AGENT.decode),
    **dict.fromkeys(("Welcome", "Desired", "OpenExec", "ConnectionRefused"), decode_to_agent),
    **{kind.__name__: msgspec.json.Decoder(kind).decode for kind in (JoinRequest, JoinReply, Upload)},
}


WORLD = {
    "job_id": "01J",
    "generation": 2,
    "rank": 0,
    "local_rank": 0,
    "local_world_size": 1,
    "node_rank": 0,
    "world_size": 2,
    "slot": 0,
    "device": "cpu",
    "store_host": "10.0.0.2",
    "store_port": 29500,
    "store_token": "t",
    "checkpoint_directory": "/c",
    "node_count": 2,
}
HOST = {
    "cpu_percent": 3.0,
    "memory_used_bytes": 1,
    "memory_total_bytes": 2,
    "disk_used_bytes": 1,
    "disk_total_bytes": 2,
    "load_1m": 0.5,
    "network_sent_bytes_per_second": 1.0,
    "network_received_bytes_per_second": 2.0,
}


def sent_today() -> dict[str, msgspec.Struct]:
    """A message of each kind, by the name of its kind."""
    inventory = Inventory(slots=2, device="cpu", cpu_count=8, memory_bytes=1 << 34, hostname="a", platform="linux", labels={"zone": "a"})
    rank = ObservedRank(rank=0, slot=0, state=RankState.RUNNING, pid=4, step=7, total_steps=9, progress_age=0.5)
    assignment = DesiredAssignment(
        job_id="01J", generation=2, action="run", spec=StoredSpec.of(job_spec()), worlds=(msgspec.convert(WORLD, RankPlace),)
    )
    batch = RankBatch(
        job_id="01J",
        generation=2,
        rank=0,
        metrics=[MetricRecord(seq=1, step=3, time=1.5, values={"loss": 0.5})],
        logs=[LogLine(seq=1, time=1.5, level="info", text="a line")],
    )
    messages: tuple[msgspec.Struct, ...] = (
        AgentHello(
            protocol=PROTOCOL_VERSION, agent_version=version(), boot_id="b", inventory=inventory, address="10.0.0.2", store_port=29500
        ),
        Heartbeat(time=1.0, host=msgspec.convert(HOST, HostSample), backlog_records=3),
        Observed(revision=4, assignments=(ObservedAssignment(job_id="01J", generation=2, ranks=(rank,)),), deleted_checkpoints=("01C",)),
        Leaving(),
        JoinRequest(token="pj_x", name="a"),
        JoinReply(node_id="01N", credential="pn_x"),
        Upload(batches=[batch]),
        Welcome(protocol=PROTOCOL_VERSION, node_id="01N", heartbeat_seconds=2.0, observe_seconds=3.0),
        Desired(revision=5, assignments=(assignment,), delete_checkpoints=(CheckpointToDelete(id="01C", directory="/c"),)),
        OpenExec(id="01S", key=RankKey("01J", 2, 0)),
        ConnectionRefused(code="removed", message="gone", final=True),
    )
    return {type(message).__name__: message for message in messages}


def as_sent(message: msgspec.Struct) -> Any:
    text = protocol.encode_to_agent(message) if isinstance(message, protocol.ToAgent) else msgspec.json.encode(message)
    return json.loads(text)


def lost(before: Any, now: Any, at: str = "") -> list[str]:
    """Where `now` lacks a field of `before`, or has another type of value there."""
    if isinstance(before, Mapping):
        if not isinstance(now, Mapping):
            return [at]
        return [
            place for key, value in before.items() for place in (lost(value, now[key], f"{at}.{key}") if key in now else [f"{at}.{key}"])
        ]
    if isinstance(before, list):
        return [place for one, other in zip(before, now, strict=False) for place in lost(one, other, f"{at}[]")]
    return [] if type(before) is type(now) else [at]


def test_a_release_is_written_down() -> None:
    file = RELEASES / f"{version()}.json"
    if os.environ.get("PACELINE_WRITE_RELEASE"):
        file.write_text(json.dumps({kind: as_sent(message) for kind, message in sent_today().items()}, indent=1, sort_keys=True) + "\n")
    assert file.exists(), "PACELINE_WRITE_RELEASE=1 writes down what this version sends"


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_what_a_release_sends_is_understood(file: Path) -> None:
    for kind, frame in json.loads(file.read_text()).items():
        message = READ[kind](json.dumps(frame).encode())
        assert type(message).__name__ == kind
        assert lost(frame, as_sent(message)) == [], f"{kind}: a field of {file.stem} is not understood any more"


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_what_a_release_reads_is_still_sent(file: Path) -> None:
    now = {kind: as_sent(message) for kind, message in sent_today().items()}
    for kind, frame in json.loads(file.read_text()).items():
        fields = {key: value for key, value in frame.items() if key != "agent_version"}
        assert lost(fields, now[kind]) == [], f"{kind}: {file.stem} waits for a field that is not sent any more"


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_the_protocol_of_a_release_is_spoken(file: Path) -> None:
    recorded = json.loads(file.read_text())
    assert OLDEST_PROTOCOL_VERSION <= recorded["AgentHello"]["protocol"] <= PROTOCOL_VERSION
    assert recorded["Welcome"]["protocol"] >= OLDEST_PROTOCOL_VERSION


def test_fields_of_a_later_release_are_passed_over() -> None:
    for kind, message in sent_today().items():
        READ[kind](json.dumps({**as_sent(message), "of_a_later_release": {"any": 1}}).encode())


def test_a_field_that_is_gone_shows() -> None:
    assert lost({"a": {"b": 1}, "c": [{"d": 1}]}, {"a": {}, "c": [{"d": "1"}]}) == [".a.b", ".c[].d"]
