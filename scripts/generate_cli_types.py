"""Write cli/api_types.py: what the command line reads of the API's answers, as msgspec Structs, from dashboard/openapi.json.

    .venv/bin/python -m scripts.generate_cli_types      (a part of `make generate`)

The document says what today's coordinator sends. A command line also talks to older and newer ones, so its types ask for less: a field that is
not in READ may be missing and is then empty, a field that they do not have is ignored, and words of an enumeration are plain strings.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.steps import ROOT

DOCUMENT = ROOT / "dashboard" / "openapi.json"
BIN = Path(sys.executable).parent
TYPES = ROOT / "cli" / "api_types.py"

Schema = dict[str, Any]

#: The schemas that the command line reads, each with the fields without which it cannot do. What it does not read is `Any`.
READ = {
    "Actor": "name",
    "Analysis": "trials configurations",
    "ApiKey": "id name prefix role",
    "Artifact": "id rank generation first_step last_step state bytes created_at",
    "AuditEntry": "time user_name action message",
    "AutoscaleSettings": "",
    "AxisTraffic": "axis rank bytes_per_step",
    "BadLoss": "what done",
    "BrowserSession": "id user_name expires_at",
    "Bubble": "formula text",
    "BundleChanges": "added removed changed count",
    "Checkpoint": "id step state bytes best latest pinned created_at",
    "CheckpointUser": "job_id job_name",
    "ClusterSummary": "nodes jobs slots_total slots_used slots_free gpus",
    "CommunicationChoice": "text links",
    "Comparison": "text same_run",
    "ComparisonReport": "items",
    "Configuration": "index label world_size strategy",
    "Convergence": "configuration reference text",
    "CostCheck": "configuration measured_seconds predicted_seconds error",
    "Curve": "name rank generation steps last",
    "DataRemoval": "state asked_by",
    "DiskState": "free_bytes total_bytes low_bytes low",
    "Effect": "path figure pairs text",
    "Estimate": "value count",
    "Event": "seq time type message",
    "Experiment": "id name state",
    "ExperimentAnalysis": "analysis",
    "ExperimentPlan": "trials configurations",
    "ExperimentSummary": "id name state",
    "Failure": "kind rank node_name message",
    "FigureDifference": "first second path figure ratio text",
    "Fit": "law series text",
    "FolderPage": "prefix files bytes folders items",
    "Generation": "generation world_size started_at",
    "Goodput": "text wall_seconds",
    "GpuReading": "node_id node_name index name age_seconds",
    "GpuStatus": "gpus",
    "GradientRecordState": "rank state",
    "GradientStep": "step generation ready arriving failed",
    "HangNotice": "since message",
    "Incident": "id outcome what why done step fault_at age_seconds",
    "Job": "id name state desired progress world_size generation restarts created_at strategy",
    "JobGradients": "steps",
    "JobMedia": "keys",
    "JobMetrics": "names curves",
    "JobProgress": "",
    "JobStacks": "summary ranks",
    "LeftFile": "path name rank bytes sha256 changed_at",
    "LeftFolder": "path name files bytes changed_at",
    "ListedCheckpoint": "id job_id job_name job_state step state bytes best latest pinned created_at",
    "LogEntry": "seq rank time level text",
    "LogPage": "items next_after",
    "LoggedHistogram": "edges counts values nans infs",
    "LoggedImage": "number width height caption format",
    "LoggedTable": "columns rows total_rows",
    "MediaAtStep": "key kind step objects",
    "MediaKey": "key kind steps ranks bytes",
    "MediaObject": "id rank images",
    "MemoryEstimate": "total",
    "MetricComparison": "name compared equal",
    "NetworkPlan": "text",
    "ModelVersion": "model number job_id job_name step bytes aliases download created_at",
    "Node": "id name state device slots address",
    "NodeLaunch": "id name state",
    "NodePool": "name provider",
    "NotificationChannel": "id name kind target",
    "NotificationDelivery": "id channel_name event title state attempts created_at",
    "NotificationRule": "id channel_name text",
    "Outlier": "trial figure value text",
    "ParameterGradients": "name sharded histogram ranks unused",
    "PeakMemory": "rank bytes",
    "Performance": "steps mfu",
    "Phase": "name seconds",
    "Plan": "plan_hash world_size strategy",
    "PlanChoice": "asked why assumed budget_bytes chosen",
    "PlanOption": "name memory_bytes step_seconds",
    "PlannedAxis": "axis ranks",
    "PlannedConfiguration": "values world_size",
    "PlannedStage": "place layers",
    "Prediction": "configuration ranks step_seconds samples_per_second efficiency",
    "ProfileRequest": "id ranks state",
    "Pruned": "step",
    "Rank": "rank node_name slot state",
    "RankGradient": "rank elements norm zeros nans infs",
    "RankPlacement": "rank node_name slot",
    "RankStacks": "rank node_name state differs summary",
    "Reason": "code text",
    "RegisteredModel": "name versions",
    "ReplacedExperiment": "id",
    "RequestedGradients": "id job_id ranks answered state",
    "RotatedKey": "key_id secrets channels dropped deleted_keys",
    "SampleAudit": "text",
    "SampleRange": "generation first_step last_step first_sample samples",
    "SavedFile": "path bytes time",
    "Secret": "project name updated_by updated_at",
    "Sentence": "kind text",
    "Series": "configuration trial steps",
    "SilentNode": "node_name message",
    "SlotUse": "index",
    "SpecDifference": "text changes_numbers",
    "StackFrame": "function file line",
    "StackProcess": "pid",
    "StackThread": "name",
    "StateCount": "state count",
    "StepGradients": "job_id step ranks parameters",
    "StepTime": "name seconds share",
    "Storage": "stored_bytes limit_bytes database_bytes free_in_database_bytes disk kinds largest_jobs policy hint",
    "StoredJob": "job_id name state bytes ended",
    "StoredKind": "kind rows bytes",
    "TimePart": "cause seconds share",
    "Trial": "index state",
    "TrialCounts": "total",
    "TrialJob": "id name state",
    "User": "id name role created_at",
    "Utilization": "text",
    "WithheldJob": "job_id job_name reason",
}

#: What is empty, by type.
EMPTY: dict[str, Any] = {"array": [], "object": {}, "string": "", "integer": 0, "number": 0.0, "boolean": False}

OPTIONS = (
    *("--input-file-type", "openapi"),
    *("--output-model-type", "msgspec.Struct"),
    *("--extra-template-data", '{"#all#": {"base_class_kwargs": {"frozen": true, "kw_only": true}}}'),
    *("--target-python-version", "3.11"),
    *("--output-datetime-class", "datetime"),
    *("--custom-file-header", "# Generated from dashboard/openapi.json by scripts/generate_cli_types.py: do not edit."),
    "--no-formatters",
    "--no-use-annotated",
    "--use-default",
    "--use-schema-description",
    "--use-field-description",
    "--use-single-line-docstring",
    "--use-double-quotes",
    "--disable-timestamp",
    "--ignore-pyproject",
)


def main() -> int:
    TYPES.write_text(generated(json.loads(DOCUMENT.read_text())))
    return 0


def generated(document: Schema) -> str:
    """Return the text of cli/api_types.py for this OpenAPI document. Raises KeyError where it lacks a schema or a field of READ."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "openapi.json"), Path(folder, TYPES.name)
        source.write_text(json.dumps(tolerant(document)))
        command = [str(BIN / "datamodel-codegen"), "--input", str(source), "--output", str(target), *OPTIONS]
        subprocess.run(command, cwd=ROOT, check=True)
        return _formatted(target.read_text())


