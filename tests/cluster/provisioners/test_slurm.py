"""Agents as jobs of Slurm: what is asked of Slurm, what its answers mean, and what happens on a compute node."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from paceline.cluster.provisioners.provisioner import LaunchPhase, ProvisionerContext, ProvisionerError
from paceline.cluster.provisioners.slurm import SlurmProvisioner
from paceline.cluster.provisioners.slurm_script import batch_script
from paceline.cluster.provisioners.slurm_settings import SlurmSettings
from paceline.cluster.provisioners.slurm_states import phase_of, state_in_words
from tests.cluster.provisioners import fake_slurm
from tests.cluster.provisioners.conformance import TOKEN, ProviderEngine, ProvisionerConformance, request
from tests.waiting import until

SETTINGS = SlurmSettings(
    partition="gpu", account="lab", gres="gpu:2", time="4:00:00", options=["--constraint=ib"], setup=["module load cuda"]
)


class FakeSlurm(ProviderEngine):
    """The provider on programs that pretend to be Slurm's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        fake_slurm.install(folder)
        self.provisioner = SlurmProvisioner(SETTINGS, ProvisionerContext(folder, lambda _: None))

    def started(self) -> int:
        return len(fake_slurm.jobs(self.folder))

    def break_down(self) -> None:
        (self.folder / "down").touch()

    def visible(self) -> str:
        return str([(job["words"], job["comment"], job["script"]) for job in fake_slurm.jobs(self.folder)])


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SECRET_OF_THE_COORDINATOR", "not for jobs")
    return FakeSlurm(tmp_path)


class TestSlurm(ProvisionerConformance):
    """Every promise of a provider."""


async def test_the_job_asks_for_what_the_pool_says_and_gets_the_token_alone(engine: FakeSlurm) -> None:
    await engine.provisioner.launch(request())
    (job,) = fake_slurm.jobs(engine.folder)
    asked = {"--partition=gpu", "--account=lab", "--gres=gpu:2", "--time=4:00:00", "--constraint=ib", "--no-requeue", "--signal=B:USR1@120"}
    assert asked <= set(job["words"])
    assert job["environment"]["PACELINE_JOIN_TOKEN"] == TOKEN
    assert "SECRET_OF_THE_COORDINATOR" not in job["environment"]
    assert "module load cuda\n" in job["script"]


async def test_where_a_job_waits_is_told(engine: FakeSlurm) -> None:
    handle = await engine.provisioner.launch(request())
    fake_slurm.change(engine.folder, start="2026-11-26T12:00:00")
    waiting = (await engine.provisioner.poll([handle]))[handle]
    assert waiting.phase is LaunchPhase.PENDING
    assert waiting.reason.endswith("are ahead of it in Slurm's queue; Slurm expects it to start at 2026-11-26 12:00 UTC")
    fake_slurm.change(engine.folder, state="RUNNING", reason="None")
    assert (await engine.provisioner.poll([handle]))[handle].phase is LaunchPhase.RUNNING


async def test_slurms_refusal_is_told_with_a_way_out(engine: FakeSlurm) -> None:
    (engine.folder / "refuses").write_text("Batch job submission failed: Invalid partition specified")
    with pytest.raises(ProvisionerError, match="sbatch refused: Batch job submission failed: Invalid partition") as refused:
        await engine.provisioner.launch(request())
    assert "sinfo" in refused.value.remedy


async def test_a_machine_without_slurm_says_what_to_install(engine: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ProvisionerError, match="squeue cannot be started") as refused:
        await engine.provisioner.poll(["100"])
    assert "slurm-client" in refused.value.remedy


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        ("PENDING", "QOSMaxJobsPerUserLimit", "a limit of its account or quality of service is reached (QOSMaxJobsPerUserLimit)"),
        ("PENDING", "PartitionTimeLimit", "it never starts; lower the pool's `time`"),
        ("PENDING", "(Something|New)", "waits in Slurm's queue ((Something|New))"),
        ("TIMEOUT", "TimeLimit", "raise the pool's `drain_seconds`"),
        ("RUNNING", "None", ""),
    ],
)
def test_a_reason_in_words(state: str, reason: str, words: str) -> None:
    assert state_in_words(state, reason, None).endswith(words)


@pytest.mark.parametrize(
    ("state", "phase"), [("CONFIGURING", "pending"), ("COMPLETING", "running"), ("OF_TOMORROW", "running"), ("NODE_FAIL", "ended")]
)
def test_a_state_that_is_not_known_starts_nothing_in_its_place(state: str, phase: str) -> None:
    assert phase_of(state) == phase


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("time", "soon"),
        ("partition", "gpu; rm -rf /"),
        ("options", ["constraint"]),
        ("setup", ["a\nb"]),
        ("gres", "gpu 4"),
        ("kill_wait", 3),
    ],
)
def test_settings_that_no_slurm_takes_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        SlurmSettings(**{field: value})


# -- the batch script, run by bash as Slurm does


