"""The files for machines: valid by their schemas and programs, and true of what exists: options, images, volumes, ports, metrics."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer.main
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from paceline.api.serve import parser as serve_parser
from paceline.api.settings import Settings
from paceline.bundles.archive import MOST_TAR_BYTES
from paceline.cli.commands.pools import pools_of
from paceline.cli.commands.worker import worker
from paceline.cluster.provisioners.settings import PoolSpec
from paceline.cluster.provisioners.slurm_settings import SlurmSettings
from paceline.tls.authority import RENEW_BEFORE
from scripts.images.dockerfile import assignments_of, copy_of, parse
from scripts.images.roots import PATH
from tests.test_light_install import needed_by

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = ("1.30", "1.32")
PROGRAM_SECONDS = 60


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))


def by_kind(kind: str, name: str) -> dict[str, Any]:
    return next(each for each in documents("k8s-deployment.yaml") if (each["kind"], each["metadata"]["name"]) == (kind, name))


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return found


def worker_options() -> set[str]:
    application = typer.Typer()
    application.command()(worker)
    return {name for parameter in typer.main.get_command(application).params for name in parameter.opts}


def stages() -> list[str]:
    return re.findall(r"^FROM \S+ AS (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)


def test_who_opens_ports_for_gangs_is_told_how_to_open_a_range_of_them() -> None:
    """The page of the second machine said that any port has to be open."""
    assert "net.ipv4.ip_local_port_range" in (ROOT / "docs" / "deploy" / "index.md").read_text().partition("\n## What is open where\n")[2]
    assert "(deploy/index.md#what-is-open-where)" in (ROOT / "docs" / "second_machine.md").read_text()


# --- Dockerfile


def test_the_dockerfile_has_nothing_that_a_linter_finds() -> None:
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, timeout=PROGRAM_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("target", ["coordinator", "agent"])
def test_an_image_runs_as_a_user_and_tells_whether_it_is_well(target: str) -> None:
    text = (ROOT / "Dockerfile").read_text()
    stage = text[text.index(f" AS {target}\n") :].split("\nFROM ")[0]
    assert re.search(r"^USER 10001:10001$", stage, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK ", stage, re.MULTILINE)
    assert re.search(r"^VOLUME /var/lib/paceline$", stage, re.MULTILINE)


def test_keys_and_data_of_a_stack_never_get_into_an_image() -> None:
    left_out = (ROOT / ".dockerignore").read_text().splitlines()
    assert {".paceline", "**/.paceline", ".git", ".venv"} <= set(left_out)


def test_torch_is_the_version_that_is_developed_with() -> None:
    pinned = re.search(r"^torch==(\S+)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert f"torch=={pinned[1]}" in (ROOT / "Dockerfile").read_text()


def test_the_dashboards_build_takes_the_documentation_along() -> None:
    """It is in no clone: images had a coordinator that said "run `make setup`" at /docs."""
    found = parse((ROOT / "Dockerfile").read_text()).stages
    words = [each.word for each in found["dashboard"].instructions]
    copies = [copy_of(each) for each in found["dashboard"].instructions if each.word == "COPY"]
    (taken,) = [copy for copy in copies if copy.stage == "documentation"]
    assert taken.target == "public/docs"
    assert words[-1] == "RUN"
    made = [each.rest for each in found["documentation"].instructions if each.word == "RUN"]
    assert f"python -m scripts.docs_site --into {taken.sources[0]}" in made[-1]
    for target in ("lean-coordinator", "agent"):
        stages = {copy_of(each).stage for each in found[target].instructions if each.word == "COPY"} - {None}
        assert stages == {f"build-{target.removeprefix('lean-')}"}
    assert [copy_of(each).stage for each in found["coordinator"].instructions if each.word == "COPY"] == ["lean-coordinator"]


def test_the_coordinators_image_has_what_it_cannot_install() -> None:
    """It has no pip: every `search` and every launch of a host with SSH ended with "pip install". What draws figures is one argument away."""
    text = (ROOT / "Dockerfile").read_text()
    installed = re.search(r"paceline-\*\.whl\)\[([a-z,]+),\$\{COORDINATOR_EXTRAS\}\]", text)
    assert installed is not None
    assert set(installed[1].split(",")) == {"oidc", "postgres", "redis", "ssh"}
    assert re.findall(r"^ARG COORDINATOR_EXTRAS=(\S+)$", text, re.MULTILINE) == ["search"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras["search"]) < set(extras["experiments"])


def test_an_image_from_scratch_has_the_environment_of_what_it_copies() -> None:
    found = parse((ROOT / "Dockerfile").read_text()).stages
    below, above = (
        {name for each in found[stage].instructions if each.word == "ENV" for name in assignments_of(each, {"PATH": PATH})}
        for stage in ("python", "coordinator")
    )
    assert below - above == {"PIP_NO_CACHE_DIR", "PIP_DISABLE_PIP_VERSION_CHECK"}
    path = next(assignments_of(each, {})["PATH"] for each in found["coordinator"].instructions if "PATH=" in each.rest)
    assert path == f"/opt/paceline/bin:{PATH}"


@pytest.mark.parametrize("page", ["README.md", "docs/second_machine.md", "docs/deploy/systemd.md"])
def test_pages_that_install_paceline_do_it_from_a_wheel(page: str) -> None:
    """`pip install 'paceline[worker]'` finds nothing where there is no Paceline yet; where there is one, it adds what an extra needs."""
    text = (ROOT / page).read_text()
    assert "make setup && .venv/bin/pip wheel . --no-deps -w dist" in text
    assert re.search(r'pip install "\$\(echo (dist/)?paceline-\*\.whl\)\[worker\]"', text)
    assert "pip install 'paceline[" not in text


def test_the_readme_names_every_extra() -> None:
    line = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| install it |"))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [extra for extra in extras if f"`{extra}`" not in line and f"[{extra}]" not in line] == []


# --- compose


def test_services_use_what_the_compose_file_has() -> None:
    document = compose()
    services, targets = document["services"], stages()
    assert len([name for name in services if name.startswith("coordinator-")]) == 2
    assert len([name for name in services if name.startswith("agent-")]) == 2
    for name, service in services.items():
        assert service["image"], name
        if "build" in service:
            assert service["build"]["target"] in targets, name
        assert set(service.get("depends_on", {})) <= set(services), name
        assert set(service.get("networks", [])) <= set(document["networks"]), name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in document["volumes"] or (ROOT / source).exists(), (name, source)
        for needed, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                built_in = services[needed].get("build", {}).get("target") in ("coordinator", "agent")
                assert "healthcheck" in services[needed] or built_in, (name, needed)


def test_only_the_proxy_is_reached_from_outside_and_agents_reach_no_database() -> None:
    services = compose()["services"]
    assert [name for name, service in services.items() if service.get("ports")] == ["proxy"]
    assert compose()["networks"]["back"]["internal"] is True
    inside = {name for name, service in services.items() if "back" in service.get("networks", [])}
    assert not {name for name in inside if name.startswith("agent-")}
    assert {"postgres", "redis", "coordinator-1", "coordinator-2", "proxy"} <= inside


def test_coordinators_reach_channels_and_identity_providers_without_being_reached() -> None:
    """Their one network had no way out: no notification was sent, and nobody could sign in by a provider."""
    services, networks = compose()["services"], compose()["networks"]
    for name in ("coordinator-1", "coordinator-2"):
        assert [network for network in services[name]["networks"] if not (networks[network] or {}).get("internal")] == ["out"]
    assert {name for name, service in services.items() if "out" in service.get("networks", [])} == {"coordinator-1", "coordinator-2"}


def test_roots_are_read_only_and_keys_stay_with_who_needs_them() -> None:
    for name, service in compose()["services"].items():
        if service["image"].startswith(("paceline-", "nginx")):
            assert service["read_only"] is True, name
            assert service["cap_drop"] == ["ALL"], name
        if name.startswith("agent-"):
            assert not [volume for volume in service["volumes"] if volume.startswith("tls:")], "the key of the certificate"


def test_a_rank_finds_no_join_token_that_still_makes_a_node() -> None:
    """Each `up` made tokens that no agent used, in a volume that both agents' ranks could read: any member could make a node of their own."""
    services = compose()["services"]
    for number in (1, 2):
        agent, enroll = services[f"agent-{number}"], services[f"enroll-{number}"]
        words = enroll["entrypoint"]
        assert "--unless-present" in words
        assert words[words.index("--names") + 1] == agent["command"][agent["command"].index("--name") + 1]
        (volume,) = [each.split(":")[0] for each in enroll["volumes"] if each.split(":")[1] == "/join"]
        assert {name for name, each in services.items() if any(mount.startswith(f"{volume}:") for mount in each.get("volumes", []))} == {
            f"agent-{number}",
            f"enroll-{number}",
        }
        assert f"enroll-{number}" in agent["depends_on"]