def _formatted(text: str) -> str:
    """Return the module as `scripts/check` wants it: by the configuration of the place where it will lie."""
    for command in (("check", "--quiet", "--fix-only"), ("format", "--quiet")):
        done = subprocess.run(
            [BIN / "ruff", *command, "--stdin-filename", TYPES, "-"], input=text, capture_output=True, text=True, check=True
        )
        text = done.stdout
    return text


def tolerant(document: Schema) -> Schema:
    """Return the document with the schemas of READ alone, as the command line reads them."""
    schemas = document["components"]["schemas"]
    read = {name: _answer(schemas[name], required.split(), schemas) for name, required in READ.items()}
    return {"openapi": document["openapi"], "info": document["info"], "paths": {}, "components": {"schemas": read}}


def _answer(schema: Schema, required: list[str], schemas: Schema) -> Schema:
    """Return the schema of one answer. All fields are in its `required`, or the generator would add msgspec's UNSET: what may be missing has a default."""
    given: Schema = schema["properties"]
    names = [*required, *(name for name in given if name not in required)]
    fields = {name: _type(given[name], schemas) for name in names}
    fields |= {name: _optional(fields[name], given[name]) for name in names[len(required) :]}
    described = {name: fields[name] | _description(given[name]) for name in names}
    return {"type": "object", "required": names, "properties": described} | _description(schema)


def _optional(kind: Schema, given: Schema) -> Schema:
    """Return `kind` with a default: what an older coordinator does not send is empty, or null where nothing is empty, as of times and of answers."""
    if "default" in given:
        return kind | {"default": given["default"]}
    if kind.get("type") in EMPTY and "format" not in kind:
        return kind | {"default": EMPTY[kind["type"]]}
    return {"anyOf": [kind, {"type": "null"}], "default": None} if kind else {"default": None}


def _type(schema: Schema, schemas: Schema) -> Schema:
    """Return what a field is, without bounds, patterns and enumerations. A schema that is not in READ is anything."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return schema if name in READ else _type(schemas[name], schemas)
    if "anyOf" in schema:
        kinds = [_type(part, schemas) for part in schema["anyOf"]]
        return {"anyOf": kinds} if all(kinds) else {}
    match schema:
        case {"type": "array", "items": items}:
            return {"type": "array", "items": _type(items, schemas)}
        case {"type": "object", "additionalProperties": dict(values)}:
            return {"type": "object", "additionalProperties": _type(values, schemas)}
        case {"type": "object"}:
            return {}
    return {name: schema[name] for name in ("type", "format") if name in schema}


def _description(schema: Schema) -> Schema:
    return {"description": schema["description"]} if "description" in schema else {}


if __name__ == "__main__":
    sys.exit(main())
