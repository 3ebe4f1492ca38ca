"""Tests are found by the path of their module: those of `<room>/<module>.py` are in `tests/<room>/test_<module>.py`, or are listed here."""

from __future__ import annotations

import ast
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parent
ROOMS = ("api", "cli", "cluster", "db", "distributed", "monitoring", "paceline", "parallelism", "training")
#: Modules with fewer lines, or without a public function, need no tests of their own.
MIN_LINES = 60
#: Tests that are named after what they show, since it is the work of many modules; the table in README.md says what.
NAMED_AFTER_WHAT_THEY_SHOW = ("training/test_*.py", "*/test_parity*.py")
#: Where the tests of modules are that have no test module of their own: what they do is shown by the tests of another.
COVERS = {
    "training/spec/test_syntax.py": "training/spec/syntax_values",
    "cluster/provisioners/test_ray.py": "cluster/provisioners/ray_agent",
    "cluster/provisioners/test_settings.py": "cluster/provisioners/agent_options",
    "api/test_serve_tls.py": "api/core/certificates",
    "api/core/test_redis_bus.py": "api/core/bus",
    "api/loops/test_autoscaler.py": "api/services/scheduling/scaling_facts",
    "api/loops/test_autoscaler_nodes.py": "api/services/nodes/expected_nodes",
    "api/loops/test_launches.py": (
        "api/routes/provisioning api/services/lifecycle/launch_lifecycle "
        "api/schemas/nodes cluster/provisioners/registry db/models/provisioning db/repositories/provisioning"
    ),
    "e2e/test_ssh_nodes.py": "cluster/provisioners/ssh/wheel cli/commands/pools cli/node_launches",
    "api/services/lifecycle/test_isolation.py": "api/core/troubles",
    "api/loops/test_storage.py": "db/repositories/aged",
    "api/middleware/test_gate.py": "api/middleware/spec_body",
    "api/middleware/test_methods.py": "api/routing",
    "api/services/artifacts/test_downloads.py": "api/routes/files api/services/artifacts/folders",
    "api/services/artifacts/test_registry.py": "api/routes/registry db/repositories/registry api/services/storage/files",
    "api/services/artifacts/test_files.py": "cluster/agent/upload/files db/repositories/artifact_files monitoring/artifact_files",
    "api/services/experiments/report/figures/test_drawing.py": (
        "api/services/experiments/report/figures/bars api/services/experiments/report/figures/loss api/services/experiments/report/figures/pareto "
        "api/services/experiments/report/figures/step_time"
    ),
    "api/services/experiments/report/test_exports.py": (
        "api/services/experiments/report/facts_line api/services/experiments/report/markdown api/services/experiments/report/page "
        "api/services/experiments/report/raw_data api/services/experiments/report/tables"
    ),
    "api/services/jobs/test_key_rotation.py": "db/models/notifications",
    "api/services/jobs/test_secrets.py": "db/repositories/secrets",
    "cluster/agent/test_job_secrets.py": "cluster/agent/upload/withheld_files",
    "api/services/jobs/test_exec_sessions.py": "db/repositories/exec_sessions",
    "api/websocket/test_exec_sessions.py": "api/websocket/exec_broker",
    "training/schema/test_packages.py": "training/schema/environment",
    "cluster/agent/environments/test_preparation.py": "cluster/agent/spawner_fleet",
    "cluster/autoscaling/test_decide.py": "cluster/autoscaling/capacity cluster/autoscaling/facts",
    "cluster/autoscaling/test_replay.py": "cluster/autoscaling/trace",
    "cluster/provisioners/test_kubernetes.py": (
        "cluster/provisioners/kubernetes_client cluster/provisioners/kubernetes_manifests cluster/provisioners/kubernetes_settings"
    ),
    "cluster/provisioners/test_slurm.py": (
        "cluster/provisioners/provisioner cluster/provisioners/slurm_script cluster/provisioners/slurm_settings cluster/provisioners/slurm_states"
    ),
    "cluster/agent/exec_sessions/test_keeper.py": "cluster/agent/exec_sessions/program",
    "e2e/test_exec_sessions.py": "cli/commands/exec cli/exec_client cluster/agent/exec_sessions/sessions",
    "api/services/identity/test_oidc.py": "api/routes/oidc api/services/identity/provider_users",
    "api/services/experiments/test_slot_use.py": "api/services/experiments/metric_totals",
    "api/services/experiments/test_trial_facts.py": "db/repositories/trial_records db/repositories/trial_slots",
    "api/test_experiment_reports.py": ("api/services/experiments/analysis db/repositories/experiment_analyses"),
    "api/services/bundles/test_bundles.py": "api/routes/bundles api/services/bundles/folders db/repositories/bundles",
    "api/services/history/test_heatmap.py": "db/repositories/rank_series",
    "api/services/checkpoints/test_contents.py": "api/routes/heavy",
    "api/services/history/test_heavy_reads.py": "api/services/history/history_process",
    "api/services/ingest/test_isolation.py": "api/services/ingest/screening db/repositories/ingest",
    "api/services/ingest/test_progress.py": "db/repositories/progress",
    "api/services/ingest/test_rank_events.py": "api/services/ingest/bad_losses api/services/lifecycle/checkpoint_lifecycle",
    "api/services/ingest/test_uploads.py": "api/routes/agents api/services/ingest/selection api/services/ingest/writer",
    "api/services/lifecycle/test_rank_lifecycle.py": "cluster/states",
    "api/services/nodes/test_presence.py": "api/services/scheduling/node_writer api/services/scheduling/assignment_watch",
    "api/services/storage/test_rollups.py": "db/repositories/deletes db/repositories/rollups db/repositories/step_records",
    "api/test_artifacts.py": ("api/services/artifacts/stored_artifacts api/services/scheduling/profiles db/repositories/artifacts"),
    "api/services/history/test_media.py": "db/repositories/media",
    "api/services/jobs/test_charts.py": "api/routes/charts api/schemas/charts db/repositories/charts",
    "api/test_media.py": "api/schemas/media api/services/artifacts/media_offers api/services/history/media_event_files",
    "api/test_checkpoints.py": "api/services/checkpoints/checkpoints api/services/jobs/setting_back db/repositories/checkpoints",
    "api/test_dashboard.py": "api/core/context",
    "api/test_errors.py": "api/field_errors api/problems",
    "api/test_events.py": "api/core/paging api/services/lifecycle/events db/repositories/events",
    "api/test_experiments.py": (
        "api/services/experiments/earlier_jobs api/services/experiments/experiments "
        "api/services/experiments/trial_jobs db/repositories/experiments"
    ),
    "api/test_experiments_again.py": "api/services/experiments/trial_rows",
    "api/test_exposition.py": "api/core/vitals",
    "api/test_history.py": (
        "api/services/history/comparison api/services/history/culprits api/services/history/goodput api/services/history/samples "
        "api/services/history/steps"
    ),
    "api/test_identity.py": ("api/routes/auth api/core/identity api/core/origin api/deps db/repositories/identity"),
    "api/test_jobs.py": (
        "api/schemas/jobs api/services/jobs/idempotency api/services/jobs/submission api/services/lifecycle/job_lifecycle "
        "db/repositories/jobs"
    ),
    "api/test_logs.py": "api/services/history/log_pages db/repositories/logs",
    "api/test_metrics.py": "api/services/history/curves db/repositories/metrics",
    "api/test_nodes.py": (
        "api/services/lifecycle/node_lifecycle api/services/nodes/cluster api/services/nodes/nodes"
        " db/repositories/nodes db/repositories/slots"
    ),
    "api/test_notifications.py": (
        "api/schemas/notifications api/services/notifications/channels api/services/notifications/rules db/repositories/notifications"
    ),
    "api/services/notifications/test_facts.py": "api/services/notifications/job_messages",
    "api/services/notifications/test_deliveries.py": "api/loops/deliveries",
    "api/services/notifications/test_looks.py": "api/loops/notifications",
    "api/test_plan.py": (
        "api/services/planning/plan api/services/planning/plan_machines api/services/planning/plan_memory api/services/planning/plan_network"
    ),
    "api/test_plan_auto.py": "api/services/planning/plan_auto training/planning/auto",
    "api/test_storage.py": "api/core/disk api/services/storage/storage db/repositories/storage",
    "api/websocket/test_streams.py": "api/websocket/sources",
    "cli/commands/test_code.py": "cli/code_bundle cli/job_facts",
    "cli/commands/test_files.py": "cli/job_files",
    "cli/commands/test_jobs.py": "cli/commands/submit",
    "cli/local/test_stack.py": "cli/commands/stack cli/live cli/local/layout cli/local/programs",
    "cli/test_attached.py": "cli/client",
    "paceline/bundles/test_listing.py": "paceline/bundles/ignoring",
    "paceline/test_client.py": "cli/curves",
    "cli/test_main.py": "cli/app cli/errors cli/session",
    "cluster/agent/curves/test_reader.py": "cluster/agent/curves/event_files cluster/agent/curves/trainer_state",
    "cluster/agent/ranks/test_rank_table.py": "cluster/agent/ranks/ranks",
    "cluster/agent/test_account.py": "cluster/agent/curves/main",
    "cluster/agent/test_main.py": "cluster/agent/actions cluster/agent/client cluster/agent/loop cluster/agent/serving",
    "cluster/agent/test_served_stores.py": "cluster/agent/spawner/store_processes",
    "cluster/agent/spawner/test_loop.py": (
        "cluster/agent/spawner/__main__ cluster/agent/spawner/live_rank cluster/agent/spawner/reaped_ranks cluster/agent/spawner_link cluster/agent/supervisor"
    ),
    "cluster/agent/upload/test_spool.py": "cluster/agent/upload/parcel",
    "cluster/experiments/test_cost_predictor.py": "cluster/experiments/analysis/predictor",
    "cluster/experiments/test_grid.py": "cluster/experiments/cells cluster/experiments/spec cluster/experiments/values",
    "cluster/experiments/analysis/test_differences.py": (
        "cluster/experiments/analysis/comparisons cluster/experiments/analysis/difference_words"
    ),
    "cluster/experiments/analysis/test_configurations.py": "cluster/experiments/analysis/figures",
    "cluster/experiments/analysis/test_fits.py": "cluster/experiments/analysis/least_squares",
    "cluster/policy/test_decide.py": "cluster/policy/decisions cluster/policy/recovery cluster/policy/views",
    "cluster/simulation/test_readings.py": "cluster/simulation/machines",
    "cluster/simulation/test_cluster.py": (
        "cluster/simulation/agent cluster/simulation/gang cluster/simulation/job_model cluster/simulation/ranks"
    ),
    "cluster/policy/test_placement.py": "cluster/policy/reasons cluster/policy/room",
    "cli/test_questions.py": "cli/commands/sessions",
    "contracts/test_wire.py": "cluster/protocol monitoring/points training/link",
    "e2e/test_mock.py": "api/mock/director api/mock/mode cluster/simulation/main",
    "db/test_backup.py": "db/copies",
    "db/test_migrate.py": (
        "db/migrations/control/control_0001_first_schema db/migrations/control/control_0017_experiments "
        "db/migrations/control/control_0020_order_among_jobs db/migrations/control/control_0024_notifications db/migrations/control/control_0026_models "
        "db/migrations/control/control_0029_pools_and_launches "
        "db/migrations/metrics/metrics_0001_first_schema"
    ),
    "distributed/test_abort.py": "distributed/joining distributed/process_group distributed/world_group",
    "distributed/test_axis_process_group.py": "distributed/axis_groups",
    "distributed/test_probes.py": "distributed/calls",
    "distributed/test_store_server.py": "distributed/store_wire",
    "e2e/test_run.py": "cli/local/private",
    "api/services/scheduling/test_earlier_generations.py": "db/repositories/earlier_generations",
    "integration/test_at_once.py": "api/services/scheduling/assignments api/services/scheduling/job_snapshots",
    "integration/test_close_up.py": "api/services/lifecycle/gang_lifecycle api/services/lifecycle/gang_rows",
    "api/services/history/test_card_curves.py": "api/services/history/card_usage",
    "api/services/jobs/test_listing.py": "db/models/jobs api/routes/job_filters",
    "api/services/storage/test_readings.py": "db/repositories/readings",
    "integration/test_hangs.py": "api/loops/quiet_scripts",
    "integration/test_incidents.py": "api/services/lifecycle/incidents api/loops/incident_causes",
    "integration/test_jobs.py": "api/loops/placing",
    "integration/test_nodes.py": "api/loops/nodes api/services/jobs/notices",
    "integration/test_quiet.py": "api/services/scheduling/stacks",
    "parallelism/pipelines/test_deferred_weight_grads.py": "parallelism/pipelines/stage",
    "parallelism/pipelines/test_order.py": "parallelism/pipelines/schedules",
    "parallelism/planning/test_auto.py": "parallelism/planning/auto_words",
    "parallelism/planning/test_memory.py": "parallelism/model_shape parallelism/planning/gathered parallelism/planning/gradient_copies",
    "parallelism/communication/test_trial.py": "parallelism/communication/choices parallelism/communication/words",
    "parallelism/planning/test_step_time.py": "parallelism/planning/machines",
    "parallelism/planning/test_memory_measured.py": "training/models/decoder training/models/resnet/shape",
    "parallelism/tensor_context/test_parity_hf.py": "parallelism/tensor_context/plain_parameters",
    "parallelism/tensor_context/test_tensor_parallel.py": "parallelism/tensor_context/shard_model training/models/gpt/shard",
    "parallelism/data_parallel/test_replicated.py": "parallelism/apply parallelism/wrapped",
    "parallelism/data_parallel/test_reproducible.py": "parallelism/data_parallel/flat_buffer parallelism/running_statistics",
    "parallelism/fully_sharded/test_parity_fsdp.py": "parallelism/fully_sharded/reproducible_shards parallelism/fully_sharded/sharding",
    "distributed/compression/test_top_k.py": "distributed/compression/compressible distributed/compression/casts distributed/reduction",
    "integration/test_experiments.py": "api/services/experiments/extension",
    "integration/test_unreadable.py": "api/services/specs/stored_specs",
    "distributed/test_reduction_groups.py": "distributed/collectives/reductions",
    "distributed/collectives/test_ring.py": "distributed/collectives/sockets distributed/collectives/arrays distributed/collectives/queues",
    "training/test_compressed_jobs.py": "training/saving/unsent",
    "test_paceline.py": "paceline/__init__",
    "training/data/test_tokens.py": "training/data/token_set",
    "training/models/test_catalog.py": "training/models/gpt/model training/models/resnet/config training/models/resnet/imagenet training/models/resnet/model",
    "training/models/hf/test_model.py": "training/builtin",
    "training/optim/test_loss_guard.py": "training/optim/bad_loss",
    "training/optim/test_optimizers.py": "training/schema/optimizer",
    "training/own_loop/test_trainer.py": "training/own_loop/alike training/own_loop/batches training/own_loop/meter training/own_loop/options",
    "training/reporting/test_agent_link.py": "training/rank_folder",
    "paceline/test_logged_media.py": "training/own_loop/recorders",
    "training/reporting/test_profiling.py": "monitoring/artifacts",
    "training/saving/test_checkpoint.py": "training/saving/manifest",
    "training/saving/test_object_storage.py": "paceline/objects/node_copies training/saving/object_manifests training/saving/storage",
    "training/saving/test_saves.py": "training/saving/checkpoint_directory training/saving/uncommitted",
    "training/saving/test_weights.py": "training/saving/export",
    "training/spec/test_job.py": "training/schema/training training/spec/conflicts training/spec/consistency training/spec/derived",
    "training/spec/test_job_bounds.py": "training/schema/data training/schema/parts",
    "training/spec/test_refusals.py": "training/spec/shape",
    "training/steps/test_step_sync.py": "distributed/solo_group training/steps/step training/steps/stepping",
    "training/test_close_up.py": "training/rank_process",
    "training/test_cross_plan.py": "training/build",
    "training/test_entrypoint.py": "training/task",
    "training/test_fall_back.py": "training/restoring training/state_handoff",
    "training/test_pipeline_jobs.py": "training/steps/pipelined",
    "training/test_trainer.py": "training/reporting/telemetry training/state",
    "training/test_watchdog_ranks.py": "training/watchdog/stack_location",
}


