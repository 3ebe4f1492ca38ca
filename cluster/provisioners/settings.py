"""The settings of each provider, told apart by their `type`, and pools of nodes that have them. Pure pydantic: no engine is imported here."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from paceline.cluster.autoscaling.facts import DEFAULT_IDLE_SECONDS
from paceline.cluster.provisioners.agent_options import AgentNotices
from paceline.cluster.provisioners.kubernetes_settings import KubernetesSettings
from paceline.cluster.provisioners.passed_names import DESCRIPTION, PassedNames
from paceline.cluster.provisioners.ray_settings import RaySettings
from paceline.cluster.provisioners.slurm_settings import SlurmSettings
from paceline.training.schema.parts import Part, Text, Whole, at_most, inconsistent
from paceline.training.schema.resources import MOST_LABELS, NodeKey, NodeValue
from paceline.training.schema.spelling import SpellingRule

MOST_POOL_NODES = 4096
MOST_HOSTS = 1024
MOST_IDLE_SECONDS = 7 * 86_400.0
SUFFIX_LETTERS, SUFFIX_LENGTH = "bcdfghjklmnpqrstvwxz0123456789", 5  # no vowels: no words by chance
LONGEST_NODE_NAME = 63

PoolName = Annotated[
    str,
    SpellingRule(
        r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$", "1 to 40 lower-case letters, digits and '-'; first and last a letter or digit", "gpu-spot"
    ),
]
SshUser = Annotated[str, SpellingRule(r"^[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}$", "the name of an account", "ada")]
HostName = Annotated[
    str, SpellingRule(r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:]{2,39})$", "a host name or an address", "gpu1.lab")
]
Fingerprint = Annotated[
    str, SpellingRule(r"^SHA256:[A-Za-z0-9+/]{43}$", "a fingerprint as 'ssh-keygen -lf' prints it", "SHA256:" + "x" * 43)
]
SecretName = Annotated[
    str,
    SpellingRule(
        r"^PACELINE_SSH_[A-Z0-9_]{1,100}$", "a variable of the coordinator whose name begins with PACELINE_SSH_", "PACELINE_SSH_PASSWORD"
    ),
]
FilePath = Annotated[Text, Field(min_length=1, max_length=4096)]
ServerUrl = Annotated[
    str,
    SpellingRule(r"^https?://[^\s/?#@]+$", "the coordinator's URL as nodes reach it, without a path", "https://paceline.lab"),
]


class ManualSettings(Part):
    """Nodes that people start: each launch is a command to run on a machine."""

    type: Literal["manual"] = "manual"


class SshHost(Part):
    """One machine, and what is special about it."""

    host: HostName
    user: SshUser | None = Field(None, description="Sign in as this user. Default: the pool's.")
    port: Whole | None = Field(None, ge=1, le=65535, description="Port of its SSH server. Default: the pool's.")
    host_key: Fingerprint | None = Field(None, description="Accept the host key with this fingerprint, besides those in known_hosts.")
    slots: Whole | None = Field(None, ge=1, le=64, description="Offer this many slots. Default: the pool's.")
    address: HostName | None = Field(
        None, description="Tell other nodes to reach it here. Default: the address that reaches the coordinator."
    )


_WRITTEN = re.compile(r"(?:(?P<user>[^@\s]+(?:@[^@\s]+)?)@)?(?:\[(?P<v6>[^\]\s]+)\]|(?P<host>[^\[\]:\s]+))(?::(?P<port>[0-9]{1,5}))?")


def _written(value: object) -> object:
    """A host that was written as `user@host:port`."""
    if not isinstance(value, str):
        return value
    found = _WRITTEN.fullmatch(value.strip())
    if found is None:
        raise inconsistent("{value} is no host: write user@host, user@host:port or user@[address]:port", value=repr(value))
    document: dict[str, object] = {"host": found["v6"] or found["host"]}
    document |= {"user": found["user"]} if found["user"] else {}
    return document | ({"port": int(found["port"])} if found["port"] else {})


class SshSettings(AgentNotices):
    """Machines that an SSH server lets the coordinator into: a node on each."""

    type: Literal["ssh"] = "ssh"
    hosts: Annotated[list[SshHost], Field(min_length=1, max_length=MOST_HOSTS)] = Field(
        description="Machines, each as user@host:port or with fields of its own."
    )
    user: SshUser | None = Field(None, description="Sign in as this user. Default: the one that the coordinator runs as.")
    port: Whole = Field(22, ge=1, le=65535, description="Port of the SSH servers.")
    key_file: FilePath | None = Field(
        None, description="Private key on the coordinator's machine. Default: those of its SSH agent and in its ~/.ssh."
    )
    password_secret: SecretName | None = Field(
        None, description="Environment variable of the coordinator that holds the password. Default: keys alone."
    )
    known_hosts: FilePath | None = Field(None, description="File of known host keys on the coordinator. Default: ~/.ssh/known_hosts.")
    folder: FilePath = Field("~/.paceline", description="Folder on each machine for what is installed and what its agent keeps.")
    python: FilePath = Field("python3", description="Python on each machine that makes the environment, 3.11 or newer.")
    environment: FilePath | None = Field(
        None, description="Python of an environment that has Paceline already, such as /opt/paceline/bin/python: nothing is installed."
    )
    packages_of: FilePath | None = Field(
        None, description="Python of an environment whose packages are used, such as its own torch. Only what is missing is installed."
    )
    pip_options: Annotated[list[Annotated[Text, Field(max_length=1000)]], at_most(32)] = Field(
        [], description="Options of pip install, such as --index-url and its address."
    )
    checkpoints: FilePath | None = Field(None, description="Folder for checkpoints that the nodes share. Default: a folder of each node.")
    pass_env: PassedNames = Field([], description=DESCRIPTION)
    variables_file: FilePath | None = Field(
        None, description="File on each machine with variables of its agent, NAME=VALUE a line, that its account alone can read."
    )
    gpus: Annotated[Text, Field(max_length=1000)] | None = Field(None, description="GPUs to offer, as 'paceline worker --gpus' takes them.")
    drain_seconds: Whole = Field(
        120, ge=10, le=86400, description="Seconds before its end in which a machine's jobs are moved away, where a notice does not say."
    )

    @model_validator(mode="before")
    @classmethod
    def read_written_hosts(cls, value: object) -> object:
        """Read hosts that are written as one text."""
        if isinstance(value, dict) and isinstance(value.get("hosts"), list):
            return {**value, "hosts": [_written(each) for each in value["hosts"]]}
        return value

    @model_validator(mode="after")
    def check_hosts(self) -> SshSettings:
        names = [host_slug(each) for each in self.hosts]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise inconsistent("{hosts} is listed twice; a machine has one node of a pool", hosts=", ".join(twice))
        if self.environment and self.packages_of:
            raise inconsistent("environment and packages_of exclude each other: nothing is installed into an environment that is there")
        return self

    def node_names(self, pool: str | None, taken: Collection[str], count: int, failed: Sequence[str] = ()) -> list[str]:
        """The names of the first `count` machines that have no node yet, those in `failed` last; fewer where there are no more."""
        free = [name for each in self.hosts if (name := ssh_node_name(pool, each)) not in taken]
        free.sort(key=lambda name: failed.index(name) if name in failed else -1)
        return free[:count]


def host_slug(host: SshHost) -> str:
    """A machine's part of its node's name; two servers of one address are told apart by their ports."""
    spelled = re.sub(r"[^a-z0-9.]+", "-", host.host.lower()).strip("-.")
    return spelled if host.port in (None, 22) else f"{spelled}-{host.port}"


def ssh_node_name(pool: str | None, host: SshHost) -> str:
    """The name of the node on a machine."""
    name = f"{pool}-{host_slug(host)}" if pool else host_slug(host)
    return name[:LONGEST_NODE_NAME].rstrip("-.")


ProviderSettings = Annotated[ManualSettings | SshSettings | SlurmSettings | KubernetesSettings | RaySettings, Field(discriminator="type")]


class AutoscaleSettings(Part):
    """Leave it to the coordinator how many nodes a pool has: between `min_nodes` and `max_nodes`, as jobs need them."""

    device: Literal["cpu", "cuda"] = Field("cuda", description="Device of the slots of its nodes, which a pool without nodes cannot tell.")
    idle_seconds: float = Field(
        DEFAULT_IDLE_SECONDS, ge=0, le=MOST_IDLE_SECONDS, description="Drain a node that no job has used for so many seconds."
    )
    cost: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="Price of a node for an hour, in any unit that your pools share: the cheapest pool grows first.",
    )
    containers: bool = Field(
        False,
        description="Set if its nodes have podman, docker or apptainer, for jobs with `environment.image`. Default: as the nodes that it has had.",
    )
    discards_checkpoints: bool = Field(
        False,
        description="Drain idle nodes of `ssh` and `kubernetes` although the checkpoints in their own folders are deleted with them. "
        "Default: the pool needs a folder for checkpoints that outlives its nodes.",
    )
    budget_node_hours: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="Grow no more once its nodes have run for so many hours in a calendar month (UTC)."
    )


class PoolSpec(Part):
    """Nodes of one kind: the provider that starts them, and how many there may be."""

    name: PoolName
    provider: ProviderSettings
    min_nodes: Whole = Field(0, ge=0, le=MOST_POOL_NODES, description="Keep at least this many nodes where the pool has `autoscale`.")
    max_nodes: Whole | None = Field(
        None, ge=1, le=MOST_POOL_NODES, description="Have at most this many nodes. Default: all hosts of an SSH pool, else 1."
    )
    labels: Annotated[Mapping[NodeKey, NodeValue], at_most(MOST_LABELS)] = Field({}, description="Labels of its nodes, besides pool=NAME.")
    slots: Whole | None = Field(None, ge=1, le=64, description="Slots that each node offers. Default: what the machine has.")
    spot: bool = Field(False, description="Expect the provider to take nodes away at any time.")
    autoscale: AutoscaleSettings | None = Field(
        None, description="Launch and drain nodes as jobs need them. Default: only when people ask for it."
    )
    server: ServerUrl | None = Field(
        None, description="Coordinator's URL as the nodes reach it. Default: its public URL, or the address of the request."
    )

    @model_validator(mode="after")
    def check_sizes(self) -> PoolSpec:
        if self.min_nodes > self.most_nodes:
            raise inconsistent(
                "min_nodes={least} is more than max_nodes={most}; raise max_nodes", least=self.min_nodes, most=self.most_nodes
            )
        return self

    @model_validator(mode="after")
    def check_autoscale(self) -> PoolSpec:
        if self.autoscale is not None and self.provider.type == "manual":
            raise inconsistent("autoscale needs a provider that starts nodes; people start those of a manual pool: leave autoscale out")
        if self.autoscale is not None and self.slots is None:
            raise inconsistent("autoscale needs slots: how many each node offers, which is not known before the first one has joined")
        if self.autoscale is not None and not self.autoscale.discards_checkpoints and self._deletes_checkpoints:
            field = "checkpoint_claim" if isinstance(self.provider, KubernetesSettings) else "checkpoints"
            raise inconsistent(
                "autoscale ends idle nodes, and the checkpoints in their own folders are deleted with them: set provider.{field} to one that "
                "outlives them, or autoscale.discards_checkpoints=true where each job saves to a shared checkpoint.directory",
                field=field,
            )
        return self

    @model_validator(mode="after")
    def check_hosts(self) -> PoolSpec:
        hosts = self.provider.hosts if self.autoscale is not None and isinstance(self.provider, SshSettings) else ()
        other = next((host for host in hosts if host.slots not in (None, self.slots)), None)
        if other is not None:
            raise inconsistent(
                "autoscale counts on nodes of one size: {host} has slots={slots}, and the pool has slots={usual}; make a pool for each size",
                host=other.host,
                slots=other.slots,
                usual=self.slots,
            )
        return self

    @property
    def _deletes_checkpoints(self) -> bool:
        """Whether the folder in which its nodes keep checkpoints by default is removed with the node."""
        if isinstance(self.provider, SshSettings):
            return self.provider.checkpoints is None
        return isinstance(self.provider, KubernetesSettings) and self.provider.checkpoint_claim is None

    @property
    def most_nodes(self) -> int:
        """How many nodes there may be."""
        hosts = len(self.provider.hosts) if isinstance(self.provider, SshSettings) else 1
        return self.max_nodes if self.max_nodes is not None else max(hosts, self.min_nodes)


def pool_json_schema() -> dict[str, Any]:
    """The published JSON Schema of a pool. Its hosts may be texts too, which `SshSettings` takes apart."""
    schema = PoolSpec.model_json_schema()
    hosts = schema["$defs"]["SshSettings"]["properties"]["hosts"]
    hosts["items"] = {"anyOf": [hosts["items"], {"type": "string"}]}
    return schema


def new_names(settings: object, pool: str | None, taken: Collection[str], count: int, failed: Sequence[str] = ()) -> list[str]:
    """Names for `count` new nodes, none of which is taken; fewer where the provider has no room for so many. `failed`: names of nodes that
    could not be started, in the order in which they are tried again, after all others."""
    named = getattr(settings, "node_names", None)
    if named is not None:
        return list(named(pool, taken, count, failed))
    names = list[str]()
    while len(names) < count:
        suffix = "".join(secrets.choice(SUFFIX_LETTERS) for _ in range(SUFFIX_LENGTH))
        if (name := f"{pool or 'node'}-{suffix}") not in taken:
            names.append(name)
    return names
