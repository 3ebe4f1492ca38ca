from __future__ import annotations

import subprocess
import sys
from typing import Any

from paceline.api.core.context import Services
from paceline.api.services.experiments.predictor import devices_of, predictor_of_trials, slot_memory_of
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import trial_slots
from scripts.bench.stored_experiment import StoredExperiment, write_experiment


def node(device: str, *cards: str) -> NodeRow:
    return NodeRow(device=device, inventory={"gpus": [{"name": name} for name in cards]})


def test_devices_are_named_as_their_drivers_do() -> None:
    assert devices_of([node("cpu"), node("cpu")]) == {"cpu"}
    assert devices_of([node("cuda", "NVIDIA H100", "NVIDIA H100"), node("cuda", "NVIDIA A100")]) == {"NVIDIA H100", "NVIDIA A100"}
    assert devices_of([]) == set()


def test_cpu_slots_of_several_agents_on_one_machine_share_its_memory() -> None:
    def agent(hostname: str, slots: int, memory: int, device: str = "cpu", *cards: int) -> NodeRow:
        gpus = [{"name": "A card", "memory_bytes": each} for each in cards]
        return NodeRow(device=device, slots=slots, inventory={"hostname": hostname, "memory_bytes": memory, "gpus": gpus})

    assert slot_memory_of([agent("one", 1, 48), agent("one", 3, 48)]) == 12
    assert slot_memory_of([agent("one", 2, 64), agent("two", 1, 8)]) == 8
    assert slot_memory_of([agent("one", 2, 64, "cuda", 24, 24), agent("one", 2, 64, "cuda", 24, 24)]) == 24
    assert slot_memory_of([NodeRow(device="cpu", slots=1, id="n")]) is None
    assert slot_memory_of([]) is None


async def test_the_cost_model_knows_the_job_of_each_trial(services: Services) -> None:
    order = StoredExperiment(6, 5)
    experiment_id = await write_experiment(services.settings.data, services.settings.database_url, order)
    spec: Any = ExperimentSpec.model_validate(order.spec)
    async with services.control.read() as session:
        documents = await trial_slots.documents_of_trials(session, experiment_id)
        found = await predictor_of_trials(session, experiment_id, spec, [], documents)
        nothing = await predictor_of_trials(session, "none", spec, [], {})
    assert found is not None
    assert (sorted(found.documents), found.device, found.scaling) == ([0, 1, 2, 3, 4, 5], None, "strong")
    assert found.documents[5]["parallelism"] == {"strategy": "fsdp"}
    assert nothing is None


def test_a_coordinator_loads_neither_numpy_nor_matplotlib() -> None:
    program = "import sys, paceline.api.main; print({'numpy', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"
