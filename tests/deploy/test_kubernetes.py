"""The manifest's own programs and rules: how agents join and leave, what their ranks reach, and what coordinators see of what these save."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.cluster.provisioners.kubernetes_manifests import DRAIN_HOOK, END_SECONDS, job
from paceline.cluster.provisioners.kubernetes_settings import KubernetesSettings
from paceline.cluster.provisioners.provisioner import WantedNode
from tests.deploy.test_files import PROGRAM_SECONDS, ROOT, by_kind, compose, documents

#: In place of the command: prints a token, and the nodes that are gone.
PACELINE = """#!/bin/sh
case "$*" in
"nodes add --json") echo '{"token": "pj_new"}' ;;
"nodes list --status gone --json") test -z "$AWAY" && echo '[{"id": "node-gone"}]' ;;
*) exit 64 ;;
esac
"""


def member_of_the_gang() -> dict[str, Any]:
    template: dict[str, Any] = by_kind("StatefulSet", "distributed-training")["spec"]["template"]
    return template


def node_of_a_pool() -> dict[str, Any]:
    settings = KubernetesSettings(type="kubernetes", image="paceline-agent:0.1.0")
    template: dict[str, Any] = job(settings, WantedNode("lab-a", "lab", "https://paceline-coordinator:8000", "token"))["spec"]["template"]
    return template


def agents_pod() -> dict[str, Any]:
    pod: dict[str, Any] = member_of_the_gang()["spec"]
    return pod


def seconds_to_drain(words: Sequence[str]) -> float:
    return float(words[words.index("--drain-seconds") + 1])


def test_a_pod_that_is_deleted_drains_its_node_and_keeps_its_place() -> None:
    """SIGTERM ended the ranks at once: those that do not save by themselves went back to their newest checkpoint."""
    pod = agents_pod()
    agent = pod["containers"][0]
    words = agent["args"][0].split()
    assert "--returns" in words
    assert agent["lifecycle"]["preStop"]["exec"]["command"] == ["/bin/sh", "-c", DRAIN_HOOK]
    assert "exec paceline worker" in agent["args"][0], "the hook signals process 1"
    assert pod["terminationGracePeriodSeconds"] - seconds_to_drain(words) >= END_SECONDS


@pytest.mark.parametrize("name", ["agent-1", "agent-2"])
def test_a_container_that_is_replaced_drains_its_node_and_keeps_its_place(name: str) -> None:
    agent = compose()["services"][name]
    assert agent["stop_signal"] == "SIGUSR1"
    assert "--returns" in agent["command"]
    assert float(agent["stop_grace_period"].removesuffix("s")) - seconds_to_drain(agent["command"]) >= END_SECONDS


def test_the_page_says_how_pods_of_a_pool_reach_a_coordinator_in_the_cluster() -> None:
    """They were told the public URL, which the NetworkPolicy keeps them from; at the service they refused the certificate."""
    page = (ROOT / "docs" / "nodes_kubernetes.md").read_text()
    service, coordinator = by_kind("Service", "paceline-coordinator"), by_kind("Deployment", "paceline-coordinator")
    port = service["spec"]["ports"][0]["port"]
    assert f"`server: https://paceline-coordinator:{port}`" in page
    mounts = coordinator["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    (tls,) = [each["mountPath"] for each in mounts if each["name"] == "tls"]
    assert f"`PACELINE_TLS_CA: {tls}/ca.crt`" in page


def test_the_page_says_how_browsers_are_told_apart_behind_the_ingress() -> None:
    """All had the address of the Ingress controller: ten wrong keys a minute, of anybody, kept everybody from signing in."""
    assert by_kind("ConfigMap", "paceline-settings")["data"]["FORWARDED_ALLOW_IPS"]
    assert "FORWARDED_ALLOW_IPS" in (ROOT / "docs" / "deploy" / "kubernetes.md").read_text().split("Then\n")[0]


def test_ranks_are_not_believed_which_browser_they_speak_for() -> None:
    """The pods' whole network was: any job could keep a colleague from signing in, or try keys without a limit."""
    believed = by_kind("ConfigMap", "paceline-settings")["data"]["FORWARDED_ALLOW_IPS"]
    assert all(ipaddress.ip_network(each).is_loopback for each in believed.split(","))


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(each["operator"] == "Exists" and each["key"] in labels for each in selector.get("matchExpressions", []))


def reached(rules: Sequence[dict[str, Any]], side: str, labels: dict[str, str]) -> list[Any]:
    """The ports of the rules that have these pods on that side."""
    peers = [(peer, rule.get("ports")) for rule in rules for peer in rule.get(side, [])]
    return [ports for peer, ports in peers if selects(peer.get("podSelector", {"matchLabels": {"no": "pod"}}), labels)]


