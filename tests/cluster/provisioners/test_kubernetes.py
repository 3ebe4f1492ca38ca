"""Agents as Jobs of Kubernetes, on an API server in memory; their manifests against the schemas of Kubernetes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import pytest
import yaml
from pydantic import ValidationError

from paceline.cluster.provisioners import kubernetes_manifests as manifests
from paceline.cluster.provisioners.kubernetes import KubernetesProvisioner
from paceline.cluster.provisioners.kubernetes_settings import KubernetesSettings
from paceline.cluster.provisioners.provisioner import LaunchPhase, ProvisionerContext, ProvisionerError, SeenLaunch
from tests.cluster.provisioners.conformance import TOKEN, ProviderEngine, ProvisionerConformance, request
from tests.cluster.provisioners.fake_kubernetes import FakeKubernetes

DEPLOY = Path(__file__).parents[3] / "deploy" / "kubernetes"
VERSION = "1.31"
SETTINGS = KubernetesSettings(
    image="registry.lab/agent:1",
    api_server="https://10.0.0.1:6443",
    token_secret="PACELINE_KUBERNETES_TOKEN",
    gpus=4,
    cpu="8",
    memory="64Gi",
    node_selector={"zone": "a"},
    tolerate=["nvidia.com/gpu"],
    checkpoint_claim="checkpoints",
    variables_from="paceline-agent-store",
    pass_env=["AWS_*"],
    service_account="agent",
    priority_class="batch",
)


class FakeCluster(ProviderEngine):
    """The provider on an API server in memory."""

    def __init__(self) -> None:
        self.api = FakeKubernetes()
        context = ProvisionerContext(Path("/nowhere"), {"PACELINE_KUBERNETES_TOKEN": "of-the-service-account"}.get)
        self.provisioner = KubernetesProvisioner(SETTINGS, context, self.api)

    def started(self) -> int:
        return len(self.api.objects["jobs"])

    def break_down(self) -> None:
        self.api.down = True

    def visible(self) -> str:
        """Secrets are for those who may read secrets."""
        return json.dumps([self.api.objects["jobs"], self.api.objects["pods"]])

    async def look(self, handle: str) -> SeenLaunch:
        return (await self.provisioner.poll([handle]))[handle]


@pytest.fixture
def engine() -> FakeCluster:
    return FakeCluster()


class TestKubernetes(ProvisionerConformance):
    """Every promise of a provider."""


@pytest.mark.parametrize("settings", [SETTINGS, KubernetesSettings(image="agent:1")], ids=["everything", "least"])
def test_the_manifests_are_what_kubernetes_takes(settings: KubernetesSettings) -> None:
    asked = request("work.b_c", labels={"path": "$(HOME)"}, slots=None)
    for manifest in (manifests.job(settings, asked), manifests.secret(settings, asked, "uid")):
        kubernetes_validate.validate(manifest, VERSION, strict=True)
    assert manifests.job(settings, asked)["metadata"]["name"] == "work-b-c"
    assert "path=$$(HOME)" in manifests.job(settings, asked)["spec"]["template"]["spec"]["containers"][0]["args"]


def test_a_pod_has_time_to_drain_and_no_rights() -> None:
    pod = manifests.job(SETTINGS, request())["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] == SETTINGS.drain_seconds + manifests.END_SECONDS
    assert container["lifecycle"]["preStop"]["exec"]["command"][-1].startswith("kill -USR1 1;")
    assert container["args"][container["args"].index("--drain-on-term") + 1] == "120"
    assert not pod["automountServiceAccountToken"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["envFrom"] == [{"secretRef": {"name": "paceline-agent-store"}}]


@pytest.mark.parametrize("file", sorted(path.name for path in DEPLOY.glob("provisioner*.yaml")))
def test_the_rights_that_the_coordinator_needs_are_valid(file: str) -> None:
    documents = list(yaml.safe_load_all((DEPLOY / file).read_text()))
    for document in documents:
        kubernetes_validate.validate(document, VERSION, strict=True)
    (role,) = [each for each in documents if each["kind"] == "Role"]
    granted = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert granted == {("jobs", verb) for verb in ("create", "get", "list", "watch", "delete")} | {
        ("secrets", "create"),
        ("pods", "list"),
        ("pods", "watch"),
    }


async def test_the_job_owns_its_secret_and_the_server_is_asked_with_the_token(engine: FakeCluster) -> None:
    handle = await engine.provisioner.launch(request())
    secret = engine.api.objects["secrets"]["work-bcdfg"]
    assert secret["stringData"] == {"token": TOKEN}
    assert handle == f"paceline/work-bcdfg/{secret['metadata']['ownerReferences'][0]['uid']}"
    assert {each.headers["authorization"] for each in engine.api.requests} == {"Bearer of-the-service-account"}


async def test_a_launch_that_broke_off_before_its_secret_is_completed(engine: FakeCluster) -> None:
    engine.api.objects["secrets"]["work-bcdfg"] = {}
    first = await engine.provisioner.launch(request())
    engine.api.objects["secrets"].clear()
    assert await engine.provisioner.launch(request()) == first
    assert engine.api.objects["secrets"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}
                ]
            },
            "no machine takes its pod yet: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling"}}}]},
            "its image cannot be pulled: Back-off pulling",
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}}}]},
            'its container waits: CreateContainerConfigError secret "x" not found',
        ),
        ({}, "its pod is being started"),
    ],
    ids=["no-machine", "image", "secret", "starting"],
)
async def test_where_a_pod_waits_is_told(engine: FakeCluster, status: dict[str, Any], reason: str) -> None:
    handle = await engine.provisioner.launch(request())
    engine.api.objects["pods"]["work-bcdfg-x1"]["status"] = {"phase": "Pending", **status}
    assert await engine.look(handle) == SeenLaunch(LaunchPhase.PENDING, reason)


async def test_a_quota_leaves_a_job_without_a_pod(engine: FakeCluster) -> None:
    handle = await engine.provisioner.launch(request())
    engine.api.objects["pods"].clear()
    assert "it may be a quota" in (await engine.look(handle)).reason


async def test_running_and_how_it_ended(engine: FakeCluster) -> None:
    handle = await engine.provisioner.launch(request())
    engine.api.objects["pods"]["work-bcdfg-x1"]["status"] = {"phase": "Running"}
    assert (await engine.look(handle)).phase is LaunchPhase.RUNNING
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "BackoffLimitExceeded",
        "message": "Job has reached the specified backoff limit",
    }
    engine.api.objects["jobs"]["work-bcdfg"]["status"] = {"conditions": [failed]}
    assert await engine.look(handle) == SeenLaunch(LaunchPhase.ENDED, "its pod failed: Job has reached the specified backoff limit")


async def test_a_job_of_the_same_name_is_another_node(engine: FakeCluster) -> None:
    first = await engine.provisioner.launch(request())
    await engine.provisioner.terminate(first)
    second = await engine.provisioner.launch(request())
    await engine.provisioner.terminate(first)  # late, and again
    assert (await engine.look(second)).phase is not LaunchPhase.ENDED


async def test_a_list_whose_snapshot_is_gone_begins_anew(engine: FakeCluster) -> None:
    handles = [await engine.provisioner.launch(request(f"work-{number}")) for number in range(5)]
    engine.api.page, engine.api.gone_pages = 2, 2
    found = await engine.provisioner.poll(handles)
    assert {each.phase for each in found.values()} == {LaunchPhase.PENDING}
    engine.api.gone_pages = 99
    with pytest.raises(ProvisionerError, match="410"):
        await engine.provisioner.poll(handles)


@pytest.mark.parametrize(
    ("status", "remedy"), [(403, "deploy/kubernetes/provisioner.yaml"), (401, "create token"), (422, "correct the field")]
)
async def test_a_refusal_is_told_with_a_way_out(engine: FakeCluster, status: int, remedy: str) -> None:
    engine.api.refusals = [(status, "jobs.batch is forbidden")]
    with pytest.raises(ProvisionerError, match=f"{status} to POST .*: jobs.batch is forbidden") as refused:
        await engine.provisioner.launch(request())
    assert remedy in refused.value.remedy


async def test_an_answer_that_is_not_of_an_api_server_is_told() -> None:
    """The page of a proxy, for one: the coordinator's log had a traceback at each look, and the launch no way out."""
    context = ProvisionerContext(Path("/nowhere"), {"PACELINE_KUBERNETES_TOKEN": "t"}.get)
    page = httpx.MockTransport(lambda _: httpx.Response(200, text="<html>please sign in</html>"))
    with pytest.raises(ProvisionerError, match="no JSON: '<html>please sign in") as refused:
        await KubernetesProvisioner(SETTINGS, context, page).poll(["paceline/a/b"])
    assert "proxy" in refused.value.remedy


