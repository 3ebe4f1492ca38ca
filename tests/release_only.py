"""What `make test` leaves to `make test-all`: marked `release` here, in one place.

What runs always: every axis by itself on two ranks, one product of two axes, one model of transformers, every way in which a run falls back,
grows and is compiled, and an end-to-end story of everything that a user can do every day and of each kind of fault. What is left out shows the
same of further sizes, families, precisions, combinations and moments, and takes most of the time.

What asks for the real coordinator runs on SQLite and on PostgreSQL. Of `integration/`, whose tests are of decisions and orders of events, `make test`
runs on PostgreSQL only the modules in which the database itself can make a difference: transactions that meet, rows by the thousand, stored times.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

#: As in `make test-all`, and where the parity table is written: what is shortened in every other run has its full length.
AT_LENGTH = bool(os.environ.get("PACELINE_TEST_AT_LENGTH") or os.environ.get("PACELINE_WRITE_PARITY"))
HERE = "tests/"
#: Of `integration/`, on PostgreSQL in `make test` too.
WHERE_DATABASES_DIFFER = ("test_any_order", "test_at_once", "test_incidents", "test_jobs", "test_many_jobs", "test_unreadable")
#: Of `api/`, what has no statement of its own to a database: who may do what, forms of answers, streams. On PostgreSQL in `make test-all`.
WHERE_DATABASES_DO_NOT_DIFFER = (
    "api/core/",
    "api/middleware/",
    "api/services/identity/test_oidc.py",
    "api/test_checkpoints.py",
    "api/test_errors.py",
    "api/test_experiments.py",
    "api/test_history_scripts.py",
    "api/test_identity.py",
    "api/test_media.py",
    "api/test_plan.py",
    "api/test_plan_auto.py",
    "api/websocket/",
)
#: Modules of one long story each, whose parts other modules of `make test` show: each takes half a minute to one and a half.
WHOLE_MODULES = (
    "e2e/test_auto.py",
    "e2e/test_curl.py",
    "e2e/test_cut.py",
    "e2e/test_cut_links.py",
    "e2e/test_durability.py",
    "e2e/test_experiments.py",
    "e2e/test_first_hour.py",
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
#: Patterns of what stands behind `tests/` in a test's id; `[]]` is a bracket.
PATTERNS = (
    # families of models, and shares that are uneven over four ranks
    "parallelism/tensor_context/test_parity_hf.py::test_models_of_transformers_with_uneven_batches[[]g*",
    "parallelism/tensor_context/test_parity_hf.py::test_models_of_transformers_with_uneven_batches[[]phi3]",
    "parallelism/tensor_context/test_parity_hf.py::test_models_of_transformers_with_uneven_batches[[]qwen*",
    "parallelism/tensor_context/test_parity_hf.py::test_models_of_transformers_with_uneven_shares*",
    "parallelism/tensor_context/test_parity_hf.py::test_activations_of_transformers_that_are_computed_again*",
    "parallelism/pipelines/test_parity_hf_stages.py::test_models_of_transformers_in_stages[[][lmq]*",
    "parallelism/pipelines/test_parity_hf_stages.py::test_stages_of_transformers_beside_another_axis*",
    "parallelism/pipelines/test_parity_hf_stages.py::test_stages_of_transformers_under_another_schedule*",
    "parallelism/pipelines/test_parity_hf_stages.py::test_recomputed_activations_of_stages_of_transformers",
    # dialogs and menus of the dashboard, and what is done by keyboard, on a simulated cluster: what is open every day is always looked at
    "e2e/simulated_cluster/test_accessibility.py::test_nothing_is_found_on_any_surface[[]opened-*]",
    "e2e/simulated_cluster/test_accessibility.py::test_nothing_is_found_on_any_surface[[]pages-*]",
    "e2e/simulated_cluster/test_keyboard.py::test_everything_can_be_done_by_keyboard_alone",
    # notices, on real agents: one of them is always there
    "cluster/agent/test_notices.py::test_sigusr1_drains*",
    "cluster/agent/test_notices.py::test_what_has_not_gone*",
    "cluster/agent/test_notices.py::test_a_coordinator_that_knows*",
    # a real Slurm
    "e2e/test_slurm.py::test_a_cancelled_node*",
    "e2e/test_slurm.py::test_a_script_whose*",
    "e2e/test_slurm.py::test_a_time_limit*",
    "e2e/test_slurm.py::test_a_job_that_preempts*",
    # stories of faults at further moments and on further stacks; chaos, outages and machines that fall silent
    "e2e/test_close_up.py::test_a_killed_rank_costs_its_survivors_nothing[[]3-*",
    "e2e/test_coordinator_death.py::test_a_rank_that_dies_while_the_coordinator_is_upgraded*",
    "e2e/test_coordinator_death.py::test_a_survivors_agent_killed_within_a_recovery*",
    "e2e/test_coordinator_death.py::test_a_rank_that_dies_while_the_agent_of_another*",
    "e2e/test_fall_back.py::test_two_of_three_go_on_with_larger_parts",
    "e2e/test_grow.py::test_a_dead_rank_is_replaced_in_its_own_slot",
    "e2e/test_gang_shapes.py::test_a_share_of_several_ranks_is_lost_and_the_bits_stay",
    "training/test_fall_back_axes.py::test_a_replica_carries_on_without_a_checkpoint[[]tensor-*",
    "parallelism/pipelines/test_pipelined.py::test_any_number_of_micro_batches*",
    "parallelism/pipelines/test_pipelined.py::test_bf16_is_computed_alike*",
    "e2e/test_scripts.py::test_the_rank_at_fault_is_named_with_its_line[[]*-variables[789]]",
    "e2e/test_tls.py::test_a_job_trains*",
    "e2e/test_tls.py::test_the_*",
    "e2e/test_fall_back.py::test_a_spare_takes_the_place_of_a_lost_part",
    "e2e/test_fall_back.py::test_a_lost_shard_group_goes_and_comes_back",
    "e2e/test_grow.py::test_a_joiner_that_is_killed_while_it_joins*",
    "e2e/test_grow.py::test_a_rank_that_dies_while_a_change_is_pending",
    "e2e/test_outage.py::test_what_jobs_produce_without_a_coordinator*",
    "e2e/test_run.py::test_ctrl_c_and_sigterm_end_the_training_within_seconds[[]15]",
    "e2e/test_script_hangs.py::test_a_script_that_sleeps_and_goes_on*",
    "e2e/test_silent_faults.py::test_ranks_in_different_collectives*",
    "e2e/test_silent_faults.py::test_a_job_of_one_rank_waits_while_it_is_stopped",
    # on a busy machine a simulated gang now and then loses the record of the step at which it is resized: to be mended
    "cluster/simulation/test_cluster.py::test_a_job_is_resized_at_a_step_boundary_both_ways",
    # long stories whose parts the others of their modules show
    "cli/local/test_stack.py::test_a_demo_at_a_terminal_stays_up*",
    "cli/local/test_stack.py::test_a_running_stack_is_not_opened*",
    "cli/local/test_stack.py::test_agents_follow_the_coordinator*",
    "cli/local/test_stack.py::test_an_agent_whose_node_was_removed*",
    "cli/local/test_stack.py::test_demo_does_not_wait*",
    "cli/local/test_stack.py::test_interrupted_demo_stops_everything_before_it_ends[[]1*",
    "cli/local/test_stack.py::test_key_of_a_forgotten_database*",
    "cli/local/test_stack.py::test_local_agents_of_an_open_stack*",
    "cli/local/test_stack.py::test_up_with_a_host_is_open_there*",
    "cli/local/test_stack.py::test_behind_tls*",
    "cli/local/test_stack.py::test_killed_demo_leaves_nothing",
    "cli/local/test_stack.py::test_stack_is_reached_from_other_folders*",
    "e2e/test_artifacts.py::test_files_arrive_whole_and_once*",
    "e2e/test_artifacts.py::test_what_a_rank_has_left*",
    "e2e/test_charts.py::*[[]light]",
    "e2e/test_charts.py::test_one_step_in_250_000*",
    "e2e/test_coordinator_death.py::test_a_rank_that_dies_while_the_coordinator_is_away*",
    "e2e/test_exec_page.py::test_without_a_network*",
    "e2e/test_fall_back.py::test_and_grow_back_without_losing_a_step",
    "e2e/test_gang_shapes.py::test_an_example_of_two_nodes_runs_on_one",
    "e2e/test_grow.py::test_a_spare_takes_the_place_in_one_change",
    "e2e/test_own_loop.py::test_a_killed_rank_costs_what_was_not_saved",
    "e2e/test_pages.py::test_an_incident_is_told_on_the_curves*",
    "e2e/test_python_client.py::test_neither_points_nor_lines_are_lost*",
    "e2e/test_python_client.py::test_a_job_from_submission_to_a_restore_in_place",
    "e2e/test_run.py::test_kill_9_leaves_nothing_either",
    "e2e/test_run.py::test_two_ranks_of_a_script_run_to_their_end",
    "e2e/test_script_hangs.py::test_a_rank_that_reads_what_never_comes*",
    "e2e/test_script_hangs.py::test_a_loop_is_told_with_the_rank_that_differs*",
    "e2e/test_script_lifecycle.py::test_an_elastic_script_follows_its_nodes",
    "e2e/test_script_lifecycle.py::test_a_script_saves_at_its_time_limit",
    "e2e/test_silent_faults.py::test_a_stopped_rank_is_left_behind*",
    "e2e/test_exec_sessions.py::test_nothing_is_left_of_a_command_whatever_is_killed[[]coordinator]",
    "e2e/test_mock.py::test_simulated_nodes_join_any_coordinator*",
    "e2e/test_pages.py::test_the_pages_are_accessible*",
    "e2e/test_run.py::test_ctrl_c_ends_the_clean_up_at_once*",
    "paceline/integrations/test_lightning.py::test_fabric_logs_with_it",
    "paceline/integrations/test_lightning.py::test_in_a_job_a_trainer_that_logs_has_it_by_itself",
    "scripts/test_run_sync_parameter_server.py::test_a_killed_server_goes_on*",
    "scripts/test_production_train.py::test_plainly_with_every_option*",
    "scripts/test_production_train.py::test_what_cannot_be_is_one_line[[]--resume*",
    "training/test_compiled_jobs.py::test_survivors_compile_nothing_again*",
    "training/test_compiled_jobs.py::test_stages_compile_everything_ahead",
    "training/test_tensor_context_jobs.py::test_where_the_time_goes_adds_up[[]plan0]",
    # programs and packages of further kinds
    "e2e/test_programs.py::*[[]Accelerate]",
    "e2e/test_programs.py::*[[]FSDP2 with distributed checkpoints]",
    "e2e/test_programs.py::*[[]a project with a package called training]",
    "e2e/test_scripts.py::test_every_form_of_a_program_joins_its_world[[]shell]",
    "e2e/test_users_names.py::test_a_job_imports_the_users_packages[[]1-True]",
    "e2e/test_users_names.py::test_a_job_imports_the_users_packages[[]2-*",
    "e2e/test_users_names.py::test_so_does_the_same_file_without_a_coordinator[[]torchrun]",
    "e2e/test_wheel.py::test_the_coordinator_alone_needs_no_torch",
    # lines that only collect what is collected anyway
    "test_quick_start.py::test_pytest_takes_the_line*",
    # pages in the other theme: what differs is colours
    "e2e/test_pages.py::*[[]light]",
    # further things that strangers' scripts do, each kind of which is still done
    "hostile/test_scripts.py::test_a_call_that_cannot_be_recorded_raises_in_its_own_line[[]step_[!f2]*",
    "hostile/test_scripts.py::test_a_call_that_cannot_be_recorded_raises_in_its_own_line[[]value_[!t]*",
    "hostile/test_scripts.py::test_a_call_that_cannot_be_recorded_raises_in_its_own_line[[]name_[!r]*",
    "hostile/test_scripts.py::test_nobody_else_notices[[]agent_told_[wa]*",
    "hostile/test_scripts.py::test_nobody_else_notices[[]ends_[!i]*",
    "hostile/test_scripts.py::test_nobody_else_notices[[]ends_in_[tsal]*",
    "hostile/test_scripts.py::test_nobody_else_notices[[]folder_of_*",
    "hostile/test_scripts.py::test_nobody_else_notices[[]folder_very_deep]",
    "hostile/test_scripts.py::test_nobody_else_notices[[]names_in_one_call]",
    "hostile/test_scripts.py::test_nobody_else_notices[[]output_[ei]*",
    "hostile/test_scripts.py::test_nobody_else_notices[[]output_one_long_line]",
    "hostile/test_scripts.py::test_nobody_else_notices[[]spool_[is]*",
    # contests of loops, and launchers of further plans
    "scripts/bench/test_experiment_costs.py::test_every_kind_of_plan_is_trained",
    "scripts/bench/test_parallelism.py::test_every_loop_of_a_contest_runs[[]fsdp]",
    "scripts/bench/test_parallelism.py::test_every_loop_of_a_contest_runs[[]pipeline_*",
    "scripts/test_launch_training.py::test_two_ranks_under_torchrun_train_as_one_process_does[[]ddp]",
    "scripts/test_launch_training.py::test_two_machines_meet_at_the_address_they_are_told[[]2-*",
    "scripts/test_torture.py::test_nothing_unusable_is_ever_the_newest[[]damage]",
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
    # models, schedules and sizes beside each other
    "parallelism/pipelines/test_pipelined.py::test_on_one_rank_a_schedule_changes_nothing[[]1*",
    "parallelism/pipelines/test_pipelined.py::test_on_one_rank_a_schedule_changes_nothing[[]zero*",
    "parallelism/pipelines/test_pipelined.py::test_every_schedule_trains_as_one_process[[]*-4]",
    "parallelism/pipelines/test_pipelined.py::test_other_models[[]frozen]",
    "parallelism/pipelines/test_pipelined.py::test_other_models[[]untied]",
    "parallelism/planning/test_memory_measured.py::test_models_of_transformers_over_ranks[[]strategy[01]-*",
    "parallelism/pipelines/test_pipelined.py::test_pipelines_with_unequal_shares*",
    "parallelism/pipelines/test_pipelined.py::test_pipelines_beside_each_other_add_up[[]zero*",
    "parallelism/planning/test_memory_measured.py::test_activations_computed_again[[]full-*",
    "parallelism/planning/test_memory_measured.py::test_models_of_transformers[[]config[2-6]*",
    "parallelism/planning/test_memory_measured.py::test_one_process[[]model[4-9]*",
    "parallelism/planning/test_memory_measured.py::test_shards_with_gradients_in_the_fixed_tree[[]none*",
    "parallelism/planning/test_memory_measured.py::test_one_process[[]*-fp16]",
    "parallelism/planning/test_memory_measured.py::test_one_process[[]model1[02]-*",
    "parallelism/planning/test_memory_staged.py::test_the_fullest_rank[[]*-bf16]",
    "parallelism/planning/test_memory_staged.py::test_the_fullest_rank[[]* full-*",
    # precisions beside each other
    "parallelism/test_parity_fp16.py::test_a_scale_that_is_too_large_comes_down_on_all_ranks_of_a_cut_model[[]tensor]",
    "parallelism/test_parity_fp16.py::*context and tensor]",
    "parallelism/test_parity_fp16.py::*tensor of shards]",
    "parallelism/test_parity_fp16.py::*tensor in stages]",
    "parallelism/planning/test_memory_measured.py::*-bf16*",
    # compiled: each takes up to a minute of the compiler
    "parallelism/test_compiled.py::test_compiled_training_is_equal_to_rounding[[]fsdp]",
    "parallelism/test_compiled.py::test_compiled_training_is_equal_to_rounding[[]single]",
    "parallelism/test_compiled.py::test_too_many_shapes*",
    "parallelism/test_compiled.py::test_half_precision_is_compiled_too*",
    "parallelism/test_compiled.py::test_batch_norm_counts_once",
    "parallelism/test_compiled.py::test_compiled_training_is_equal_to_rounding[[]*,*",
    "parallelism/test_compiled.py::test_compiled_training_is_equal_to_rounding[[]pipeline of shards]",
    "training/test_compiled_jobs.py::test_one_to_three_ranks_give_the_same_bits",
    "training/test_compiled_jobs.py::test_checkpoints_do_not_know_who_compiled[[]fsdp*",
    # whole jobs under further plans
    "training/models/hf/test_shard.py::test_a_job_cut_over_two_ranks_goes_on_in_one",
    "training/own_loop/test_batch_size.py::test_every_rank_takes_what*",
    "training/test_fall_back.py::test_who_has_another_place_afterwards*",
    "parallelism/tensor_context/test_parity_hf.py::test_models_of_transformers_in_bf16*",
    "training/test_cross_plan.py::test_the_curve_goes_on_under_another_plan[[]context 2*",
    "training/test_cross_plan.py::test_the_curve_goes_on_under_another_plan[[]fsdp on 4*",
    "training/test_cross_plan.py::test_the_curve_goes_on_under_another_plan[[]single-tensor*",
    "training/test_cross_plan.py::test_the_curve_goes_on_under_another_plan[[]tensor 2 x*",
    "training/test_fall_back_axes.py::test_a_replica_carries_on_without_a_checkpoint[[]context-*",
    "training/test_fall_back_axes.py::test_a_new_process_takes_the_place_and_the_run_is_the_undisturbed_one[[]context-*",
    "training/test_pipeline_jobs.py::test_every_schedule_trains_as_one_process[[]zero_bubble-*",
    "training/test_reproducible.py::test_any_number_of_replicas_in_parts_do[[]stages]",
    "training/test_fall_back_axes.py::*tensor x shard*",
    "training/test_fall_back_axes.py::*pipeline x*",
    "training/test_fall_back_axes.py::test_a_new_process_takes_the_place_and_the_run_is_the_undisturbed_one[[]tensor-2]",
    "training/test_tensor_context_jobs.py::test_a_paused_job_goes_on_with_other_ranks*",
    "training/test_cross_plan.py::test_any_plan_loads_it_to_the_last_bit[[]*-targets[1-8]]",
    "training/test_pipeline_jobs.py::test_eight_ranks*",
    "training/test_pipeline_jobs.py::test_every_schedule_trains_as_one_process[[]*-4]",
    "training/test_pipeline_jobs.py::test_pipelines_beside_each_other[[]zero*",
    "training/test_pipeline_jobs.py::test_activations_that_are_computed_again[[]full-*",
    "training/test_pipeline_jobs.py::test_gradients_in_the_fixed_tree[[]zero*",
    "training/test_fall_back.py::test_a_lost_shard_group_goes_and_its_replica_carries_on[[]0-*",
    "training/test_fall_back.py::test_replicas_in_parts_can_be_the_same_run_to_the_last_bit[[]pipelines*",
    "training/test_fall_back.py::test_two_of_three_go_on_from_the_checkpoint_cut_for_two[[]update]",
    "training/test_parameter_server.py::test_so_do_running_statistics_and_every_optimizer[[][an]*",
    "training/test_parameter_server.py::test_a_killed_worker_costs_no_step[[]*finish_step]",
    "training/test_parameter_server.py::test_a_server_that_breaks_off*[[]2-0]",
    "training/test_parameter_server.py::test_a_killed_server_sends_all_back*[[]1-*",
    "training/test_random_faults.py::test_the_run_is_the_same_to_the_last_bit[[]batch norm]",
    # kill -9 at each request of a save to an object store, a process for each; and faults of a store at further files
    "training/saving/test_object_storage.py::test_a_rank_killed_at_each_request*",
    "training/saving/test_object_storage.py::test_a_store_that_keeps_failing*[[]f*-.metadata]",
    "training/saving/test_object_storage.py::test_an_object_that_the_store_has_lost*[[].metadata]",
    "training/saving/test_object_storage.py::test_a_flipped_bit_in_the_store*[[].metadata]",
    "training/saving/test_weights.py::test_out_and_in_again_every_bit_is_the_same_under_any_plan[[]4000-single]",
    "training/saving/test_weights.py::test_out_and_in_again_every_bit_is_the_same_under_any_plan[[]5000000000-fsdp on 2]",
    "training/test_reproducible.py::test_any_number_of_replicas_in_parts_do[[]blocks kept whole]",
    "training/test_reproducible.py::test_any_number_of_replicas_in_parts_do[[]interleaved stages]",
    "training/test_reproducible.py::test_any_number_of_replicas_in_parts_do[[]split backward]",
)


def mark(items: Iterable[pytest.Item]) -> None:
    for item in items:
        name = item.nodeid.removeprefix(HERE)
        if name.startswith(WHOLE_MODULES) or on_the_other_database(name) or any(fnmatch.fnmatchcase(name, pattern) for pattern in PATTERNS):
            item.add_marker(pytest.mark.release)


def on_the_other_database(name: str) -> bool:
    """Whether it is the second run of a test of decisions, on PostgreSQL."""
    module, _, test = name.partition("::")
    if "postgresql" not in test.partition("[")[2]:
        return False
    if module.startswith("integration/"):
        return Path(module).stem not in WHERE_DATABASES_DIFFER
    return module.startswith(WHERE_DATABASES_DO_NOT_DIFFER)
