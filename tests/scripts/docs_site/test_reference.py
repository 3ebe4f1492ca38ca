"""The reference has every field, command, request and setting, each with its meaning."""

import re

from paceline.api.errors import CATALOGUE
from paceline.api.settings import Settings
from paceline.cluster.agent.confinement import NAMES
from paceline.cluster.agent.processes import AGENT_DATA_VARIABLE
from paceline.training.spec.job import JobSpec
from scripts.docs_site.reference import commands, errors, job_spec, rest, settings
from scripts.steps import ROOT


def test_every_field_of_a_job_is_there_with_its_default_and_limits() -> None:
    page = job_spec.page()
    for name in JobSpec.model_fields:
        if name != "version":
            assert f"`{name}` |" in page or f"\n## {name}\n" in page, name
    assert "`resources.slots_per_node` | integer, at least 1, at most 64 | `1` |" in page
    assert "### model, kind resnet" in page
    assert "\n## The document itself\n" in page, "the form of a new job leads there"
    assert "`communication.compression` |" in page


def test_every_command_is_there_with_its_options() -> None:
    page = commands.page()
    for command in ("paceline up", "paceline nodes drain", "paceline experiment run"):
        assert f"\n## {command}\n" in page, command
    section = page.partition("\n## paceline submit\n")[2].partition("\n## ")[0]
    assert "| `FILE` |" in section
    assert "| `--set A.B=C` | Change one field of the spec" in section
    assert "--api-key" not in section


def test_every_request_is_there_once() -> None:
    page = rest.page()
    requests = re.findall(r"^\| `((?:GET|POST|PUT|PATCH|DELETE) [^`]+)`", page, re.MULTILINE)
    assert len(requests) == len(set(requests)) > 60
    assert "POST /training/jobs" in requests
    assert "`GET /training/jobs` | " in page


def test_every_setting_is_there_under_the_name_that_is_read() -> None:
    page = settings.page()
    assert page.count("\n| `") == len(Settings.model_fields)
    assert "| `DATABASE_URL` |" in page
    assert "| `PACELINE_KEEP_SIZE` | `20.0GiB` |" in page


def test_every_variable_that_agents_pass_on_to_ranks_stands_on_a_page() -> None:
    """`PACELINE_CACHE` stood on none: whoever's home was full of data sets found no way to put them elsewhere."""
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    internal = {AGENT_DATA_VARIABLE, "PACELINE_STACK"}
    assert [name for name in sorted(NAMES - internal) if name.startswith("PACELINE_") and f"`{name}`" not in pages] == []


def test_every_error_is_there_where_its_type_leads_and_with_a_way_out() -> None:
    page = errors.page()
    for code, kind in CATALOGUE.items():
        assert f"\n## {kind.title} {{ #{code} }}\n" in page
        assert kind.remedy.endswith("."), code


def test_every_field_of_a_kind_has_an_anchor_of_its_own() -> None:
    anchors = re.findall(r'<a id="([^"]+)"', job_spec.page())
    assert len(anchors) == len(set(anchors))
    for anchor in ("field-name", "field-resources.nodes", "field-optimizer.adamw.lr", "field-model.gpt.dim", "field-script.path"):
        assert anchor in anchors
