"""What `make test` leaves to `make test-all`: marked `release` here, in one place.

What runs always: every axis by itself on two ranks, one product of two axes, one model of transformers, every way in which a run falls back,
grows and is compiled, and one end-to-end story of everything that a user can do and of each kind of fault. What is left out shows the same of
further sizes, families, precisions, combinations and moments, and takes more than half of the time.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable

import pytest

#: As in `make test-all`, and where the parity table is written: what is shortened in every other run has its full length.
AT_LENGTH = bool(os.environ.get("PACELINE_TEST_AT_LENGTH") or os.environ.get("PACELINE_WRITE_PARITY"))
HERE = "tests/"
#: Patterns of what stands behind `tests/` in a test's id; `[]]` is a bracket.
PATTERNS = (
    # families of models, and shares that are uneven over four ranks
    "parallelism/tensor_context/test_parity_hf.py::test_models_of_transformers_with_uneven_batches[[]g*",
    "parallelism/tensor_context/test_parity_hf.py::test_models_of_transformers_with_uneven_batches[[]phi3]",
    "parallelism/tensor_context/test_parity_hf.py::test_models_of_transformers_with_uneven_batches[[]qwen*",
    "parallelism/tensor_context/test_parity_hf.py::test_models_of_transformers_with_uneven_shares*",
    "parallelism/tensor_context/test_parity_hf.py::test_activations_of_transformers_that_are_computed_again*",
    # stories of faults at further moments and on further stacks; chaos, outages and machines that fall silent
    "e2e/test_close_up.py::test_a_killed_rank_costs_its_survivors_nothing[[]3-*",
    "e2e/test_coordinator_death.py::test_a_rank_that_dies_while_the_coordinator_is_upgraded*",
    "e2e/test_coordinator_death.py::test_a_survivors_agent_killed_within_a_recovery*",
    "e2e/test_coordinator_death.py::test_a_rank_that_dies_while_the_agent_of_another*",
    "e2e/test_cut.py::test_a_lost_part_of_the_matrices*",
    "e2e/test_cut_links.py::test_a_machine_that_is_gone_without_a_word",
    "e2e/test_durability.py::test_a_coordinator_killed_again_and_again*",
    "e2e/test_fall_back.py::test_a_spare_takes_the_place_of_a_lost_part",
    "e2e/test_fall_back.py::test_a_lost_shard_group_goes_and_comes_back",
    "e2e/test_grow.py::test_a_joiner_that_is_killed_while_it_joins*",
    "e2e/test_grow.py::test_a_rank_that_dies_while_a_change_is_pending",
    "e2e/test_incidents.py::test_a_restart_blames_the_rank_that_was_killed*",
    "e2e/test_outage.py::test_what_jobs_produce_without_a_coordinator*",
    "e2e/test_run.py::test_ctrl_c_and_sigterm_end_the_training_within_seconds[[]15]",
    "e2e/test_script_hangs.py::test_a_script_that_sleeps_and_goes_on*",
    "e2e/test_silent_faults.py::test_ranks_in_different_collectives*",
    "e2e/test_silent_faults.py::test_a_job_of_one_rank_waits_while_it_is_stopped",
    # programs and packages of further kinds
    "e2e/test_programs.py::*[[]FSDP2 with distributed checkpoints]",
    "e2e/test_programs.py::*[[]a project with a package called training]",
    "e2e/test_sharded.py::*[[]plan[12]-*",
    "e2e/test_users_names.py::test_a_job_imports_the_users_packages[[]1-True]",
    "e2e/test_users_names.py::test_a_job_imports_the_users_packages[[]2-False]",
    "e2e/test_users_names.py::test_so_does_the_same_file_without_a_coordinator[[]torchrun]",
    "e2e/test_wheel.py::test_the_coordinator_alone_needs_no_torch",
    # four and eight ranks
    "parallelism/tensor_context/test_parity.py::test_axes_on_four_ranks*",
    "parallelism/tensor_context/test_parity.py::test_products_on_eight_ranks*",
    "parallelism/tensor_context/test_parity.py::test_one_axis_with_dropout_and_uneven_batches[[]False*",
    "parallelism/tensor_context/test_parity.py::test_replicas_and_shards_with_uneven_shares[[]axes0-ddp]",
    "parallelism/tensor_context/test_parity.py::test_checkpointed_shards_that_keep_whole_parameters",
    "parallelism/tensor_context/test_parity.py::test_activations_that_are_computed_again[[]axes0-full]",
    "parallelism/tensor_context/test_parity.py::test_frozen_parameters[[]4-*",
    "parallelism/tensor_context/test_parity.py::test_bf16[[]axes0]",
    "parallelism/pipelines/test_pipelined_products.py::test_products_on_eight_ranks*",
    "parallelism/pipelines/test_pipelined_products.py::test_without_dropout_and_with_embeddings_of_their_own*",
    # precisions beside each other
    "parallelism/test_parity_fp16.py::*context and tensor]",
    "parallelism/test_parity_fp16.py::*tensor of shards]",
    "parallelism/test_parity_fp16.py::*tensor in stages]",
    "parallelism/planning/test_memory_measured.py::*-bf16*",
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
    "training/test_tensor_context_jobs.py::test_a_paused_job_goes_on_with_other_ranks[[]plan[12]]",
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
