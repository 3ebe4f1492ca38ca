"""Products of plans of which `make test` runs one of each kind, and `make test-all` all: the rest is marked `release` here, in one place.

What runs always: every axis by itself on two ranks, one product of two axes, one model of transformers, every way in which a run falls back,
grows and is compiled. What is left out shows the same of further sizes, families, precisions and combinations, and takes half of the time.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

import pytest

HERE = "tests/"
#: Patterns of what stands behind `tests/` in a test's id; `[]]` is a bracket.
PATTERNS = (
    # families of models, and shares that are uneven over four ranks
    "parallelism/cut/test_parity_hf.py::test_models_of_transformers_with_uneven_batches[[]g*",
    "parallelism/cut/test_parity_hf.py::test_models_of_transformers_with_uneven_batches[[]phi3]",
    "parallelism/cut/test_parity_hf.py::test_models_of_transformers_with_uneven_batches[[]qwen*",
    "parallelism/cut/test_parity_hf.py::test_models_of_transformers_with_uneven_shares*",
    "parallelism/cut/test_parity_hf.py::test_activations_of_transformers_that_are_computed_again*",
    # four and eight ranks
    "parallelism/cut/test_parity.py::test_axes_on_four_ranks*",
    "parallelism/cut/test_parity.py::test_products_on_eight_ranks*",
    "parallelism/cut/test_parity.py::test_one_axis_with_dropout_and_uneven_batches[[]False*",
    "parallelism/cut/test_parity.py::test_replicas_and_shards_with_uneven_shares[[]axes0-ddp]",
    "parallelism/cut/test_parity.py::test_checkpointed_shards_that_keep_whole_parameters",
    "parallelism/cut/test_parity.py::test_activations_that_are_computed_again[[]axes0-full]",
    "parallelism/cut/test_parity.py::test_frozen_parameters[[]4-*",
    "parallelism/cut/test_parity.py::test_bf16[[]axes0]",
    "parallelism/pipelines/test_products.py::test_products_on_eight_ranks*",
    "parallelism/pipelines/test_products.py::test_without_dropout_and_with_embeddings_of_their_own*",
    # precisions beside each other
    "parallelism/test_parity_fp16.py::*context and tensor]",
    "parallelism/test_parity_fp16.py::*tensor of shards]",
    "parallelism/test_parity_fp16.py::*tensor in stages]",
    "parallelism/planning/test_estimate_measured.py::*-bf16*",
    # compiled: each takes up to a minute of the compiler
    "parallelism/test_compiled.py::test_half_precision_is_compiled_too*",
    "parallelism/test_compiled.py::test_batch_norm_counts_once",
    "parallelism/test_compiled.py::test_compiled_training_is_equal_to_rounding[[]*,*",
    "parallelism/test_compiled.py::test_compiled_training_is_equal_to_rounding[[]pipeline of shards]",
    "training/test_compiled_jobs.py::test_one_to_three_ranks_give_the_same_bits",
    "training/test_compiled_jobs.py::test_checkpoints_do_not_know_who_compiled[[]fsdp*",
    # whole jobs under further plans
    "training/test_fall_back_axes.py::*tensor x shard*",
    "training/test_fall_back_axes.py::*pipeline x*",
    "training/test_fall_back_axes.py::test_a_new_process_takes_the_place_and_the_run_is_the_undisturbed_one[[]tensor-2]",
    "training/test_cut_jobs.py::test_a_paused_job_goes_on_with_other_ranks[[]plan[12]]",
    "training/test_cross_plan.py::test_any_plan_loads_it_to_the_last_bit[[]*-targets[1245678]]",
    "training/test_pipeline_jobs.py::test_eight_ranks*",
    "training/test_pipeline_jobs.py::test_every_schedule_trains_as_one_process[[]*-4]",
    "training/test_pipeline_jobs.py::test_pipelines_beside_each_other[[]zero*",
    "training/test_reproducible.py::test_any_number_of_replicas_in_parts_do[[]blocks kept whole]",
    "training/test_reproducible.py::test_any_number_of_replicas_in_parts_do[[]split backward]",
)


def mark(items: Iterable[pytest.Item]) -> None:
    for item in items:
        name = item.nodeid.removeprefix(HERE)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in PATTERNS):
            item.add_marker(pytest.mark.release)
