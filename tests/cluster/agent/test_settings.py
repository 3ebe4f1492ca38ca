from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cluster.agent.checkpoints import delete
from paceline.cluster.agent.settings import TOKEN_VARIABLE, read_settings
from paceline.cluster.protocol import CheckpointToDelete

REQUIRED = ["--server", "http://127.0.0.1:8000/", "--data", "/data"]


def test_defaults() -> None:
    settings = read_settings(REQUIRED)
    assert (settings.server, settings.channel_server) == ("http://127.0.0.1:8000", "ws://127.0.0.1:8000")
    assert (settings.server_host, settings.server_port) == ("127.0.0.1", 8000)
    assert settings.checkpoints == Path("/data/checkpoints")
    assert settings.name


def test_checkpoints_below_another_folder_can_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent").mkdir()
    monkeypatch.chdir(tmp_path / "agent")
    settings = read_settings([*REQUIRED, "--checkpoints", "../shared"])
    checkpoint = settings.checkpoints / "step-4.g1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").touch()
    assert delete(CheckpointToDelete(id="c", directory=str(checkpoint)))
    assert not checkpoint.exists()


def test_endpoints_of_stores_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings(REQUIRED).store_endpoints == frozenset()
    monkeypatch.setenv("PACELINE_STORE_ENDPOINTS", "https://minio.example:9000")
    assert read_settings(REQUIRED).store_endpoints == {"https://minio.example:9000"}


def test_https_means_wss_and_its_port() -> None:
    settings = read_settings(["--server", "https://paceline.example", "--data", "/data"])
    assert (settings.channel_server, settings.server_port) == ("wss://paceline.example", 443)


def test_plain_http_to_another_machine_needs_to_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = ["--server", "http://10.0.0.1:8000", "--data", "/data"]
    with pytest.raises(SystemExit) as end:
        read_settings(elsewhere)
    assert end.value.code == 2
    assert "would travel readable; use the coordinator's https address, or add --insecure-http" in capsys.readouterr().err
    assert read_settings([*elsewhere, "--insecure-http"]).server == "http://10.0.0.1:8000"


def test_a_token_and_an_authority_may_be_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("pj_secret\n")
    assert read_settings([*REQUIRED, "--token-file", str(tmp_path / "token")]).token == "pj_secret"
    with pytest.raises(SystemExit):
        read_settings([*REQUIRED, "--ca", str(tmp_path / "token")])
    assert "has no certificate in PEM" in capsys.readouterr().err


def test_labels_and_the_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    settings = read_settings([*REQUIRED, "--label", "zone=a", "--label", "switch=b=c"])
    assert settings.labels == {"zone": "a", "switch": "b=c"}
    assert settings.token == "secret"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port-range", "29500"],
        ["--port-range", "5-2"],
        ["--label", "zone"],
        ["--slots", "0"],
        ["--name", "No Spaces"],
        ["--server", "127.0.0.1:8000"],
        ["--server", "ftp://host"],
    ],
)
def test_mistakes_are_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        read_settings([*REQUIRED, *arguments])
    assert end.value.code == 2
    assert arguments[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "variable", "said"),
    [
        (["--gpus", "0-2"], None, "--gpus 0-2: '0-2' is a range, "),
        (["--slots", "0"], None, "argument --slots: '0' is not a number of at least 1"),
        (["--orphan-seconds", "nan"], None, "argument --orphan-seconds: 'nan' is not a number of seconds of at least 1"),
        (["--orphan-seconds", "inf"], None, "argument --orphan-seconds: 'inf' is not a number of seconds of at least 1"),
        ([], "0-2", "CUDA_VISIBLE_DEVICES=0-2: '0-2' is a range, "),
    ],
)
def test_a_mistake_is_told_in_two_lines(
    arguments: list[str], variable: str | None, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`paceline worker --gpus 0-2` wrote 24 lines of another program's usage, and the option twice."""
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    with pytest.raises(SystemExit):
        read_settings([*REQUIRED, *arguments])
    first, hint = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {said}")
    assert hint == "hint: 'paceline worker --help' lists options"


def test_a_taint_that_is_given_twice_alike_counts_once() -> None:
    assert read_settings([*REQUIRED, "--taint", "new", "--taint", "new"]).taints == {"new": ""}


@pytest.mark.parametrize("option", ["--label", "--taint"])
def test_a_key_that_is_given_twice_with_different_values_is_a_usage_error(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings([*REQUIRED, option, "zone=near", option, "zone=far"])
    assert f"argument {option}: 'zone' is given twice, as 'near' and 'far'" in capsys.readouterr().err


def test_a_value_that_no_job_could_ask_for_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings([*REQUIRED, "--label", "zone=a\nb"])
    assert read_settings([*REQUIRED, "--label", f"zone={'x' * 253}"]).labels == {"zone": "x" * 253}
    with pytest.raises(SystemExit):
        read_settings([*REQUIRED, "--label", f"zone={'x' * 254}"])
    assert "has 254 characters; a value has at most 253" in capsys.readouterr().err
