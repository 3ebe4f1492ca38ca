"""The settings of the provider `slurm`. Pure: Slurm itself is not asked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from paceline.cluster.provisioners.agent_options import AgentAuthority
from paceline.cluster.provisioners.passed_names import DESCRIPTION, PassedNames
from paceline.training.schema.parts import Text, Whole, at_most
from paceline.training.schema.spelling import SpellingRule

MOST_LINES = 64
#: Slurm's default of KillWait.
KILL_WAIT_SECONDS = 30

SlurmName = Annotated[str, SpellingRule(r"^[A-Za-z0-9_][A-Za-z0-9_.,+-]{0,127}$", "a name as Slurm has it", "gpu")]
SlurmTime = Annotated[
    str,
    SpellingRule(r"^([0-9]{1,5}-[0-9]{1,2}(:[0-9]{2}){0,2}|[0-9]{1,7}(:[0-9]{2}){0,2})$", "a time limit as Slurm writes it", "12:00:00"),
]
SlurmGres = Annotated[str, SpellingRule(r"^[A-Za-z0-9_.:,/-]{1,255}$", "generic resources as sbatch takes them", "gpu:a100:4")]
SlurmLine = Annotated[str, SpellingRule(r"^--?[A-Za-z][^\r\n]{0,999}$", "an option of sbatch, such as --constraint=ib", "--constraint=ib")]
ShellLine = Annotated[str, SpellingRule(r"^[^\r\n]{1,1000}$", "one line of bash", "module load cuda/12.4")]
FilePath = Annotated[Text, Field(min_length=1, max_length=4096)]


class SlurmSettings(AgentAuthority):
    """Agents as jobs of a Slurm cluster: one job for each node, submitted on the coordinator's machine."""

    type: Literal["slurm"] = "slurm"
    partition: SlurmName | None = Field(None, description="Submit to this partition. Default: the cluster's.")
    account: SlurmName | None = Field(None, description="Charge this account. Default: the user's.")
    qos: SlurmName | None = Field(None, description="Ask for this quality of service.")
    gres: SlurmGres | None = Field(
        None, description="Ask for these generic resources on each node, such as gpu:4. Without GPUs it offers CPU slots."
    )
    time: SlurmTime | None = Field(None, description="Ask for this time limit, such as 12:00:00. Default: the partition's.")
    cpus: Whole | None = Field(None, ge=1, le=4096, description="Ask for this many CPUs on each node.")
    memory: SlurmGres | None = Field(None, description="Ask for this much memory on each node, such as 64G.")
    exclusive: bool = Field(False, description="Set to get whole machines.")
    options: Annotated[list[SlurmLine], at_most(MOST_LINES)] = Field([], description="Further options of sbatch, each on its own.")
    setup: Annotated[list[ShellLine], at_most(MOST_LINES)] = Field(
        [], description="Lines of bash to run before the agent, such as module load."
    )
    paceline: FilePath | None = Field(
        None, description="Path of the paceline command on the compute nodes. Default: where the coordinator's own is."
    )
    directory: FilePath = Field(
        "~/.paceline/nodes", description="Folder for the agents' own files. With requeue it must be one that all compute nodes share."
    )
    checkpoints: FilePath | None = Field(None, description="Folder for checkpoints that the nodes share. Default: a folder of each node.")
    requeue: bool = Field(False, description="Set to queue a job again when its time limit has ended.")
    pass_env: PassedNames = Field([], description=DESCRIPTION)
    drain_seconds: Whole = Field(120, ge=10, le=65535, description="Move jobs away this long before the time limit ends. In seconds.")
    kill_wait: Whole = Field(
        KILL_WAIT_SECONDS,
        ge=10,
        le=3600,
        description="Seconds between SIGTERM and SIGKILL: KillWait of slurm.conf, or the partition's GraceTime.",
    )