@pytest.mark.parametrize("agent", ["agent-1", "agent-2"])
def test_agents_of_the_compose_file_are_started_with_options_that_exist(agent: str) -> None:
    words = compose()["services"][agent]["command"]
    assert {word for word in words if word.startswith("--")} <= worker_options()


def test_agents_of_other_machines_are_started_as_the_page_says_and_never_wait_for_those_of_the_compose_file() -> None:
    """Their network is Docker's own: a gang over both kinds ended in time-outs."""
    page = (ROOT / "docs" / "deploy" / "compose.md").read_text()
    command = page[page.index("    docker run ") :].split("\n\n")[0]
    image, _, options = command.partition(" paceline-agent:cuda ")
    assert "--stop-signal USR1" in image
    assert set(re.findall(r"--[a-z-]+", options)) <= worker_options()
    agents = [name for name in compose()["services"] if name.startswith("agent-")]
    assert f"docker compose up --detach {' '.join(f'--scale {name}=0' for name in agents)}" in page


def test_settings_of_all_files_exist() -> None:
    known = {f"PACELINE_{name}".upper() for name in Settings.model_fields} | {"DATABASE_URL", "REDIS_URL", "FORWARDED_ALLOW_IPS"}
    told = {*compose()["services"]["coordinator-1"]["environment"], *by_kind("ConfigMap", "paceline-settings")["data"]}
    pod = by_kind("Deployment", "paceline-coordinator")["spec"]["template"]["spec"]
    told |= {each["name"] for each in pod["containers"][0]["env"] if "value" in each}
    assert told <= known