@pytest.mark.parametrize("template", [member_of_the_gang, node_of_a_pool])
def test_ranks_reach_neither_databases_nor_other_pods_nor_a_clouds_keys(template: Callable[[], dict[str, Any]]) -> None:
    """The policy was about the way in alone, and promised that no other pod is reached. Nodes that the coordinator launches had none."""
    policies = [
        each["spec"] for each in (*documents("k8s-deployment.yaml"), *documents("provisioner.yaml")) if each["kind"] == "NetworkPolicy"
    ]
    (policy,) = (each for each in policies if selects(each["podSelector"], template()["metadata"]["labels"]))
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    coordinator = by_kind("Deployment", "paceline-coordinator")["spec"]["template"]
    port = {"protocol": "TCP", "port": coordinator["spec"]["containers"][0]["ports"][0]["containerPort"]}
    assert reached(policy["egress"], "to", coordinator["metadata"]["labels"]) == [[port]]
    for peer in (member_of_the_gang(), node_of_a_pool()):
        assert reached(policy["egress"], "to", peer["metadata"]["labels"]) == [None]
        assert reached(policy["ingress"], "from", peer["metadata"]["labels"]) == [None]
    assert reached(policy["egress"], "to", {"app": "postgres"}) == []
    assert reached(policy["ingress"], "from", {"app": "postgres"}) == []
    assert [[port["port"] for port in rule["ports"]] for rule in policy["egress"] if "to" not in rule] == [[53, 53]]
    blocks = [to["ipBlock"] for rule in policy["egress"] for to in rule.get("to", []) if "ipBlock" in to]
    for address in ("10.96.0.1", "172.20.0.1", "192.168.1.1", "169.254.169.254", "fd00:ec2::254"):
        inside = ipaddress.ip_address(address)
        for block in blocks:
            closed = any(inside in ipaddress.ip_network(each) for each in block["except"])
            assert closed or inside not in ipaddress.ip_network(block["cidr"]), address


def test_what_the_page_makes_has_its_namespace_first() -> None:
    """The namespace came with the manifest, which is applied last: each secret before it was refused, or made elsewhere."""
    page = (ROOT / "docs" / "deploy" / "kubernetes.md").read_text()
    lines = re.findall(r"kubectl [^`\n]*", page)
    namespace = by_kind("Namespace", "paceline")["metadata"]["name"]
    assert lines[0] == f"kubectl create namespace {namespace} && kubectl config set-context --current --namespace {namespace}"
    files = [word for line in lines for word in line.split() if word.endswith(".yaml")]
    assert files
    assert [name for name in files if not (ROOT / name).is_file()] == []


def join(folder: Path, node_id: str | None, **environment: str) -> tuple[str | None, bool]:
    """Run the init container's script on a volume with the credential of this node. Returns the token and whether a credential is left."""
    (folder / "paceline").write_text(PACELINE)
    (folder / "paceline").chmod(0o755)
    (folder / "agent").mkdir()
    credential, token = folder / "agent" / "credential.json", folder / "token"
    if node_id is not None:
        credential.write_text(json.dumps({"node_id": node_id}))
    container = agents_pod()["initContainers"][0]
    script = container["args"][0].replace("/var/lib/paceline/", f"{folder}/").replace("/join/", f"{folder}/")
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run([*container["command"], script], env=path | environment, check=True, timeout=PROGRAM_SECONDS)
    return token.read_text().strip() if token.exists() else None, credential.exists()


@pytest.mark.parametrize(
    ("node_id", "environment", "expected"),
    [
        pytest.param(None, {}, ("pj_new", False), id="a new volume"),
        pytest.param("node-here", {}, (None, True), id="a node that is kept"),
        pytest.param("node-gone", {}, ("pj_new", False), id="a node that was removed"),
        pytest.param("node-gone", {"AWAY": "yes"}, (None, True), id="no coordinator that knows"),
    ],
)
def test_a_pod_whose_node_was_removed_joins_anew(
    tmp_path: Path, node_id: str | None, environment: dict[str, str], expected: tuple[str | None, bool]
) -> None:
    """Its volume still had the credential, so that it made no token and was refused for ever."""
    assert join(tmp_path, node_id, **environment) == expected


def test_coordinators_read_the_checkpoints_that_they_hand_out_and_never_write_them() -> None:
    """They did not see the folder in which agents save, in pods as in the compose file: every download was a 409."""
    services = compose()["services"]
    saved = {volume for volume in services["agent-1"]["volumes"] if volume.endswith(":/checkpoints")}
    for name in ("coordinator-1", "coordinator-2"):
        assert [volume for volume in services[name]["volumes"] if "/checkpoints" in volume] == [f"{volume}:ro" for volume in saved]
    pods = [agents_pod(), by_kind("Deployment", "paceline-coordinator")["spec"]["template"]["spec"]]
    written, read = [[each for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == "/checkpoints"] for pod in pods]
    assert read == [{**mount, "readOnly": True} for mount in written]
    claims = [[each["persistentVolumeClaim"] for each in pod["volumes"] if "persistentVolumeClaim" in each] for pod in pods]
    assert claims[1] == [{**claim, "readOnly": True} for claim in claims[0]]
    assert len(saved) == len(written) == len(claims[0]) == 1
