"""The reference has every field, command, request and setting, each with its meaning."""

import re
from datetime import timedelta

import pytest

from paceline.api.core import disk
from paceline.api.errors import CATALOGUE
from paceline.api.loops import housekeeping
from paceline.api.loops.storage import CLOCK_STEADY
from paceline.api.services.artifacts import stored_artifacts
from paceline.api.services.bundles import bundles
from paceline.api.services.ingest import history_room, rank_events, writer
from paceline.api.services.storage import aging
from paceline.api.settings import Settings
from paceline.cluster.agent import bundles as agent_bundles
from paceline.cluster.agent import folders as agent_folders
from paceline.cluster.agent.confinement import NAMES
from paceline.cluster.agent.environments import built
from paceline.cluster.agent.settings import read_settings
from paceline.cluster.agent.upload import output_gaps, readings_spool
from paceline.cluster.history.storage import JOB_SHARE
from paceline.db import copies
from paceline.monitoring import artifact_files as files
from paceline.monitoring import log_file, media
from paceline.monitoring.artifacts import MAX_ARTIFACT_BYTES
from paceline.training.schema.checkpoint import CheckpointPolicy
from paceline.training.spec.job import JobSpec
from scripts.docs_site.reference import commands, errors, job_spec, rest, settings
from scripts.steps import ROOT

STORAGE_PAGE = (ROOT / "docs" / "storage.md").read_text()


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


def test_the_page_of_what_is_kept_has_every_setting_of_it_with_its_default() -> None:
    found = dict(re.findall(r"\| `(PACELINE_[A-Z_]+)` \(([^)]+)\) \|", STORAGE_PAGE))
    kept = [(name, field) for name, field in settings.fields() if name.startswith("keep_")]
    expected = {settings.variable("PACELINE_", name, field): settings.default(field) for name, field in kept}
    expected["PACELINE_DISK_LOW"] = f"{disk.LOW_SHARE * 100:.0f} % of the disk, {disk.LOW_BYTES >> 30} GiB at most"
    assert found == expected
    options = dict(re.findall(r"\| `(--[a-z-]+)` \(([^)]+)\) \|", STORAGE_PAGE))
    agent = read_settings(["--server", "http://127.0.0.1:1", "--data", "data"])
    assert options == {"--output-cap": f"{agent.output_cap >> 20} MiB", "--spool-kept": f"{agent.spool_kept >> 20} MiB"}
    assert agent.checkpoints == agent.data / "checkpoints"


DAY = timedelta(days=1)
LIMITS = [
    f"once that is passed | the oldest go first |\n| names of metrics | {writer.MAX_NAMES_PER_JOB:,} |",
    f"| {stored_artifacts.MAX_JOB_BYTES >> 30} GiB, {stored_artifacts.MAX_JOB_ARTIFACTS:,} of them, {MAX_ARTIFACT_BYTES >> 20} MiB each |",
    f"| {media.MAX_JOB_BYTES >> 30} GiB, {media.MAX_JOB_OBJECTS:,} of them, {media.MAX_OBJECT_BYTES >> 20} MiB each |",
    f"| {files.MAX_JOB_FILE_BYTES >> 30} GiB, {files.MAX_JOB_FILES:,} of them, {files.MAX_FILE_BYTES >> 30} GiB each |",
    f"| none beyond {history_room.MAX_JOB_EVENTS:,} events of the job | left out; `job.records_refused` |",
    f"also of a job that lives on | {aging.MAX_GENERATIONS} |",
    f"of checkpoints of a job that lives on | {aging.MAX_REPEATED_EVENTS:,} |",
    f"| none beyond {history_room.MAX_EVENTS_WITH_ESSENTIAL:,} events of the job | done without an entry; `{history_room.HISTORY_FULL}` |",
    f"(a sample {rank_events.SAMPLE_CHARACTERS:,} characters)",
    f"takes {history_room.MAX_JOB_EVENTS * rank_events.SAMPLE_CHARACTERS // 10**9} GB.",
    f"Of a job whose points and lines alone take over {JOB_SHARE * 100:.0f} % of `PACELINE_KEEP_SIZE`",
    f"| {JOB_SHARE * 100:.0f} % of `PACELINE_KEEP_SIZE` once that is passed |",
    f"no job names go after {bundles.UNUSED // DAY} day, idempotency keys after {housekeeping.IDEMPOTENCY_KEYS_KEPT // DAY} day, "
    f"ended launches of nodes after {housekeeping.ENDED_LAUNCHES_KEPT // DAY} days, "
    f"deliveries of notifications after {housekeeping.DELIVERIES_KEPT // DAY} days",
    f"is cut at {log_file.MAX_BYTES >> 20} MiB, and {log_file.KEPT_BYTES >> 20} MiB of its end stay",
    f"where the last {copies.KEPT_COPIES} copies stay",
    f"{output_gaps.BURST_BYTES >> 20} MiB and then {output_gaps.SEND_BYTES_PER_SECOND >> 10} KiB a second are sent of its output, of a job of more "
    f"than {output_gaps.FULL_RATE_RANKS} ranks",
    f"**507** and `Retry-After: {disk.RETRY_SECONDS}`",
    f"by default the last {CheckpointPolicy().keep_last} and the best {CheckpointPolicy().keep_best}",
    f"| {agent_folders.KEEP_OUTPUT_SECONDS / 3600:.0f} hours after its end, of the job's last generation |",
    f"what is refused {agent_folders.KEEP_WORK_SECONDS / 86400:.0f} days |",
    f"| {(agent_folders.KEEP_OUTPUT_SECONDS + agent_folders.KEEP_WORK_SECONDS) / 86400:.0f} days after the job's end | none |",
    f"| of media {media.MAX_RANK_BYTES >> 20} MiB and {media.MAX_RANK_OBJECTS:,} a rank |",
    f"| {readings_spool.MAX_BYTES >> 20} MiB; the oldest are given up",
    f"| until others need the room | {agent_bundles.CACHE_BYTES >> 30} GiB |",
    f"| {built.MOST_IDLE_SECONDS / 86400:.0f} days without a job | {built.MOST_BYTES >> 30} GiB |",
]


@pytest.mark.parametrize("limit", LIMITS)
def test_the_page_of_what_is_kept_has_the_limits_of_the_code(limit: str) -> None:
    words = " ".join(STORAGE_PAGE.split())
    assert " ".join(limit.split()) in words
    assert disk.HYSTERESIS == 1.1, "a tenth more"
    assert (timedelta(hours=1), timedelta(hours=1)) == (CLOCK_STEADY, aging.SPARED_READINGS)


def test_every_variable_that_agents_pass_on_to_ranks_stands_on_a_page() -> None:
    """`PACELINE_CACHE` stood on none: whoever's home was full of data sets found no way to put them elsewhere."""
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    assert [name for name in sorted(NAMES - {"PACELINE_STACK"}) if name.startswith("PACELINE_") and f"`{name}`" not in pages] == []


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
