"""What Prometheus and Grafana get: coordinators that answer it, metrics that exist, rules and panels that hold."""

from __future__ import annotations

import json
import re
import subprocess
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from paceline.api.core.context import Services
from paceline.api.middleware.gate import refusal
from paceline.api.settings import Settings
from paceline.cluster.states import JobState, NodeState
from paceline.monitoring.samples import THROTTLE_NAMES
from tests import factories
from tests.deploy.test_files import DEPLOY, PROGRAM_SECONDS, ROOT, by_kind, compose, documents


def test_prometheus_may_ask_each_pod_by_its_address() -> None:
    """It asks pods, not the service, and TLS's `serverName` is not the Host: each was refused, and the alert of a missing coordinator was always on."""
    container = by_kind("Deployment", "paceline-coordinator")["spec"]["template"]["spec"]["containers"][0]
    own, allowed = container["env"]
    assert own == {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    assert allowed["name"] == "PACELINE_ALLOWED_HOSTS"
    hosts = Settings(allowed_hosts=allowed["value"].replace("$(POD_IP)", "10.1.2.3")).hosts
    server_name = documents("servicemonitor.yaml")[0]["spec"]["endpoints"][0]["tlsConfig"]["serverName"]
    public = urlsplit(by_kind("ConfigMap", "paceline-settings")["data"]["PACELINE_PUBLIC_URL"]).hostname
    assert {"10.1.2.3", server_name, public, "paceline-coordinator"} <= hosts


def test_prometheus_may_ask_each_coordinator_of_the_compose_file() -> None:
    """Its scrapes were refused, by their Host and as plain http, and the alert of a missing coordinator was always on."""
    page = (ROOT / "docs" / "deploy" / "compose.md").read_text()
    (found,) = re.findall(r"^    scrape_configs:\n(?: {6}.*\n)+", page, re.MULTILINE)
    (scrape,) = yaml.safe_load(found)["scrape_configs"]
    targets = [urlsplit(f"//{target}") for each in scrape["static_configs"] for target in each["targets"]]
    assert [(target.hostname, target.port) for target in targets] == [("coordinator-1", 8000), ("coordinator-2", 8000)]
    for target in targets:
        coordinator = compose()["services"][target.hostname]
        environment = coordinator["environment"]
        allowed = environment["PACELINE_ALLOWED_HOSTS"].replace("${PACELINE_HOST:-localhost}", "train.example")
        settings = Settings(allowed_hosts=allowed)
        scope = {
            "type": "http",
            "path": "/metrics",
            "query_string": b"",
            "client": ("10.1.2.3", 1),
            "headers": [(b"host", target.netloc.encode())],
        }
        assert environment["FORWARDED_ALLOW_IPS"] == "*", "who asks there is believed what comes before it"
        assert "back" in coordinator["networks"]
        assert refusal({**scope, "scheme": "http"}, settings) is not None, "so it has to say that it comes by TLS"
        assert refusal({**scope, "scheme": scrape["http_headers"]["X-Forwarded-Proto"]["values"][0]}, settings) is None


KEY_OF_PROMETHEUS = "paceline keys create prometheus --role viewer --days 365"


@pytest.mark.parametrize("file", ["deploy/kubernetes/servicemonitor.yaml", "docs/deploy/index.md", "docs/deploy/compose.md"])
def test_the_key_that_scrapes_lasts_longer_than_a_key_that_nobody_speaks_of(file: str) -> None:
    """After 90 days each scrape was a 401."""
    assert re.findall(r"paceline keys create[^\n`]*", (ROOT / file).read_text()) == [KEY_OF_PROMETHEUS]


def expressions() -> list[str]:
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    dashboard = json.loads((DEPLOY / "grafana" / "paceline.json").read_text())
    of_alerts = [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    return of_alerts + [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


async def test_every_metric_that_is_named_is_exported(client: httpx.AsyncClient, services: Services) -> None:
    """Those of jobs and cards are told by name even where there is none; the disk's are absent where databases are elsewhere."""
    async with services.write() as session:
        await factories.create_node(session)
    text = (await client.get("/metrics")).text
    exported = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    exported |= {f"{name}_bucket" for name in exported}
    named = {name for each in expressions() for name in re.findall(r"paceline_[a-z_]+", each)}
    of_a_disk = {name for name in named if name.startswith("paceline_disk_")} if not services.control.is_sqlite else set()
    assert named - exported - of_a_disk == set()
    assert len(named) > 20


def test_states_and_reasons_in_expressions_exist() -> None:
    states = {*map(str, JobState), *map(str, NodeState)}
    for each in expressions():
        for value in re.findall(r'state=~?"([^"]+)"', each):
            assert set(value.split("|")) <= states, each
        for value in re.findall(r'reason=~"([^"]+)"', each):
            for pattern in value.split("|"):
                assert any(re.fullmatch(pattern, name) for name in THROTTLE_NAMES), pattern


def test_rules_pass_promtool(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", DEPLOY / "prometheus" / "alerts.yaml"], capture_output=True, text=True, timeout=PROGRAM_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_of_the_dashboard_do_not_lie_on_each_other() -> None:
    panels = json.loads((DEPLOY / "grafana" / "paceline.json").read_text())["panels"]
    taken = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(taken)) == len(panels) == len({panel["id"] for panel in panels})
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
