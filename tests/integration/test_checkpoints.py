"""Checkpoints that simulated agents save: what counts, what is kept, what others start from."""

from __future__ import annotations

from typing import Any

from paceline.cluster.policy.failures import UNREACHABLE
from tests.integration.conftest import Cluster


async def _after_deletions(cluster: Cluster, job_id: str) -> list[dict[str, Any]]:
    """The job's checkpoints once nothing is being deleted any more."""
    await cluster.step()
    await cluster.until_checkpoints(job_id, lambda found: all(each["state"] != "deleting" for each in found))
    return await cluster.checkpoints(job_id)


async def test_what_a_fenced_off_generation_saves_is_kept_until_its_job_has_come_as_far(cluster: Cluster) -> None:
    a, b = await cluster.add_agent("a", slots=1), await cluster.add_agent("b", slots=1)
    a.obeys_stop = b.obeys_stop = False
    job_id = await cluster.submit()
    job = await cluster.until_job(job_id, "running")
    old, new = (a, b) if job["ranks"][0]["node_name"] == "a" else (b, a)
    await cluster.elapse(11, new)
    await cluster.elapse(46, new)
    await cluster.until_job(job_id, "running", generation=2)
    await old.save_checkpoint(job_id, 50)
    await old.save_checkpoint(job_id, 99)
    found = await _after_deletions(cluster, job_id)
    assert [(each["step"], each["state"], each["latest"]) for each in found] == [(99, "superseded", False), (50, "superseded", False)]
    assert new.worlds(job_id)[0].restore_from == ()
    await new.save_checkpoint(job_id, 60)
    assert [(each["step"], each["state"]) for each in await _after_deletions(cluster, job_id)] == [(99, "superseded"), (60, "committed")]
    await new.save_checkpoint(job_id, 100)
    assert [each["step"] for each in await _after_deletions(cluster, job_id)] == [100, 60]


async def test_a_restart_waits_for_the_checkpoint_that_a_node_has_not_yet_told_of(cluster: Cluster) -> None:
    """The coordinator was away: the rank died meanwhile, and its node has much to send."""
    a = await cluster.add_agent("a", slots=1)
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    a.drains_at_once = False
    await a.heartbeat()  # it says that seven records have not been sent
    await cluster.until_node("a", lambda node: node["backlog_records"] == 7)
    await a.crash(job_id, 0)
    await cluster.elapse(12, a)
    assert (await cluster.job(job_id))["generation"] == 1
    folder = await a.save_checkpoint(job_id, 40)
    a.drains_at_once = True
    await a.observe()
    await cluster.until_job(job_id, "running", generation=2)
    assert a.worlds(job_id)[0].restore_from == (folder,)


