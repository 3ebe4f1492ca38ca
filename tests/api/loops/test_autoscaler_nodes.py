"""A pool whose nodes are not what it says of them, or not what a job can use: on both databases, the time as an argument."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import select, update

from paceline.db.models.events import EventRow
from paceline.db.models.provisioning import PoolRow
from tests.api.loops.grown_pool import NODES, POOL, POOLS, Grown

IN_CONTAINER = {
    "name": "script",
    "script": {"command": ["python", "train.py"]},
    "environment": {"image": "docker.io/library/python:3.11"},
    "resources": {"slots": 1},
}


async def test_a_pool_that_says_that_its_nodes_run_containers_grows_for_jobs_with_an_image(grown: Grown) -> None:
    """No pool without nodes ever did: a container engine was looked for on nodes that there were."""
    await grown.apply()
    job = await grown.submit(**IN_CONTAINER)
    await grown.step(11)
    assert await grown.coming() == []
    (held,) = (await grown.pool())["withheld"]
    assert held["reason"] == (
        "lab has had no node, so it is not known whether its nodes have podman, docker or apptainer: if they do, set autoscale.containers of the pool "
        "to true"
    )
    await grown.apply(autoscale=POOL["autoscale"] | {"containers": True})
    await grown.step()
    assert await grown.coming() == ["lab-gpu1"]
    assert await grown.told() == [
        ("autoscaler.withheld", f"no pool has nodes for it (lab: {held['reason']})"),
        ("launch.requested", f"job {job.id} waits for 1 slot"),
    ]
    assert (await grown.pool())["withheld"] == []
    await grown.step()
    await grown.join_all(inventory={"container_engines": ["podman"]})
    for _ in range(10):
        await grown.step(30)
    assert await grown.states() == ["ready"], "it is kept for the job"


async def test_a_pool_that_is_wrong_about_its_nodes_launches_one_and_no_more(grown: Grown) -> None:
    await grown.apply(autoscale=POOL["autoscale"] | {"containers": True})
    await grown.submit(**IN_CONTAINER)
    await grown.step(11)
    await grown.step()
    await grown.join_all(inventory={"container_engines": []})
    for _ in range(40):
        await grown.step(30)
    assert [type for type, _ in await grown.told()].count("launch.requested") == 1
    (held,) = (await grown.pool())["withheld"]
    assert held["reason"].startswith("lab's newest node, lab-gpu1, has none of podman, docker or apptainer that works: install one, then")
    await grown.apply(autoscale=POOL["autoscale"] | {"containers": True, "idle_seconds": 61})
    await grown.step()
    assert [type for type, _ in await grown.told()].count("launch.requested") == 2, "its owner says so anew"


async def test_a_pool_of_gpus_whose_nodes_have_none_launches_one_and_says_what_is_wrong(grown: Grown) -> None:
    """Its node passed for the GPUs that the pool speaks of: the job waited for ever, the node was kept for it, and nothing was said."""
    await grown.apply(autoscale=POOL["autoscale"] | {"device": "cuda"})
    await grown.submit(resources={"slots": 1, "device": "cuda"})
    await grown.step(11)
    await grown.step()
    await grown.join_all(inventory={"gpus": []})
    for _ in range(40):
        await grown.step(30)
    assert [type for type, _ in await grown.told()].count("launch.requested") == 1
    assert await grown.states() == ["draining"], "it does not stay for a job that cannot use it"
    (held,) = (await grown.pool())["withheld"]
    assert held["reason"].startswith("lab's newest node, lab-gpu1, has slots of the device cpu, not cuda as autoscale.device says: correct")
    await grown.apply(autoscale=POOL["autoscale"] | {"device": "cuda", "idle_seconds": 61})
    await grown.step()
    assert [type for type, _ in await grown.told()].count("launch.requested") == 2, "its owner says so anew"


async def test_a_pool_whose_nodes_share_no_folder_launches_once_for_a_job_that_needs_one_and_says_what_is_wrong(grown: Grown) -> None:
    """The scheduler places such a job on nodes that may share a folder: its pool launched two, drained them, and launched them again, on and on."""
    await grown.apply()
    await grown.submit(resources={"slots": 4}, parallelism={"strategy": "ddp"})
    await grown.step(11)
    await grown.step()
    await grown.join_all(inventory=lambda name: {"checkpoint_disk": f"disk of {name}"})
    for _ in range(40):
        await grown.step(30)
    assert [type for type, _ in await grown.told()].count("launch.requested") == 2
    assert await grown.states() == ["draining", "draining"], "they do not stay for a job that cannot use them"
    (held,) = (await grown.pool())["withheld"]
    newest = r"lab-gpu[12]"  # both have joined at once
    assert re.match(
        rf"it saves in the default folder of its nodes, and each of lab's has its own, as {newest}: set checkpoint\.directory",
        held["reason"],
    )
    small = await grown.submit(resources={"slots": 2}, parallelism={"strategy": "ddp"})
    await grown.step(11)
    assert (await grown.told())[-1] == ("launch.requested", f"job {small.id} waits for 2 slots")
    await grown.apply(autoscale=POOL["autoscale"] | {"idle_seconds": 61})
    await grown.step()
    assert [each["reason"] for each in (await grown.pool())["withheld"]] == ["lab may have 0 nodes more, and it lacks 1"], (
        "it is tried anew"
    )


async def test_a_pool_launches_a_node_beside_one_that_a_taint_keeps_the_job_off(grown: Grown) -> None:
    await grown.apply(min_nodes=1)
    await grown.step()
    await grown.step()
    (node,) = await grown.join_all()
    answer = await grown.client.put(f"{NODES}/{node}/taints", json={"taints": {"new": ""}})
    assert answer.status_code == 200, answer.text
    job = await grown.submit()
    await grown.step(11)
    assert await grown.coming() == ["lab-gpu2"]
    assert await grown.told() == [
        ("launch.requested", "it is to have at least 1 node"),
        ("launch.requested", f"job {job.id} waits for 1 slot"),
    ]


@pytest.mark.parametrize("damage", [{"autoscale": {"of_a_later_version": 1}}, {"spent": {"of": "another"}}])
async def test_a_pool_that_cannot_be_read_keeps_no_other_from_growing(
    grown: Grown, caplog: pytest.LogCaptureFixture, damage: dict[str, Any]
) -> None:
    """No pool grew or shrank any more, and no node-hours were counted of those behind it."""
    caplog.set_level("CRITICAL")
    await grown.apply()
    other = POOL | {"name": "a-bad-one", "provider": {"type": "ssh", "hosts": ["ada@other"]}}
    assert (await grown.client.put(f"{POOLS}/a-bad-one", json=other)).status_code == 200
    async with grown.services.write() as session:
        await session.execute(update(PoolRow).where(PoolRow.name == "a-bad-one").values(**damage))
    await grown.submit()
    for _ in range(3):
        await grown.step(6)
    assert await grown.coming() == ["lab-gpu1"]
    async with grown.services.control.read() as session:
        told = list(await session.scalars(select(EventRow.message).where(EventRow.type == "pool.held_up")))
        assert (await session.scalars(select(PoolRow.spent).where(PoolRow.name == "lab"))).one() is not None
    assert len(told) == len({message.partition(": cannot ")[2].partition(":")[0] for message in told}) == len(damage) + ("spent" in damage)
    assert all(message.startswith("pool a-bad-one is held up: cannot ") for message in told)
    metrics = (await grown.client.get("/metrics")).text
    assert 'paceline_held_up{kind="pool"} 1.0' in metrics
