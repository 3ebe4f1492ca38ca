"""What a rank can learn and touch of its node."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.cluster.agent.confinement import inherited_environment
from paceline.cluster.agent.settings import TOKEN_VARIABLE, read_settings
from tests.cluster.agent.conftest import AgentProcess, assignment, drained, script_job, world
from tests.cluster.agent.coordinator import TOKEN, Coordinator

REQUIRED = ["--server", "http://127.0.0.1:8000/", "--data", "/data"]
SOURCE = """
import os
print("names", *sorted(os.environ))
print("own", os.environ["CHOSEN"], os.environ["OURS"])
open("made", "w").write("by the job")
"""


def test_keys_and_tokens_in_the_agents_environment_do_not_reach_ranks() -> None:
    secrets = dict.fromkeys(
        ("AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "PACELINE_API_KEY", "PACELINE_JOIN_TOKEN", "DATABASE_URL", "WANDB_API_KEY", "HF_TOKEN"),
        "x",
    )
    usual = dict.fromkeys(("PATH", "HOME", "LC_ALL", "CUDA_HOME", "NCCL_DEBUG", "HF_HOME", "https_proxy", "TOKENIZERS_PARALLELISM"), "x")
    assert inherited_environment(secrets | usual) == usual
    assert inherited_environment(secrets | usual, ("HF_TOKEN", "PACELINE_API_KEY")) == usual | {"HF_TOKEN": "x"}


def test_variables_are_passed_on_by_how_their_names_begin() -> None:
    given = dict.fromkeys(("WANDB_MODE", "WANDB_API_KEY", "WAND", "PACELINE_API_KEY", "PACELINE_SECRETS_KEY", "MY_TOKEN"), "x")
    assert set(inherited_environment(given, ("WANDB_*",))) == {"WANDB_MODE", "WANDB_API_KEY"}
    assert set(inherited_environment(given, ("PACELINE_*", "M*"))) == {"MY_TOKEN"}
    assert read_settings([*REQUIRED, "--pass-env", "WANDB_*,A"]).confinement.pass_environment == ("WANDB_*", "A")


@pytest.mark.parametrize("names", ["A=1", "A,B C", "*", "A*B", "PACELINE_JOIN_TOKEN", "PACELINE_API_KEY"])
def test_what_is_no_name_or_never_passed_is_refused(names: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings([*REQUIRED, "--pass-env", names])
    assert "--pass-env" in capsys.readouterr().err
    assert read_settings([*REQUIRED, "--pass-env", "A,B", "--pass-env", "C"]).confinement.pass_environment == ("A", "B", "C")


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
async def test_a_rank_sees_no_key_of_the_agents_and_nobody_else_sees_its_variables(
    agent: AgentProcess, coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "PACELINE_API_KEY", "OURS"):
        monkeypatch.setenv(name, "of the agent")
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    agent.start("--pass-env", "OURS", token="")
    await coordinator.until(lambda c: c.hellos)
    spec = script_job(tmp_path / "look.py", SOURCE) | {"environment": {"variables": {"CHOSEN": "by the job"}}}
    await coordinator.desire(assignment("job", world("job", store_port=coordinator.hellos[0].store_port), spec=spec))
    await coordinator.until(drained("job"))
    names, own = coordinator.of("job").text
    assert not {"AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "PACELINE_API_KEY", TOKEN_VARIABLE} & set(names.split())
    assert {"PATH", "RANK", "MASTER_PORT"} <= set(names.split())
    assert own == "own by the job of the agent"
    assert agent.process is not None
    assert TOKEN.encode() not in Path(f"/proc/{agent.process.pid}/environ").read_bytes()  # which ranks of the same user can read
    folder = agent.data / "jobs" / "job" / "g1" / "rank0"
    private = (agent.data, agent.data / "jobs", folder, folder / "order.json", folder / "output.log", agent.data / "spawner.txt")
    assert {str(path): oct(path.stat().st_mode & 0o077) for path in private} == {str(path): "0o0" for path in private}
    made = agent.data / "jobs" / "job" / "work" / "made"
    assert stat.S_IMODE(made.stat().st_mode) == 0o644  # what a job writes follows the umask of whoever started the agent
    await agent.end()
