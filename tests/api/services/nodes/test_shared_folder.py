"""What is known of the folders of nodes decides whether a job that needs one on all of its nodes is refused, warned or neither."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.errors import ProblemError
from paceline.api.services.nodes.shared_folder import named_folder_warning, refuse_apart, warning
from paceline.cluster.states import NodeState
from paceline.db.models.nodes import NodeRow
from tests import factories

ON_TWO = {"parallelism": {"strategy": "ddp"}, "resources": {"nodes": 2}, "training": {"steps": 10, "global_batch_size": 8}}
SCRIPT = {"script": {"path": "train.py"}, "model": None, "data": None, "training": None}


def nodes(*disks: str | None, device: str = "cpu", slots: int = 1, state: NodeState = NodeState.READY) -> list[NodeRow]:
    """One for each disk; None: an agent that does not say."""
    return [
        NodeRow(name=f"node-{number}", device=device, slots=slots, state=state, inventory={"checkpoint_disk": disk} if disk else {})
        for number, disk in enumerate(disks, start=1)
    ]


def job(**changes: Any) -> Any:
    return factories.job_spec(**(ON_TWO | changes))


def elastic(least: int) -> Any:
    return job(resources={"nodes": 2, "min_nodes": least}, fault_tolerance={"recovery": "close_up"})


def test_nodes_on_disks_of_different_machines_are_refused_with_the_way_out() -> None:
    with pytest.raises(ProblemError) as refused:
        refuse_apart(job(), nodes("a", "b"))
    assert refused.value.code == "no_shared_folder"
    assert "2 nodes have to see the same checkpoints" in refused.value.detail
    assert "(node-1, node-2)" in refused.value.detail
    assert "set checkpoint.directory to a path on a file system that all of them mount" in refused.value.detail


@pytest.mark.parametrize(
    "found",
    [
        nodes("a", "a", "b"),  # two of them share it
        nodes("a", None),  # an older agent, or a network file system
        nodes("a"),  # others may yet join
        nodes(),
        nodes("a", "b", slots=0),  # of no use to the job
        nodes("a", "b", state=NodeState.LOST),
    ],
    ids=["shared", "unknown", "too-few", "none", "no-slots", "lost"],
)
def test_what_may_work_is_not_refused(found: list[NodeRow]) -> None:
    refuse_apart(job(), found)
    assert warning(job(), found)


def test_nodes_that_all_share_one_folder_need_no_warning() -> None:
    assert warning(job(), nodes("a", "a")) is None
    assert warning(job(), [*nodes("a", "a"), *nodes("b", slots=0)]) is None


@pytest.mark.parametrize(
    "spec",
    [
        job(checkpoint={"directory": "/mnt/shared/run"}),
        job(resources={"nodes": 1}),
        job(**SCRIPT),
    ],
    ids=["directory", "one-node", "script"],
)
def test_what_needs_no_default_folder_is_neither_refused_nor_warned(spec: Any) -> None:
    refuse_apart(spec, nodes("a", "b"))
    assert warning(spec, nodes("a", "b")) is None


def mounting(**mounts: tuple[str, ...] | None) -> list[NodeRow]:
    """Nodes of one slot on machines of their own, with the mount points of shared file systems; None: an agent that does not say."""
    return [
        NodeRow(
            id=name, name=name, device="cpu", slots=1, state=NodeState.READY, inventory={"machine": name, "shared_mounts": mounts[name]}
        )
        for name in mounts
    ]


def refusal(spec: Any, found: list[NodeRow]) -> str | None:
    """Why the job is refused, beginning with the code; None: it is not."""
    try:
        refuse_apart(spec, found)
    except ProblemError as error:
        return f"{error.code} {error.detail}"
    return None


NAMED = {"checkpoint": {"directory": "/data/ckpt"}}


@pytest.mark.parametrize(
    ("found", "apart"),
    [
        (mounting(a=(), b=()), "a, b"),
        (mounting(a=("/data",), b=("/database", "/mnt")), "a, b"),  # one has it mounted, the other only a name that begins alike
        (mounting(a=("/data",), b=("/data/ckpt",)), None),
        (mounting(a=(), b=None), None),  # an older agent
        (mounting(a=("/",), b=("/",)), None),  # both run from a network file system
        (mounting(a=()), None),  # others may yet join
        (mounting(a=(), b=("/data",), c=("/data",)), None),  # two of them share it
    ],
    ids=["own disks", "one mount", "mounted", "unknown", "root", "too few", "enough"],
)
def test_a_named_folder_on_disks_of_different_machines_is_refused(found: list[NodeRow], apart: str | None) -> None:
    said = refusal(job(**NAMED), found)
    assert (said is None) is (apart is None)
    if said is not None:
        assert said.startswith("no_shared_folder /checkpoint/directory: 2 nodes have to see the same checkpoints")
        assert f"no 2 of those here have checkpoint.directory=/data/ckpt as one folder, by their mounts ({apart})" in said
        assert "set checkpoint.shared to true" in said


@pytest.mark.parametrize(
    ("checkpoint", "is_refused"),
    [
        ({"directory": "/data/ckpt", "shared": True}, False),  # behind a link, for example
        ({"directory": "/data/ckpt", "shared": False}, True),
        ({"directory": "file:///data/ckpt"}, True),
        ({"directory": "/mnt/../data"}, True),
        ({"directory": "/mnt/data"}, False),
        ({"directory": "s3://bucket/runs"}, False),
    ],
    ids=["shared", "not shared", "file", "dots", "mounted", "store"],
)
def test_a_job_may_say_that_its_folder_is_one(checkpoint: dict[str, Any], is_refused: bool) -> None:
    said = refusal(job(checkpoint=checkpoint), mounting(a=("/mnt",), b=("/mnt",)))
    assert (said is not None) is is_refused


def test_agents_of_one_machine_share_its_folders() -> None:
    one, other = mounting(a=(), b=())
    other.inventory = one.inventory
    assert refusal(job(**NAMED), [one, other]) is None


def test_a_script_saves_by_itself_and_is_never_refused_for_a_folder() -> None:
    assert refusal(job(**NAMED, **SCRIPT), mounting(a=(), b=())) is None


def test_a_job_that_may_start_on_one_node_is_warned_of_a_named_folder_that_is_not_one() -> None:
    apart = mounting(a=(), b=())
    small = job(**NAMED, resources={"nodes": 2, "min_nodes": 1}, fault_tolerance={"recovery": "close_up"})
    refuse_apart(small, apart)
    assert str(named_folder_warning(small, apart)).startswith(
        "checkpoint.directory=/data/ckpt is not one folder for a, b, by what was mounted"
    )
    assert named_folder_warning(small, mounting(a=("/data",), b=("/data",))) is None
    assert named_folder_warning(job(**NAMED, resources={"nodes": 1}), apart) is None


async def test_a_named_folder_is_refused_at_plan_and_submission_and_taken_where_the_job_says_that_it_is_one(
    client: httpx.AsyncClient, services: Services
) -> None:
    async with services.write() as session:
        for name in ("a", "b"):
            await factories.create_node(session, name=name, slots=1, inventory={"machine": name, "shared_mounts": ["/mnt"]})
    for path, done in (("/api/v1/training/plan", 200), ("/api/v1/training/jobs", 201)):
        answer = await client.post(path, json=job(**NAMED).model_dump(mode="json"))
        assert (answer.status_code, answer.json()["code"]) == (422, "no_shared_folder"), answer.text
        (error,) = answer.json()["errors"]
        assert (error["pointer"], "checkpoint.shared" in error["hint"]) == ("/checkpoint/directory", True)
        for checkpoint in ({"directory": "/mnt/ckpt"}, {"directory": "/data/ckpt", "shared": True}):
            taken = await client.post(path, json=job(checkpoint=checkpoint).model_dump(mode="json"))
            assert taken.status_code == done, taken.text
            assert not any("is not one folder" in said for said in taken.json()["warnings"])


async def test_a_job_waits_for_the_nodes_that_mount_the_folder_which_it_names(client: httpx.AsyncClient, services: Services) -> None:
    """It was placed on two of which one does not, and failed there."""
    async with services.write() as session:
        for name, mounts in (("busy", ["/data"]), ("free", ["/data"]), ("apart", [])):
            node, _ = await factories.create_node(session, name=name, slots=1, inventory={"machine": name, "shared_mounts": mounts})
            if name == "busy":
                await factories.create_running_job(session, node)
    pending = (await client.post("/api/v1/training/plan", json=job(**NAMED).model_dump(mode="json"))).json()["pending"]
    assert pending["code"] == "slots_taken"
    assert "where nodes share checkpoint.directory=/data/ckpt; the free ones do not" in pending["text"]
    shared = job(checkpoint=NAMED["checkpoint"] | {"shared": True}).model_dump(mode="json")
    assert {each["node_name"] for each in (await client.post("/api/v1/training/plan", json=shared)).json()["placement"]} == {
        "free",
        "apart",
    }


def test_a_job_that_may_start_on_one_node_is_only_warned() -> None:
    refuse_apart(elastic(1), nodes("a", "b"))
    assert "checkpoint.directory is not set" in str(warning(elastic(1), nodes("a", "b")))
    with pytest.raises(ProblemError):
        refuse_apart(elastic(2), nodes("a", "b"))


def test_a_gang_has_nodes_of_one_device() -> None:
    refuse_apart(job(), [*nodes("a", "b", device="cuda"), *nodes("c", "c")])
    with pytest.raises(ProblemError):
        refuse_apart(job(), [*nodes("a", "b", device="cuda"), *nodes("a")])


async def test_a_job_waits_for_the_nodes_that_share_a_folder(client: httpx.AsyncClient, services: Services) -> None:
    """It was placed on two that do not, and failed there. When the busy one is free again, two nodes share a folder."""
    async with services.write() as session:
        for name, disk in (("busy", "a"), ("free", "a"), ("far", "b")):
            node, _ = await factories.create_node(session, name=name, slots=1, inventory={"checkpoint_disk": disk})
            if name == "busy":
                await factories.create_running_job(session, node)
    answer = await client.post("/api/v1/training/plan", json=job().model_dump(mode="json"))
    assert answer.status_code == 200, answer.text
    assert answer.json()["placement"] is None
    pending = answer.json()["pending"]
    assert pending["code"] == "slots_taken"
    assert "where nodes share their default folder for checkpoints; the free ones do not" in pending["text"]
    body = job(checkpoint={"directory": "/mnt/shared/run"}).model_dump(mode="json")
    assert (await client.post("/api/v1/training/plan", json=body)).json()["placement"] is not None


async def test_it_is_refused_where_it_is_submitted_and_where_it_is_planned(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        for name in ("a", "b"):
            await factories.create_node(session, name=name, slots=1, inventory={"checkpoint_disk": name})
    body = job().model_dump(mode="json")
    for path in ("/api/v1/training/jobs", "/api/v1/training/plan"):
        answer = await client.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "no_shared_folder"), answer.text
        (error,) = answer.json()["errors"]
        assert error["pointer"] == "/checkpoint/directory"
        assert "checkpoint.directory" in error["hint"]
    body["checkpoint"]["directory"] = "/mnt/shared/run"
    assert (await client.post("/api/v1/training/jobs", json=body)).status_code == 201