def test_the_proxy_passes_on_what_the_coordinator_needs() -> None:
    text = (DEPLOY / "compose" / "nginx.conf").read_text()
    for needed in ("Host $http_host", "X-Forwarded-For $remote_addr", "X-Forwarded-Proto https", "Upgrade $http_upgrade"):
        assert f"proxy_set_header {needed};" in text
    assert {f"server {name}:8000" in text for name in ("coordinator-1", "coordinator-2")} == {True}


def test_the_proxy_finds_coordinators_that_come_back_with_another_address() -> None:
    """Their names were looked up once, when nginx started: after `up --build` the proxy asked addresses of before."""
    text = (DEPLOY / "compose" / "nginx.conf").read_text()
    upstream = text[text.index("upstream coordinators {") :].split("}")[0]
    assert [" resolve" in line for line in upstream.splitlines() if line.strip().startswith("server ")] == [True, True]
    assert "zone coordinators" in upstream
    assert "resolver 127.0.0.11" in text
    version = re.fullmatch(r"nginx:(\d+)\.(\d+)-alpine", compose()["services"]["proxy"]["image"])
    assert version is not None
    assert (int(version[1]), int(version[2])) >= (1, 28), "`resolve` is of nginx 1.27.3"


def test_a_folder_that_is_dropped_in_the_browser_passes_every_proxy() -> None:
    """It is one request, of up to 158 MiB: proxies that took 8 MiB refused it with a page of their own."""
    megabytes = MOST_TAR_BYTES / (1 << 20)
    place = re.search(r"location = /api/v1/training/bundles \{([^}]*)\}", (DEPLOY / "compose" / "nginx.conf").read_text())
    assert place is not None
    assert "proxy_pass http://coordinators;" in place[1]
    assert int(re.findall(r"client_max_body_size (\d+)m;", place[1])[0]) >= megabytes
    annotations = by_kind("Ingress", "paceline")["metadata"]["annotations"]
    assert int(annotations["nginx.ingress.kubernetes.io/proxy-body-size"].removesuffix("m")) >= megabytes
    told = re.findall(r"(\d+) MiB at `/api/v1/training/bundles`", (ROOT / "docs" / "deploy" / "proxy.md").read_text())
    assert [int(number) >= megabytes for number in told] == [True]


