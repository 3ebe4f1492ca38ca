"""The command lines of container engines, word by word. No engine is run."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from paceline.cluster.agent.containers.engines import Apptainer, ContainerMount, ContainerRun, Docker, Podman

RUN = ContainerRun(
    name="paceline-job-g1-r0",
    image="docker.io/pytorch/pytorch:2.13",
    command=("python", "-u", "train.py", "--lr", "0.1"),
    directory="/agent/jobs/job/work",
    variables=("RANK", "TOKEN"),
    mounts=(ContainerMount("/agent/jobs/job", "/agent/jobs/job"), ContainerMount("/data", "/inside", read_only=True)),
    uid=1000,
    gid=100,
    gpus=("GPU-a", "GPU-b"),
)


def pairs(words: tuple[str, ...], option: str) -> list[str]:
    return [after for word, after in itertools.pairwise(words) if word == option]


@pytest.mark.parametrize("engine", [Docker(), Podman()], ids=["docker", "podman"])
def test_docker_and_podman_give_a_rank_what_it_has_on_the_node(engine: Docker | Podman) -> None:
    words = engine.run(RUN)
    assert words[:2] == (engine.name, "run")
    assert {"--rm", "--init", "--sig-proxy=true", "--network=host", "--ipc=host", "--pid=host"} <= set(words)
    assert {"--user=1000:100", "--workdir=/agent/jobs/job/work", "--name=paceline-job-g1-r0"} <= set(words)
    assert pairs(words, "--env") == ["RANK", "TOKEN"]
    assert pairs(words, "--volume") == ["/agent/jobs/job:/agent/jobs/job", "/data:/inside:ro"]
    assert words[-6:] == ("--entrypoint=python", "docker.io/pytorch/pytorch:2.13", "-u", "train.py", "--lr", "0.1")


def test_gpus_are_named_by_uuid() -> None:
    assert pairs(Docker().run(RUN), "--gpus") == ['"device=GPU-a,GPU-b"']
    assert pairs(Podman().run(RUN), "--device") == ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b"]
    assert "--nv" in Apptainer().run(RUN)


@pytest.mark.parametrize("engine", [Docker(), Podman(), Apptainer()], ids=["docker", "podman", "apptainer"])
def test_without_gpus_none_are_shown(engine: Docker | Podman | Apptainer) -> None:
    words = engine.run(replace(RUN, gpus=()))
    assert not {"--gpus", "--device", "--nv"} & set(words)


def test_without_root_podman_keeps_the_users_id() -> None:
    assert "--userns=keep-id" in Podman(rootless=True).run(RUN)
    assert "--userns=keep-id" not in Podman().run(RUN)


@pytest.mark.parametrize(
    ("image", "given"),
    [("a/b:1", "docker://a/b:1"), ("/shared/a.sif", "/shared/a.sif"), ("library://a/b", "library://a/b")],
)
def test_apptainer_runs_images_of_registries_and_files(image: str, given: str) -> None:
    words = Apptainer().run(replace(RUN, image=image))
    assert words[:5] == ("apptainer", "exec", "--no-home", "--pwd", "/agent/jobs/job/work")
    assert pairs(words, "--bind") == ["/agent/jobs/job:/agent/jobs/job", "/data:/inside:ro"]
    assert words[-6:] == (given, *RUN.command)


def test_what_a_killed_rank_leaves_is_removed_by_name() -> None:
    assert Docker().end("x") == ("docker", "rm", "--force", "--volumes", "x")
    assert Podman().end("x") == ("podman", "rm", "--force", "--ignore", "--volumes", "--time=0", "x")
    assert Apptainer().end("x") is None


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("/data", ContainerMount("/data", "/data")),
        ("/data:ro", ContainerMount("/data", "/data", read_only=True)),
        ("/data:/in", ContainerMount("/data", "/in")),
        ("/data:/in:ro", ContainerMount("/data", "/in", read_only=True)),
    ],
)
def test_a_mount_is_read_as_it_is_written(text: str, mount: ContainerMount) -> None:
    assert ContainerMount.parse(text) == mount
