"""Sweeps over learning rates on a simulated agent: trials pause at their rungs, the best go on, and a death or a cancellation changes nothing else."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from paceline.api.loops import experiments as loop
from paceline.api.main import create_app
from paceline.api.settings import Settings
from tests.integration.conftest import Cluster
from tests.simulated_agent import SimulatedAgent

EXPERIMENTS = "/api/v1/experiments"
LRS = [1e-4, 1e-2, 1e-1, 1.0, 10.0]
BEST, RUNGS, TOTAL = 1, (9, 18, 36), 36
JOB = {
    "model": {"kind": "mlp", "hidden": [8]},
    "data": {"kind": "digits"},
    "optimizer": {"kind": "sgd"},
    "parallelism": {"strategy": "single"},
    "resources": {"slots": 1},
    "training": {"steps": TOTAL, "global_batch_size": 8, "eval_every_steps": 100},
}
SWEEP = {
    "name": "lr",
    "job": JOB,
    "grid": {"optimizer.lr": LRS},
    "metric": {"name": "eval_loss"},
    "halving": {"min_steps": 9, "factor": 2},
}


@dataclass
class Sweep:
    """An experiment whose trials' jobs a simulated agent runs, by these losses: from rung to rung in no time."""

    cluster: Cluster
    agent: SimulatedAgent
    id: str = ""
    steps: dict[str, list[int]] = field(default_factory=dict)  # by job: where its generations ended

    @classmethod
    async def post(cls, cluster: Cluster, agent: SimulatedAgent, **changes: Any) -> Sweep:
        sweep = cls(cluster, agent)
        answer = await cluster.client.post(EXPERIMENTS, json=SWEEP | changes)
        assert answer.status_code == 201, answer.text
        sweep.id = answer.json()["id"]
        return sweep

    async def seen(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.cluster.client.get(f"{EXPERIMENTS}/{self.id}")).json()
        return found

    async def trials(self) -> list[dict[str, Any]]:
        answer = await self.cluster.client.get(f"{EXPERIMENTS}/{self.id}/trials", params={"limit": 200})
        found: list[dict[str, Any]] = answer.json()["items"]
        return found

    async def run(self, until: Callable[[dict[str, Any]], bool] = lambda _: False) -> dict[str, Any]:
        """Run until the experiment has ended, or this is so."""
        for _ in range(400):
            await loop.step_once(self.cluster.services, self.cluster.now())
            await self.cluster.hear(self.agent)
            await self.cluster.step()
            experiment = await self.seen()
            if experiment["state"] != "running" or until(experiment):
                return experiment
            for trial in await self.trials():
                if trial["job"] and trial["job"]["state"] == "running" and self.agent.trains(trial["job"]["id"]):
                    await self.advance(trial)
        raise AssertionError(f"it does not end: {await self.seen()}, {await self.trials()}")

    async def advance(self, trial: dict[str, Any]) -> None:
        """A trial that runs goes on to its next rung, or to its end."""
        job_id, lr = trial["job"]["id"], trial["values"]["optimizer.lr"]
        done = self.steps.setdefault(job_id, [])
        step = RUNGS[len(done)]
        done.append(step)
        for rank in self.agent.ranks.values():
            rank.total_steps = TOTAL
        await self.agent.observe()
        await self.agent.record(job_id, step, loss=7.0)
        await self.agent.record(job_id, step, eval_loss="NaN" if lr > 1 else abs(math.log10(lr) + 2) + 1 / step)
        if step == TOTAL:
            await self.agent.step(job_id, step)
            await self.agent.complete(job_id)
        else:
            await self.agent.pause_itself(job_id, step)


def states(trials: list[dict[str, Any]]) -> list[str]:
    return [trial["state"] for trial in trials]


async def test_the_best_learning_rate_is_found_and_all_others_are_pruned_at_their_rungs(cluster: Cluster) -> None:
    sweep = await Sweep.post(cluster, await cluster.add_agent("a", slots=5))
    done = await sweep.run()
    trials = await sweep.trials()
    assert done["state"] == "completed"
    assert states(trials) == ["completed" if index == BEST else "pruned" for index in range(5)]
    assert (done["best_trial"], done["best_metric"]) == (BEST, pytest.approx(1 / TOTAL))
    assert sorted(map(len, sweep.steps.values())) == [1, 1, 1, 2, 3]
    assert all(trial["job"]["state"] == "cancelled" for trial in trials if trial["index"] != BEST)
    causes = {trial["index"]: [event["cause"] for event in await cluster.events(trial["job"]["id"])] for trial in trials}
    assert "its only rank has saved and exited after step 9, as training.pause_at_steps says" in causes[BEST]
    assert "eval_loss 0.0555556 at step 18 is number 1 of 2, of which 1 may go on to step 36" in causes[BEST]
    assert "eval_loss 2.11111 at step 9 is not among the best 2 of 5" in causes[0]
    assert "eval_loss at step 9 is not finite" in causes[4]