# --- Kubernetes


@pytest.mark.parametrize("version", KUBERNETES)
def test_manifests_are_valid_by_their_schemas(version: str) -> None:
    for document in documents("k8s-deployment.yaml"):
        kubernetes_validate.validate(document, version, strict=True)


def test_names_are_those_of_the_familiar_lines() -> None:
    """kubectl logs -f distributed-training-0; get pods -l job=...; port-forward distributed-training-0 6006:6006."""
    assert (DEPLOY / "kubernetes" / "k8s-deployment.yaml").is_file()
    agents = by_kind("StatefulSet", "distributed-training")["spec"]
    assert agents["replicas"] >= 1
    assert agents["template"]["metadata"]["labels"]["job"] == "distributed-training"
    containers = agents["template"]["spec"]["containers"]
    assert containers[0]["name"] == "agent", "kubectl logs shows the first container"
    assert 6006 in [port["containerPort"] for port in containers[0]["ports"]]


def test_selectors_find_the_pods() -> None:
    pods = {}
    for kind, name in (("Deployment", "paceline-coordinator"), ("StatefulSet", "distributed-training")):
        spec = by_kind(kind, name)["spec"]
        pods[name] = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= pods[name].items()
    for document in documents("k8s-deployment.yaml"):
        if document["kind"] == "Service":
            wanted = document["spec"]["selector"]
        elif document["kind"] == "PodDisruptionBudget":
            wanted = document["spec"]["selector"]["matchLabels"]
        else:
            continue
        assert wanted.items() <= pods[document["metadata"]["name"]].items(), document["metadata"]["name"]
    monitor = documents("servicemonitor.yaml")[0]["spec"]
    service = by_kind("Service", "paceline-coordinator")
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] in [port["name"] for port in service["spec"]["ports"]]


def test_pods_have_no_rights_and_mount_what_they_name() -> None:
    for kind, name in (("Deployment", "paceline-coordinator"), ("StatefulSet", "distributed-training")):
        spec = by_kind(kind, name)["spec"]
        pod = spec["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        volumes = {volume["name"] for volume in pod["volumes"]} | {
            each["metadata"]["name"] for each in spec.get("volumeClaimTemplates", [])
        }
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            options = set(re.findall(r"--[a-z-]+", " ".join(container.get("args", []))))
            allowed = (
                worker_options() | {"--json", "--status"}
                if kind == "StatefulSet"
                else {word for each in serve_parser()._actions for word in each.option_strings}
            )
            assert options <= allowed, options - allowed


