"""What `paceline run` makes of a launch: a valid job spec, and the variables that ranks get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cli.api_types import Node, SlotUse
from paceline.cli.errors import UsageProblem
from paceline.cli.launch.arguments import LONGEST_GRACE_SECONDS, Launch, parse
from paceline.cli.launch.spec import job_name, left_behind, named_variables, names_to_pass, rank_filter, slots_for, spec_of
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec


def spec(line: str) -> dict[str, Any]:
    return spec_of(parse(line.split()), 2, Path("/home/me/my project"), {"A": "1"})


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("src/train.py --lr=.0003 1e4", {"path": "src/train.py", "args": ["--lr=.0003", "1e4"]}),
        ("-m my.train --x", {"module": "my.train", "args": ["--x"]}),
        ("--no-python bash run.sh", {"command": ["bash", "run.sh"]}),
    ],
)
def test_the_spec_is_valid_and_keeps_every_word(line: str, script: dict[str, Any]) -> None:
    made = spec(f"--nnodes 3 --max-restarts 4 {line}")
    assert made["script"] == script
    valid = JobSpec.model_validate(made)
    assert (valid.world_size, valid.fault_tolerance.max_restarts) == (6, 4)
    assert (valid.environment.working_directory, dict(valid.environment.variables)) == ("/home/me/my project", {"A": "1"})


def test_a_range_of_nodes_makes_an_elastic_script() -> None:
    made = spec("--nnodes 2:6 train.py")
    assert made["resources"] == {"nodes": 6, "slots_per_node": 2, "min_nodes": 2, "spread": True}
    assert derived.is_elastic_script(JobSpec.model_validate(made))


def test_a_virtual_local_rank_is_the_scripts() -> None:
    assert "virtual_local_rank" not in spec("train.py")["script"]
    script = JobSpec.model_validate(spec("--virtual-local-rank train.py")).script
    assert script is not None
    assert script.virtual_local_rank


def test_the_time_to_shut_down_is_the_scripts_grace() -> None:
    assert "grace_seconds" not in spec("train.py")["script"]
    script = JobSpec.model_validate(spec(f"--shutdown-timeout {LONGEST_GRACE_SECONDS} train.py")).script
    assert script is not None
    assert script.grace_seconds == LONGEST_GRACE_SECONDS
    with pytest.raises(UsageProblem, match="--shutdown-timeout=3601 is out of range; give a number from 1 to 3600"):
        parse(["--shutdown-timeout", "3601", "train.py"])


def test_nothing_restarts_unless_asked_as_under_torchrun() -> None:
    assert spec("train.py")["fault_tolerance"] == {"max_restarts": 0}


@pytest.mark.parametrize(
    ("form", "target", "name"),
    [
        ("path", "../My Code/Train_GPT.py", "train_gpt"),
        ("module", "my_project.train", "my_project.train"),
        ("command", "/usr/bin/env", "env"),
        ("path", "übung.py", "bung"),
        ("path", "学習.py", "run"),
        ("path", "a" * 62 + "-b.py", "a" * 62),
    ],
)
def test_the_job_is_named_after_the_script(form: Any, target: str, name: str) -> None:
    assert job_name(Launch(form, target, ())) == name


@given(st.text(min_size=1))
def test_every_script_has_a_valid_name(target: str) -> None:
    name = job_name(Launch("path", target, ()))
    assert JobSpec.model_validate({"name": name, "script": {"path": "x.py"}}).name == name


def test_named_variables_come_from_the_shell_or_from_the_command_line() -> None:
    assert named_variables(["A", "B=x=y", "C="], {"A": "1"}) == {"A": "1", "B": "x=y", "C": ""}


def test_a_variable_that_is_given_twice_with_different_values_is_refused() -> None:
    assert named_variables(["A=1", "A"], {"A": "1"}) == {"A": "1"}
    with pytest.raises(UsageProblem, match="--env A is given twice, as '1' and '2'"):
        named_variables(["A=1", "A=2"], {})


@pytest.mark.parametrize(
    ("text", "says"),
    [("NOT_THERE", "no variable NOT_THERE"), ("1A=2", "is not the name"), ("PACELINE_API_KEY", "never given to ranks")],
)
def test_a_variable_that_cannot_be_passed_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageProblem, match=says):
        named_variables([text], {"PACELINE_API_KEY": "pk"})


def test_a_private_run_passes_the_whole_shell_but_paceline_s_own() -> None:
    assert names_to_pass({"WANDB_API_KEY": "s", "PACELINE_API_KEY": "s", "BASH_FUNC_x%%": "", "A": ""}) == ("A", "WANDB_API_KEY")


def test_the_note_names_what_stays_behind_and_never_its_value() -> None:
    (note,) = left_behind({"WANDB_API_KEY": "secret", "NCCL_DEBUG": "INFO", "HF_HOME": "/x", "EDITOR": "vi"}, ["HF_HOME"])
    assert "(NCCL_DEBUG, WANDB_API_KEY)" in note
    assert "secret" not in note


def test_certificates_and_proxies_of_this_machine_are_no_reason_for_a_note() -> None:
    names = ("AWS_CA_BUNDLE", "MLFLOW_TRACKING_CLIENT_CERT_PATH", "WANDB_HTTPS_PROXY", "EDITOR")
    assert left_behind(dict.fromkeys(names, "x"), []) == []


def test_local_ranks_are_ranks_of_every_node() -> None:
    launch = parse(["--nnodes", "2", "--local-ranks-filter", "1,0,9", "train.py"])
    assert rank_filter(launch, 4) == "0,1,4,5"
    assert rank_filter(parse(["train.py"]), 4) is None


def node(name: str, device: str, slots: int, state: str = "ready") -> Node:
    return Node(id=name, name=name, state=state, device=device, slots=[SlotUse(index=index) for index in range(slots)], address="")


NODES = [node("a", "cuda", 8), node("b", "cuda", 4), node("c", "cpu", 2), node("d", "cuda", 16, "lost")]


@pytest.mark.parametrize(("device", "count", "slots"), [("gpu", 1, 8), ("gpu", 2, 4), ("cpu", 1, 2), ("auto", 2, 4), ("auto", 1, 8)])
def test_a_device_means_as_many_ranks_as_so_many_nodes_have(device: str, count: int, slots: int) -> None:
    assert slots_for(device, NODES, count) == slots


@pytest.mark.parametrize(("device", "count"), [("gpu", 3), ("cpu", 2), ("xpu", 1)])
def test_a_device_that_is_not_there_is_refused_with_what_is(device: str, count: int) -> None:
    with pytest.raises(UsageProblem, match="a: 8 of cuda, b: 4 of cuda, c: 2 of cpu"):
        slots_for(device, NODES, count)