async def test_a_trial_that_is_run_longer_does_not_pause_at_the_rungs_of_the_sweep(cluster: Cluster) -> None:
    sweep = await Sweep.post(cluster, await cluster.add_agent("a", slots=5))
    await sweep.run(until=lambda seen: seen["trials"]["paused"] >= 3)
    resting = next(trial for trial in await sweep.trials() if trial["state"] == "paused")
    answer = await cluster.client.post(f"{EXPERIMENTS}/{sweep.id}/extend", json={"steps": RUNGS[1] + 1, "trial": resting["index"]})
    assert answer.status_code == 201, answer.text
    training = answer.json()["spec"]["training"]
    assert (training["steps"], training.get("pause_at_steps")) == (RUNGS[1] + 1, None)


async def test_a_coordinator_that_dies_in_the_middle_is_followed_by_one_that_goes_on(cluster: Cluster, settings: Settings) -> None:
    agent = await cluster.add_agent("a", slots=5)
    sweep = await Sweep.post(cluster, agent)
    half = await sweep.run(until=lambda seen: seen["trials"]["paused"] >= 3)
    assert half["state"] == "running"
    before = {trial["index"]: trial["job"]["id"] for trial in await sweep.trials() if trial["job"]}
    successor = create_app(settings, with_loops=False)
    async with successor.router.lifespan_context(successor):
        await agent.lose_coordinator(successor)
        sweep.cluster = on(successor, cluster)
        await sweep.cluster.step()
        await agent.connect()
        await sweep.cluster.until(lambda: agent.welcome is not None, "the agent is welcomed again")
        done = await sweep.run()
        after = {trial["index"]: trial["job"]["id"] for trial in await sweep.trials() if trial["job"]}
        assert (done["state"], done["best_trial"]) == ("completed", BEST)
        assert before.items() <= after.items(), "no trial was begun again"
        assert sorted(map(len, sweep.steps.values())) == [1, 1, 1, 2, 3], "no rung was reached twice"
        await agent.disconnect()


def on(app: FastAPI, cluster: Cluster) -> Cluster:
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:8000", headers=cluster.client.headers)
    return Cluster(app, client)


@pytest.mark.release
async def test_a_trial_that_its_user_cancels_at_its_rung_leaves_its_place_to_the_next(cluster: Cluster) -> None:
    sweep = await Sweep.post(cluster, await cluster.add_agent("a", slots=5))
    await sweep.run(until=lambda seen: seen["best_trial"] == BEST)
    (job_id,) = [trial["job"]["id"] for trial in await sweep.trials() if trial["index"] == BEST]
    assert (await cluster.ask("DELETE", job_id)).status_code == 200
    done = await sweep.run()
    assert done["state"] == "completed"
    assert (await sweep.trials())[BEST]["state"] == "cancelled"
    assert done["best_trial"] == BEST + 1


@pytest.mark.release
async def test_a_sweep_that_is_paused_rests_at_its_rungs_and_goes_on(cluster: Cluster) -> None:
    sweep = await Sweep.post(cluster, await cluster.add_agent("a", slots=5))
    await sweep.run(until=lambda seen: seen["trials"]["paused"] >= 3)
    assert (await cluster.client.put(f"{EXPERIMENTS}/{sweep.id}/pause")).status_code == 200
    await sweep.run(until=lambda seen: seen["trials"]["running"] == 0)
    assert (await cluster.client.put(f"{EXPERIMENTS}/{sweep.id}/resume")).status_code == 200
    done = await sweep.run()
    assert (done["state"], done["best_trial"]) == ("completed", BEST)


async def test_a_search_draws_runs_and_halves_its_trials(cluster: Cluster) -> None:
    pytest.importorskip("optuna")
    search = {"kind": "tpe", "trials": 5, "seed": 3, "parameters": {"optimizer.lr": {"low": 1e-6, "high": 100, "scale": "log"}}}
    sweep = await Sweep.post(cluster, await cluster.add_agent("a", slots=5), grid={}, search=search)
    done = await sweep.run()
    trials = await sweep.trials()
    assert (done["state"], done["trials"]["total"]) == ("completed", 5)
    # A trial goes on as soon as it is the best so far, so that another one, which comes to the rung later and is better still, goes on beside it.
    assert done["trials"]["completed"] in (1, 2)
    assert states(trials).count("pruned") == 5 - done["trials"]["completed"]
    best = min(trials, key=lambda trial: abs(math.log10(trial["values"]["optimizer.lr"]) + 2))
    assert done["best_trial"] == best["index"]


async def test_a_search_without_optuna_and_a_halving_without_rungs_are_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refusal(**changes: Any) -> tuple[int, str, str]:
        answer = await cluster.client.post(EXPERIMENTS, json=SWEEP | changes)
        return answer.status_code, answer.json()["code"], answer.json()["detail"]

    status, code, detail = await refusal(halving={"min_steps": 50})
    assert (status, code) == (422, "invalid_experiment")
    assert detail.startswith("/halving/min_steps: halving.min_steps=50 leaves no rung before the end of 36 steps")
    status, code, detail = await refusal(grid={"training.steps": [81, 162]})
    assert detail.startswith("/grid/training.steps: halving compares trials after the same steps, and training.steps varies")
    monkeypatch.setitem(sys.modules, "optuna", None)
    status, code, detail = await refusal(grid={}, search={"trials": 3, "parameters": {"optimizer.lr": [0.1, 0.2]}})
    assert (status, code) == (501, "search_unavailable")
    assert "pip install 'paceline[experiments]'" in detail
