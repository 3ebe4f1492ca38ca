"""The settings of the provider `kubernetes`. Pure: no cluster is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from paceline.cluster.provisioners.agent_options import AgentPorts
from paceline.cluster.provisioners.passed_names import DESCRIPTION, PassedNames
from paceline.training.schema.parts import Text, Whole, at_most, inconsistent
from paceline.training.schema.spelling import SpellingRule

KubernetesName = Annotated[
    str,
    SpellingRule(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", "a name as Kubernetes has it: lower-case letters, digits and '-'", "training"),
]
QualifiedName = Annotated[
    str,
    SpellingRule(
        r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
        "a key as Kubernetes has it",
        "nvidia.com/gpu",
    ),
]
Quantity = Annotated[str, SpellingRule(r"^[0-9]{1,12}(\.[0-9]{1,6})?(m|[kMGTP]i?)?$", "a quantity as Kubernetes has it", "64Gi")]
ImageName = Annotated[
    str, SpellingRule(r"^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,499}$", "the name of an image", "registry.lab/paceline-agent:0.1.0")
]
FilePath = Annotated[Text, Field(min_length=1, max_length=4096)]
ApiUrl = Annotated[str, SpellingRule(r"^https?://[^\s/?#@]+$", "the URL of an API server, without a path", "https://10.0.0.1:6443")]
SecretName = Annotated[
    str,
    SpellingRule(
        r"^PACELINE_KUBERNETES_[A-Z0-9_]{1,100}$",
        "a variable of the coordinator whose name begins with PACELINE_KUBERNETES_",
        "PACELINE_KUBERNETES_TOKEN",
    ),
]
#: Not any Secret of the namespace: whoever makes pools could read the coordinator's own through a job.
AgentSecretName = Annotated[
    str,
    SpellingRule(
        r"^paceline-agent-[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$",
        "the name of a Secret that begins with paceline-agent-",
        "paceline-agent-store",
    ),
]


class KubernetesSettings(AgentPorts):
    """Agents as Jobs of a Kubernetes cluster, each with one pod."""

    type: Literal["kubernetes"] = "kubernetes"
    image: ImageName = Field(
        description="Run this image: the target `agent` of the Dockerfile, pushed to a registry that the cluster reaches."
    )
    namespace: KubernetesName = Field("paceline", description="Make Jobs and Secrets in this namespace.")
    api_server: ApiUrl | None = Field(
        None, description="URL of the API server. Default: that of the cluster which the coordinator runs in."
    )
    token_secret: SecretName | None = Field(
        None, description="Environment variable of the coordinator that holds a token. Default: its pod's service account."
    )
    ca_file: FilePath | None = Field(
        None, description="Certificate authority of the API server. Default: its pod's service account, or the system's."
    )
    gpus: Whole = Field(0, ge=0, le=64, description="Ask for this many GPUs in each pod.")
    gpu_resource: QualifiedName = Field("nvidia.com/gpu", description="Resource that GPUs are asked for by.")
    cpu: Quantity | None = Field(None, description="Ask for this much CPU in each pod, such as 8.")
    memory: Quantity | None = Field(None, description="Limit each pod to this much memory, and ask for it, such as 64Gi.")
    shared_memory: Quantity = Field("2Gi", description="Size of /dev/shm, which data loaders and NCCL use.")
    service_account: KubernetesName | None = Field(None, description="Service account of the pods. They get no token of it.")
    node_selector: Annotated[Mapping[QualifiedName, Text], at_most(64)] = Field({}, description="Run on machines with these labels alone.")
    tolerate: Annotated[list[QualifiedName], at_most(64)] = Field([], description="Run on machines with taints of these keys too.")
    priority_class: KubernetesName | None = Field(None, description="Priority class of the pods.")
    checkpoint_claim: KubernetesName | None = Field(
        None, description="Mount this PersistentVolumeClaim for checkpoints, read and written by all."
    )
    variables_from: AgentSecretName | None = Field(
        None, description="Secret in the namespace whose keys are variables of the agents. Ranks get those that pass_env names."
    )
    pass_env: PassedNames = Field([], description=DESCRIPTION)
    drain_seconds: Whole = Field(120, ge=10, le=3600, description="Seconds that a pod has to move its jobs away before it is killed.")

    @model_validator(mode="after")
    def check_address(self) -> KubernetesSettings:
        if self.token_secret is not None and self.api_server is None:
            raise inconsistent("token_secret needs api_server: the token of one cluster is not sent to another")
        if self.token_secret is not None and str(self.api_server).startswith("http://"):
            raise inconsistent("api_server={url} is plain http, and a token would be read on its way; use https", url=self.api_server)
        return self