def test_secrets_outlive_the_pods_of_coordinators() -> None:
    """Each pod made a key of its own in a folder that ended with it: what was sealed with that could never be opened again."""
    container = by_kind("Deployment", "paceline-coordinator")["spec"]["template"]["spec"]["containers"][0]
    assert "paceline-vault" in [source["secretRef"]["name"] for source in container["envFrom"] if "secretRef" in source]
    made = next(
        line for line in (ROOT / "docs" / "deploy" / "kubernetes.md").read_text().splitlines() if line.startswith("| `paceline-vault`")
    )
    assert "--from-literal=PACELINE_SECRETS_KEY=" in made


@pytest.mark.parametrize("page", ["compose.md", "kubernetes.md"])
def test_pages_say_how_often_a_certificate_is_to_be_renewed(page: str) -> None:
    """After 90 days no agent connected. A run before the last 30 changes nothing: one every 30 days can come just before them, and then as it ends."""
    text = (ROOT / "docs" / "deploy" / page).read_text()
    (told,) = re.findall(r"every (\d+) days", text)
    assert int(told) * 3 <= RENEW_BEFORE.days
    assert re.search(rf"before\sthe\slast\s{RENEW_BEFORE.days}\sdays", text)


def test_a_key_that_joins_is_out_of_reach_of_ranks() -> None:
    pod = by_kind("StatefulSet", "distributed-training")["spec"]["template"]["spec"]
    assert [each["name"] for each in pod["initContainers"] if "paceline-join" in json.dumps(each)] == ["join"]
    assert not [each["name"] for each in pod["containers"] if "paceline-join" in json.dumps(each)]
    authority = next(volume for volume in pod["volumes"] if volume["name"] == "authority")
    assert [item["key"] for item in authority["secret"]["items"]] == ["ca.crt"]


# --- Slurm


def test_the_sample_of_a_pool_can_be_applied_and_its_page_has_every_field() -> None:
    """It had no list of pools: `paceline pools apply` refused it."""
    (sample,) = pools_of(DEPLOY / "slurm" / "pool.yaml")
    settings = PoolSpec.model_validate(sample).provider
    assert isinstance(settings, SlurmSettings)
    assert settings.requeue
    assert not settings.directory.startswith("~")  # a shared folder, or nobody comes back
    page = (ROOT / "docs" / "nodes_slurm.md").read_text()
    assert [name for name in SlurmSettings.model_fields if name != "type" and f"`{name}`" not in page] == []


def test_the_sample_of_a_pool_that_scales_asks_slurm_for_the_gpus_that_it_speaks_of() -> None:
    """Its nodes would have had CPU slots, which no job with `device: cuda` can use."""
    (text,) = re.findall(r"```yaml\n(pools:.*?)```", (ROOT / "docs" / "autoscaling.md").read_text(), re.DOTALL)
    (pool,) = [PoolSpec.model_validate(each) for each in yaml.safe_load(text)["pools"]]
    assert isinstance(pool.provider, SlurmSettings)
    assert pool.autoscale is not None
    assert pool.autoscale.device == "cuda"
    assert pool.provider.gres == f"gpu:{pool.slots}"


# --- packages


def requirements_of(name: str) -> list[Requirement]:
    """The lines of a file for pip that apply to this Python."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith(("#", "-"))]
    return [each for each in map(Requirement, lines) if each.marker is None or each.marker.evaluate()]


def test_every_package_is_pinned() -> None:
    """Those that come along too, but for what GPU wheels of torch bring: torch pins that itself."""
    constraints = requirements_of("constraints.txt")
    names = [canonicalize_name(each.name) for each in constraints]
    assert sorted(names) == sorted({*names})
    asked = requirements_of("requirements.txt") + requirements_of("requirements-dev.txt")
    exact = [each for each in (*constraints, *asked) if re.fullmatch(r"==[^,*]+", str(each.specifier))]
    loose = needed_by([str(each) for each in asked]) - {canonicalize_name(each.name) for each in exact}
    assert {name for name in loose if not name.startswith("nvidia-") and name != "triton"} == set()