async def test_a_job_that_is_not_ours_is_left_alone(engine: FakeCluster) -> None:
    engine.api.objects["jobs"]["work-bcdfg"] = {"metadata": {"name": "work-bcdfg", "uid": "theirs"}}
    with pytest.raises(ProvisionerError, match="not Paceline's"):
        await engine.provisioner.launch(request())


async def test_a_token_that_is_not_there_is_told_by_name() -> None:
    provisioner = KubernetesProvisioner(SETTINGS, ProvisionerContext(Path("/nowhere"), lambda _: None), FakeKubernetes())
    with pytest.raises(ProvisionerError, match="PACELINE_KUBERNETES_TOKEN"):
        await provisioner.poll(["paceline/a/b"])


@pytest.mark.parametrize(
    "fields",
    [
        {"token_secret": "PACELINE_KUBERNETES_TOKEN"},
        {"token_secret": "PACELINE_KUBERNETES_TOKEN", "api_server": "http://10.0.0.1:6443"},
        {"token_secret": "PACELINE_SECRETS_KEY", "api_server": "https://10.0.0.1:6443"},
        {"memory": "64 GB"},
        {"namespace": "../kube-system"},
        {"variables_from": "paceline-secrets"},
    ],
    ids=["whose-token", "plain-http", "any-variable", "quantity", "namespace", "any-secret-of-the-namespace"],
)
def test_settings_that_cannot_be_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        KubernetesSettings(image="agent:1", **fields)