async def test_retention_deletes_on_the_node_that_wrote(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit(checkpoint={"keep_last": 2, "keep_best": 1})
    await cluster.until_job(job_id, "running")
    for step, loss in ((10, 0.1), (20, 0.9), (30, 0.8), (40, 0.7)):
        await a.save_checkpoint(job_id, step, loss=loss)
    steps = [each["step"] for each in await _after_deletions(cluster, job_id)]
    assert steps == [40, 30, 10]


async def test_a_restored_job_starts_from_the_checkpoint_of_another(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    folder = await a.save_checkpoint(job_id, 10)
    (checkpoint,) = await cluster.checkpoints(job_id)
    answer = await cluster.client.post(f"/api/v1/checkpoints/{checkpoint['id']}/restore", json={"steps": 200})
    assert answer.status_code == 201, answer.text
    restored = await cluster.until_job(answer.json()["id"], "running")
    assert (restored["name"], restored["restored_from"], restored["spec"]["training"]["steps"]) == (
        "digits-restored",
        checkpoint["id"],
        200,
    )
    assert a.worlds(restored["id"])[0].restore_from == (folder,)
    assert a.worlds(restored["id"])[0].restore_required
    refused = await cluster.client.delete(f"/api/v1/checkpoints/{checkpoint['id']}")
    assert (refused.status_code, refused.json()["code"]) == (409, "checkpoint_in_use")
    assert restored["id"] in refused.json()["detail"]


async def test_a_restored_job_does_not_start_from_a_checkpoint_that_was_deleted_meanwhile(cluster: Cluster) -> None:
    """Its ranks looked for the folder that was gone, four times, and said that nothing was lost."""
    a = await cluster.add_agent("a", slots=1)
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    folders = {step: await a.save_checkpoint(job_id, step) for step in (10, 20)}
    chosen = next(each["id"] for each in await cluster.checkpoints(job_id) if each["step"] == 20)
    restored = (await cluster.client.post(f"/api/v1/checkpoints/{chosen}/restore", json={})).json()["id"]
    assert (await cluster.client.delete(f"/api/v1/checkpoints/{chosen}", params={"confirm": True})).is_success
    await cluster.client.delete(f"/api/v1/training/jobs/{job_id}")
    await cluster.until_job(restored, "running")
    assert (a.worlds(restored)[0].restore_from, a.worlds(restored)[0].restore_required) == ((folders[10],), True)


async def test_a_restore_from_a_damaged_checkpoint_falls_back_to_that_jobs_older_ones(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    folders = {step: await a.save_checkpoint(job_id, step) for step in (10, 20, 30)}
    chosen = next(each["id"] for each in await cluster.checkpoints(job_id) if each["step"] == 20)
    restored = (await cluster.client.post(f"/api/v1/checkpoints/{chosen}/restore", json={})).json()["id"]
    await cluster.until_job(restored, "running", generation=1)
    assert a.worlds(restored)[0].restore_from == (folders[20], folders[10])
    rank = next(rank for (job, _, _), rank in a.ranks.items() if job == restored)
    for step in (20, 10):
        await a.tell(rank, "checkpoint_damaged", {"directory": folders[step], "reason": "hash differs"})
    await a.crash(restored, 0)
    await cluster.until_job(restored, "running", generation=2)
    world = a.worlds(restored)[-1]
    assert (world.restore_from, world.restore_required) == ((), True)


async def test_a_job_that_is_set_back_continues_there_whatever_arrives_late(cluster: Cluster) -> None:
    """A node that was away tells of a newer checkpoint only after its job was set back."""
    a = await cluster.add_agent("a")
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    folders = {step: await a.save_checkpoint(job_id, step) for step in (10, 20)}
    first = next(each["id"] for each in await cluster.checkpoints(job_id) if each["step"] == 10)
    rank = next(iter(a.ranks.values()))
    await cluster.ask("DELETE", job_id)
    await cluster.until_job(job_id, "cancelled")
    answer = await cluster.client.post(f"/api/v1/checkpoints/{first}/restore", json={"in_place": True})
    assert answer.status_code == 200, answer.text
    late = {"directory": f"/checkpoints/{job_id}/step-30.g1", "step": 30, "bytes": 1000, "manifest_sha256": "0" * 64}
    await a.tell(rank, "checkpoint_committed", late)
    again = await cluster.until_job(job_id, "running", generation=2)
    assert a.worlds(job_id)[-1].restore_from == (folders[10],)
    assert (again["generations"][-1]["start_step"], again["end_reason"]) == (10, None)
    states = {each["step"]: each["state"] for each in await cluster.checkpoints(job_id)}
    assert states == {30: "superseded", 10: "committed"} or states == {30: "superseded", 20: "superseded", 10: "committed"}
    for step in (20, 30):
        await a.save_checkpoint(job_id, step)
    assert {each["state"] for each in await _after_deletions(cluster, job_id)} == {"committed"}


async def test_a_job_goes_back_to_the_node_that_has_its_checkpoint_beside_a_fuller_one(cluster: Cluster) -> None:
    """Each node has a default folder of its own: on any other node the job could only fail."""
    home = await cluster.add_agent("z", slots=1, disk="of-z")
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    await home.save_checkpoint(job_id, 10)
    await cluster.add_agent("a", slots=2, disk="of-a")
    beside = await cluster.submit()
    await cluster.until_placed(beside, ["a"])
    await cluster.ask("PUT", job_id, "/pause")
    await cluster.until_job(job_id, "paused")
    await cluster.ask("PUT", job_id, "/resume")
    await cluster.until_placed(job_id, ["z"])
    await home.crash(job_id, 0)
    await cluster.until_job(job_id, "running", generation=3)
    await cluster.until_placed(job_id, ["z"])


async def test_a_job_that_cannot_read_its_checkpoint_on_one_node_waits_for_the_one_that_has_it(cluster: Cluster) -> None:
    """Any further node with a folder of its own would only cost a restart."""
    home = await cluster.add_agent("z", slots=1, disk="of-z")
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    await home.save_checkpoint(job_id, 10)
    await cluster.ask("PUT", job_id, "/pause")
    await cluster.until_job(job_id, "paused")
    in_its_place = await cluster.submit()
    await cluster.until_placed(in_its_place, ["z"])
    others = [await cluster.add_agent(name, slots=1, disk=f"of-{name}") for name in ("a", "b")]
    await cluster.ask("PUT", job_id, "/resume")
    await cluster.until_placed(job_id, ["a"])
    await others[0].crash(job_id, 0, exception=UNREACHABLE)
    waits = await cluster.until_job(job_id, "recovering", generation=2)
    waits = await cluster.until_seen(lambda: cluster.job(job_id), lambda job: bool(job["pending"]))
    assert waits["pending"]["text"].endswith("; a, b could not start it a short time ago")
    await home.complete(in_its_place)
    await cluster.until_placed(job_id, ["z"])
