"""Marks the tests that `make test` leaves to `make test-all` with `release`: whole modules here, single tests by `release_patterns.py`.

What runs always: every axis by itself on two ranks, one product of two axes, one model of transformers, every way in which a run falls back,
grows and is compiled, and an end-to-end story of everything that a user can do every day and of each kind of fault. What is left out shows the
same of further sizes, families, precisions, combinations and moments, and takes most of the time.

What asks for the real coordinator runs on SQLite and on PostgreSQL. Of `integration/`, whose tests are of decisions and orders of events, `make test`
runs on PostgreSQL only the life of a job and the modules in which the database itself can make a difference: transactions that meet, rows by the
thousand, what cannot be read. Of `api/` it runs on SQLite alone the modules whose statements other modules send to PostgreSQL.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Collection, Sequence

import pytest

from tests.release_patterns import PATTERNS

#: As in `make test-all`, and where the parity table is written: what is shortened in every other run has its full length.
AT_LENGTH = bool(os.environ.get("PACELINE_TEST_AT_LENGTH") or os.environ.get("PACELINE_WRITE_PARITY"))
HERE = "tests/"
#: Of `integration/`, on PostgreSQL in `make test` too: the life of a job, and what meets in transactions.
WHERE_DATABASES_DIFFER = (
    "integration/test_at_once.py",
    "integration/test_jobs.py",
    "integration/test_many_jobs.py",
    "integration/test_unreadable.py",
)
#: Of `api/`, what has no statement to a database that a module beside it does not have: who may do what, forms of answers, streams, decisions.
#: On PostgreSQL in `make test-all`.
WHERE_DATABASES_DO_NOT_DIFFER = (
    "api/core/",
    "api/services/lifecycle/test_isolation.py",
    "api/loops/test_analyses.py",
    "api/loops/test_autoscaler.py",
    "api/loops/test_autoscaler_nodes.py",
    "api/loops/test_launches.py",
    "api/loops/test_supervisor.py",
    "api/middleware/",
    "api/services/artifacts/test_downloads.py",
    "api/services/checkpoints/",
    "api/services/experiments/test_predictor.py",
    "api/services/experiments/test_trial_states.py",
    "api/services/bundles/test_bundles.py",
    "api/services/identity/test_first_credentials.py",
    "api/services/identity/test_first_start.py",
    "api/services/identity/test_oidc.py",
    "api/services/jobs/test_edits.py",
    "api/services/jobs/test_ownership.py",
    "api/services/jobs/test_packages.py",
    "api/services/nodes/test_launches.py",
    "api/services/nodes/test_notices.py",
    "api/services/nodes/test_scaling.py",
    "api/services/nodes/test_shared_folder.py",
    "api/services/notifications/",
    "api/services/scheduling/test_observations.py",
    "api/test_checkpoints.py",
    "api/test_errors.py",
    "api/test_experiment_reports.py",
    "api/test_experiments.py",
    "api/test_experiments_again.py",
    "api/test_exposition.py",
    "api/test_history_scripts.py",
    "api/test_identity.py",
    "api/test_media.py",
    "api/test_notifications.py",
    "api/test_plan.py",
    "api/test_plan_auto.py",
    "api/websocket/",
)
#: Modules of one long story each, whose parts other modules of `make test` show: each takes half a minute to one and a half.
WHOLE_MODULES = (
    "e2e/test_auto.py",
    "e2e/test_charts.py",
    "e2e/test_curl.py",
    "e2e/test_sharded_matrices.py",
    "e2e/test_cut_links.py",
    "e2e/test_durability.py",
    "e2e/test_experiments.py",
    "e2e/test_first_hour.py",
    "e2e/test_full_disk.py",
    "e2e/test_gang_shapes.py",
    "e2e/test_gradients.py",
    "e2e/test_incidents.py",
    "e2e/test_laptop_to_cluster.py",
    "e2e/test_latency.py",
    "e2e/test_log_page.py",
    "e2e/test_one_machine.py",
    "e2e/test_pipeline.py",
    "e2e/test_saves.py",
    "e2e/test_sharded.py",
    "e2e/test_stored_data.py",
)


def mark(items: Sequence[pytest.Item]) -> None:
    names = [item.nodeid.removeprefix(HERE) for item in items]
    chosen = frozenset(names)
    for name, item in zip(names, items, strict=True):
        if name.startswith(WHOLE_MODULES):
            item.add_marker(pytest.mark.slow("one of the parts of a long story, on a whole stack"))
        if name.startswith(WHOLE_MODULES) or is_second_run(name, chosen) or any(fnmatch.fnmatchcase(name, pattern) for pattern in PATTERNS):
            item.add_marker(pytest.mark.release)


def is_second_run(name: str, chosen: Collection[str]) -> bool:
    """Return whether this is a run on PostgreSQL that `make test` leaves out: of a test of decisions, whose run on SQLite is among those `chosen`.

    A test that there is on PostgreSQL alone is never left out: no other run shows the same.
    """
    test, _, parameters = name.partition("[")
    if "postgresql" not in parameters or f"{test}[{parameters.replace('postgresql', 'sqlite')}" not in chosen:
        return False
    if name.startswith("integration/"):
        return not name.startswith(WHERE_DATABASES_DIFFER)
    return name.startswith(WHERE_DATABASES_DO_NOT_DIFFER)
