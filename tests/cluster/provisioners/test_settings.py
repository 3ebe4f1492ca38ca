"""Pools as their owners write them: hosts in one text, names of nodes, and refusals that name the value and the way out."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from pydantic import ValidationError

from paceline.cluster.provisioners import ray
from paceline.cluster.provisioners.kubernetes_manifests import job
from paceline.cluster.provisioners.kubernetes_settings import KubernetesSettings
from paceline.cluster.provisioners.provisioner import WantedNode
from paceline.cluster.provisioners.ray_settings import RaySettings
from paceline.cluster.provisioners.settings import PoolSpec, SshSettings, new_names
from paceline.cluster.provisioners.slurm_script import batch_script
from paceline.cluster.provisioners.slurm_settings import SlurmSettings
from paceline.cluster.provisioners.ssh.provisioner import agent_arguments
from paceline.training.spec.refusals import in_words


def ssh(*hosts: Any, **fields: Any) -> SshSettings:
    return SshSettings.model_validate({"hosts": list(hosts), **fields})


def test_a_host_is_written_as_one_text_or_with_fields_of_its_own() -> None:
    settings = ssh("ada@gpu1.lab:2222", "gpu2", "[fe80::1]:22", {"host": "gpu3", "user": "root"})
    assert [(each.user, each.host, each.port) for each in settings.hosts] == [
        ("ada", "gpu1.lab", 2222),
        (None, "gpu2", None),
        (None, "fe80::1", 22),
        ("root", "gpu3", None),
    ]


def test_a_node_is_named_after_its_host_and_a_host_has_one_node() -> None:
    settings = ssh("ada@GPU1.lab", "ada@gpu1.lab:2222", "gpu2")
    assert new_names(settings, "lab", set(), 9) == ["lab-gpu1.lab", "lab-gpu1.lab-2222", "lab-gpu2"]
    assert new_names(settings, None, {"gpu1.lab"}, 1) == ["gpu1.lab-2222"]


@pytest.mark.parametrize(
    ("provider", "field"),
    [
        ({"type": "ssh", "hosts": ["gpu1"]}, "checkpoints"),
        ({"type": "kubernetes", "image": "registry.lab/agent:1"}, "checkpoint_claim"),
    ],
)
def test_a_pool_that_deletes_checkpoints_with_its_idle_nodes_is_refused_unless_it_says_so(provider: dict[str, Any], field: str) -> None:
    pool: dict[str, Any] = {"name": "lab", "provider": provider, "slots": 2, "autoscale": {}}
    with pytest.raises(ValidationError, match=f"set provider.{field} to one that outlives them"):
        PoolSpec.model_validate(pool)
    PoolSpec.model_validate(pool | {"autoscale": {"discards_checkpoints": True}})
    PoolSpec.model_validate(pool | {"provider": provider | {field: "/shared" if field == "checkpoints" else "shared"}})
    PoolSpec.model_validate(pool | {"autoscale": None})


def test_a_pool_that_grows_by_itself_has_hosts_of_one_size() -> None:
    """It launched and drained the small host on and on, for a job that does not fit there."""
    hosts = [{"host": "gpu1", "slots": 4}, {"host": "gpu2", "slots": 8}, "gpu3"]
    pool: dict[str, Any] = {"name": "lab", "provider": {"type": "ssh", "hosts": hosts, "checkpoints": "/shared"}, "slots": 8}
    PoolSpec.model_validate(pool)
    with pytest.raises(ValidationError, match="gpu1 has slots=4, and the pool has slots=8; make a pool for each size"):
        PoolSpec.model_validate(pool | {"autoscale": {}})
    PoolSpec.model_validate(pool | {"provider": pool["provider"] | {"hosts": hosts[1:]}, "autoscale": {}})


def test_a_host_on_which_no_node_could_be_started_is_tried_after_the_others() -> None:
    settings = ssh("gpu1", "gpu2", "gpu3")
    assert new_names(settings, "lab", set(), 1, failed=["lab-gpu1"]) == ["lab-gpu2"]
    assert new_names(settings, "lab", set(), 3, failed=["lab-gpu2", "lab-gpu1"]) == ["lab-gpu3", "lab-gpu2", "lab-gpu1"]
    assert new_names(settings, "lab", {"lab-gpu2", "lab-gpu3"}, 1, failed=["lab-gpu1"]) == ["lab-gpu1"]


def test_other_nodes_get_names_that_nobody_has() -> None:
    names = new_names(object(), "spot", set(), 50)
    assert len(set(names)) == 50
    assert all(name.startswith("spot-") for name in names)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"name": "lab", "provider": {"type": "ssh", "hosts": []}}, "at least 1 item"),
        ({"name": "lab", "provider": {"type": "ssh", "hosts": ["a", "b@a"]}}, "a is listed twice"),
        ({"name": "lab", "provider": {"type": "ssh", "hosts": ["no host"]}}, "write user@host, user@host:port"),
        ({"name": "lab", "provider": {"type": "ssh", "hosts": ["-oProxyCommand=x"]}}, "a host name or an address"),
        ({"name": "lab", "provider": {"type": "ssh", "hosts": ["a"], "password_secret": "DATABASE_URL"}}, "begins with PACELINE_SSH_"),
        ({"name": "lab", "provider": {"type": "ssh", "hosts": ["a"]}, "min_nodes": 3, "max_nodes": 2}, "raise max_nodes"),
        ({"name": "Lab", "provider": {"type": "manual"}}, "lower-case letters"),
        ({"name": "lab", "provider": {"type": "cloud"}}, "'manual'"),
        ({"name": "lab", "provider": {"type": "manual"}, "server": "paceline.lab"}, "the coordinator's URL"),
        ({"name": "lab", "provider": {"type": "ssh", "hosts": ["a"], "pass_env": ["AWS_KEY=secret"]}}, "is not the name of a variable"),
        ({"name": "lab", "provider": {"type": "ssh", "hosts": ["a"], "pass_env": ["*"]}}, "is not the name of a variable"),
        ({"name": "lab", "provider": {"type": "slurm", "pass_env": ["PACELINE_API_KEY"]}}, "is never passed to ranks"),
    ],
    ids=[
        "no-host",
        "host-twice",
        "no-host-name",
        "an-option-as-host",
        "any-variable",
        "sizes",
        "name",
        "provider",
        "server",
        "value",
        "all",
        "key",
    ],
)
def test_a_refusal_says_what_would_do(document: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        PoolSpec.model_validate(document)
    assert said in str(refused.value)


REQUEST = WantedNode("lab-a", "lab", "https://paceline.lab", "token")
NAMES = ["AWS_SECRET_ACCESS_KEY", "WANDB_*"]
RAY, SLURM, SSH = RaySettings(address="head:1", pass_env=NAMES), SlurmSettings(pass_env=NAMES), ssh("a", pass_env=NAMES)
KUBERNETES = KubernetesSettings(image="agent", pass_env=NAMES)


@pytest.mark.parametrize(
    "words",
    [
        ray.agent_command(RAY, REQUEST),
        shlex.split(next(line for line in batch_script(SLURM, REQUEST).splitlines() if " worker " in line)),
        agent_arguments(SSH, SSH.hosts[0], REQUEST),
        job(KUBERNETES, REQUEST)["spec"]["template"]["spec"]["containers"][0]["args"],
    ],
    ids=["ray", "slurm", "ssh", "kubernetes"],
)
def test_the_agents_of_a_pool_are_told_which_variables_their_ranks_get(words: list[str]) -> None:
    assert words[words.index("--pass-env") + 1] == "AWS_SECRET_ACCESS_KEY,WANDB_*"


PORTS = {"ports": "29500-29599"}
AUTHORITY = PORTS | {"authority": "/etc/paceline/ca.pem"}
NOTICES = AUTHORITY | {
    "notice_command": "curl -sf http://169.254.169.254/latest/meta-data/spot/instance-action",
    "notice_file": "/run/notice",
}
OPTIONS = {"ports": "--ports", "authority": "--ca", "notice_command": "--notice-command", "notice_file": "--notice-file"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (NOTICES, ray.agent_command(RaySettings(address="head:1", **NOTICES), REQUEST)),
        (
            AUTHORITY,
            shlex.split(next(line for line in batch_script(SlurmSettings(**AUTHORITY), REQUEST).splitlines() if " worker " in line)),
        ),
        (NOTICES, agent_arguments(ssh("a", **NOTICES), SSH.hosts[0], REQUEST)),
        (PORTS, job(KubernetesSettings(image="agent", **PORTS), REQUEST)["spec"]["template"]["spec"]["containers"][0]["args"]),
    ],
    ids=["ray", "slurm", "ssh", "kubernetes"],
)
def test_the_agents_of_a_pool_are_told_their_ports_their_authority_and_where_a_notice_comes_from(
    fields: dict[str, str], words: list[str]
) -> None:
    """Only agents that somebody started by hand could be told: a firewall, a private authority and a spot machine had no pool."""
    assert {name: words[words.index(OPTIONS[name]) + 1] for name in fields} == fields


def test_a_host_with_ssh_that_is_restarted_moves_its_jobs_away_first() -> None:
    """SIGTERM, which is all that a machine without systemd says, ended its ranks without a save."""
    words = agent_arguments(ssh("a", drain_seconds=300), SSH.hosts[0], REQUEST)
    assert words[words.index("--drain-on-term") + 1] == "300"


def test_a_command_that_no_agent_would_take_is_refused_with_the_pool() -> None:
    with pytest.raises(ValidationError, match="is no command line"):
        ssh("a", notice_command="echo 'half")


@pytest.mark.parametrize("ports", ["29599-29500", "0-10", "1-65536", "29500", "a-b"])
def test_ports_that_no_agent_would_take_are_refused_with_the_pool(ports: str) -> None:
    with pytest.raises(ValidationError):
        ssh("a", ports=ports)


def test_a_pool_has_as_many_nodes_as_hosts_unless_it_says_otherwise() -> None:
    provider = {"type": "ssh", "hosts": ["a", "b", "c"]}
    assert PoolSpec.model_validate({"name": "lab", "provider": provider}).most_nodes == 3
    assert PoolSpec.model_validate({"name": "lab", "provider": provider, "max_nodes": 2}).most_nodes == 2


@pytest.mark.parametrize(
    ("provider", "told"),
    [
        ({}, "provider.type is required: manual, ssh, slurm, kubernetes or ray"),
        ({"type": "slrum"}, "provider.type takes manual, ssh, slurm, kubernetes or ray; got 'slrum'; did you mean `slurm`?"),
        ("ssh", "provider takes fields, of which type is manual, ssh, slurm, kubernetes or ray; got 'ssh'"),
        ({"type": "slurm", "time": 3}, "provider.time takes a text; got 3"),
    ],
    ids=["none", "unknown", "a text", "a field of one"],
)
def test_a_provider_of_no_type_or_an_unknown_one_is_refused_with_the_types_that_there_are(provider: object, told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        PoolSpec.model_validate({"name": "lab", "provider": provider})
    assert [in_words(error, PoolSpec) for error in refused.value.errors()] == [told]