class BatchJob:
    """A batch script with a `paceline` that tells what it was called with, and waits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        agent = f'#!/bin/bash\nprintf "%s\\n" "$@" >{folder}/called.new\nenv >{folder}/env\n'
        agent += f'trap "echo USR1 >>{folder}/signals; exit ${{ENDS_WITH:-3}}" USR1\nmv {folder}/called.new {folder}/called\nwhile :; do sleep 0.05; done\n'
        self._program("paceline", agent)
        self._program("squeue", '#!/bin/bash\ndate -u -d "+1000 seconds" +%Y-%m-%dT%H:%M:%S\n')
        self._program("scontrol", f'#!/bin/bash\necho "$@" >>{folder}/requeued\n')

    def _program(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def start(
        self, *, labels: dict[str, str] | None = None, slots: int | None = None, until: str = "", **variables: str
    ) -> subprocess.Popen[bytes]:
        """Start the script. `until`: a file without which it does not go on once it has started the agent."""
        settings = SlurmSettings(paceline=str(self.folder / "paceline"), directory=str(self.folder / "a folder"), requeue=True)
        script = batch_script(settings, request(labels=labels or {}, slots=slots))
        if until:
            script = script.replace("\nagent=$!", f"\nwhile [ ! -e {self.folder / until} ]; do sleep 0.05; done\nagent=$!")
        given = {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "6", "PACELINE_JOIN_TOKEN": TOKEN, **variables}
        environment = {"PATH": f"{self.folder}:{os.environ['PATH']}", **given}
        return subprocess.Popen(["bash", "-c", script], env=environment)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text() if (self.folder / name).exists() else ""

    async def until_called(self) -> list[str]:
        await until(lambda: bool(self.read("called")), "the agent's start", seconds=30.0)
        return self.read("called").splitlines()


@pytest.fixture
def batch(tmp_path: Path) -> BatchJob:
    return BatchJob(tmp_path)


async def ended(process: subprocess.Popen[bytes]) -> int:
    return await asyncio.to_thread(process.wait, 30.0)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
async def test_signals_of_slurm_drain_the_agent_and_the_job_is_queued_again(batch: BatchJob, number: signal.Signals) -> None:
    process = batch.start(labels={"zone": "it's $HOME"})
    words = await batch.until_called()
    assert words[:7] == [
        "worker",
        "--server",
        "http://127.0.0.1:8000",
        "--name",
        "work-bcdfg",
        "--data",
        f"{batch.folder}/a folder/work-bcdfg",
    ]
    assert words[words.index("--label") + 1] == "zone=it's $HOME"
    assert 900 < int(words[words.index("--ends-in") + 1]) <= 1000
    assert "--returns" in words
    assert TOKEN not in words
    process.send_signal(number)
    assert await ended(process) == 3
    assert batch.read("signals") == "USR1\n"
    assert batch.read("requeued") == "requeue 7\n"


async def test_a_signal_that_comes_as_the_agent_is_started_drains_it(batch: BatchJob) -> None:
    """It ended the script at once, and left an agent that nobody told of the end."""
    process = batch.start(until="go")
    await batch.until_called()
    process.send_signal(signal.SIGUSR1)
    (batch.folder / "go").touch()
    assert await ended(process) == 3
    assert batch.read("signals") == "USR1\n"


@pytest.mark.parametrize(("code", "left"), [(0, {"checkpoints"}), (3, {"checkpoints", "environments", "bundles"})], ids=["gone", "returns"])
async def test_a_node_that_is_gone_leaves_no_packages_and_no_code(batch: BatchJob, code: int, left: set[str]) -> None:
    """Each launch has a folder of its own: after some hundred of them the home folder was full."""
    data = batch.folder / "a folder/work-bcdfg"
    for name in ("checkpoints", "environments", "bundles"):
        (data / name / "key").mkdir(parents=True)
    process = batch.start(ENDS_WITH=str(code))
    await batch.until_called()
    process.send_signal(signal.SIGUSR1)
    assert await ended(process) == code
    assert {path.name for path in data.iterdir() if path.is_dir()} == left


def _offered(words: list[str]) -> tuple[bool, str | None]:
    return "--gpus" in words, words[words.index("--slots") + 1] if "--slots" in words else None


@pytest.mark.parametrize(
    ("visible", "offered"), [("0,2", (False, None)), ("", (True, "6")), ("NoDevFiles", (True, "6"))], ids=["cards", "none", "no-files"]
)
async def test_the_agent_offers_the_cards_of_the_allocation_and_no_others(
    batch: BatchJob, visible: str, offered: tuple[bool, str | None]
) -> None:
    process = batch.start(CUDA_VISIBLE_DEVICES=visible)
    words = await batch.until_called()
    assert _offered(words) == offered
    seen = dict(line.partition("=")[::2] for line in batch.read("env").splitlines())
    assert seen.get("CUDA_VISIBLE_DEVICES") == (visible if not offered[0] else None)
    assert [name for name in seen if name.startswith("SLURM_")] == []  # ranks are no tasks of Slurm's
    process.send_signal(signal.SIGUSR1)
    await ended(process)