MODULES = {str(path.relative_to(ROOT)) for room in ROOMS for path in (ROOT / room).rglob("*.py")}
OWN_TESTS = sorted(str(path.relative_to(TESTS)) for room in ROOMS for path in (TESTS / room).rglob("test_*.py"))


def module_of(test: str) -> str | None:
    """Return the module that a test module is of: `test_decide_close_up.py` is of `decide_close_up.py` if it exists, else of `decide.py`.

    A resource of the REST API has its tests beside those of `api` itself.
    """
    path = Path(test)
    words = path.stem.split("_")[1:]
    folders = [path.parent, Path("api/routes")] if path.parent == Path("api") else [path.parent]
    names = [str(folder / ("_".join(words[:end]) + ".py")) for end in range(len(words), 0, -1) for folder in folders]
    return next((name for name in names if name in MODULES), None)


def needs_tests(module: str) -> bool:
    source = (ROOT / module).read_text()
    public = (ast.FunctionDef, ast.AsyncFunctionDef)
    return source.count("\n") >= MIN_LINES and any(isinstance(node, public) and node.name[0] != "_" for node in ast.walk(ast.parse(source)))


TESTED = {module_of(test) for test in OWN_TESTS}
COVERED = [f"{module}.py" for modules in COVERS.values() for module in modules.split()]


@pytest.mark.parametrize("test", [test for test in OWN_TESTS if not any(fnmatchcase(test, each) for each in NAMED_AFTER_WHAT_THEY_SHOW)])
def test_a_test_is_named_after_a_module(test: str) -> None:
    assert module_of(test), f"tests/{test} is named after no module: name it after the one that it tests"


def test_every_larger_module_has_tests_of_its_own_or_is_said_to_be_covered() -> None:
    unsaid = [module for module in sorted(MODULES - TESTED - {*COVERED}) if needs_tests(module)]
    assert unsaid == [], "write tests/<path>/test_<module>.py, or say in COVERS which tests show what it does"


def test_the_table_has_modules_and_tests_that_exist() -> None:
    assert [module for module in COVERED if module not in MODULES or module in TESTED or COVERED.count(module) > 1] == []
    assert [test for test in COVERS if not (TESTS / test).is_file()] == []
