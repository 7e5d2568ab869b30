//! What every backend promises, told as sentences. A backend runs them all with [`conformance!`]:
//! it names a function that opens a fresh, empty store under given rules, and an attribute for all of
//! them if they need one.

pub mod broke;
pub mod bucket;
pub mod comebacks;
pub mod heights;
pub mod places;
pub mod prunes;
pub mod records;
pub mod rig;
pub mod seen;
pub mod sweeps;

/// Runs every case against one backend, each as a test of its own.
macro_rules! conformance {
    ($open:path $(, #[$how:meta])?) => {
        conformance!(@cases $open, [$(#[$how])?], records: [
            a_transaction_reads_back_as_it_was_created,
            creating_twice_changes_nothing_and_another_of_the_same_id_is_refused,
            what_cannot_be_spent_is_refused_and_nothing_changes,
            a_refused_transaction_does_not_keep_the_rest_of_a_batch_from_being_made,
            of_two_of_the_same_id_in_one_step_the_bytes_of_the_one_that_is_made_are_kept,
            a_transaction_is_in_no_more_blocks_than_can_be_read_back,
            a_malformed_transaction_is_refused,
            more_inputs_or_outputs_than_one_step_may_have_are_refused_as_a_whole,
            a_coinbase_ripens,
            a_record_is_dated_once_all_is_spent_and_it_is_mined_and_never_earlier_again,
            a_reorganisation_takes_the_date_away_and_starts_the_clock_again,
            an_output_that_is_let_go_takes_the_date_away,
            the_loser_of_a_double_spend_is_dated_once_and_can_win_after_all,
            a_block_with_an_unknown_transaction_or_at_another_height_changes_nothing,
            a_step_that_is_told_twice_does_no_harm,
            of_two_who_spend_the_same_output_at_the_same_time_one_wins,
            an_output_far_behind_in_a_wide_transaction_is_spent_like_any_other,
        ]);
        conformance!(@cases $open, [$(#[$how])?], sweeps: [
            old_unmined_transactions_are_listed_in_pages_with_their_parents,
            what_is_preserved_has_no_date_until_its_time_and_then_what_the_rule_says,
            a_preservation_is_never_shortened,
            due_records_come_in_pages_and_go,
            a_record_is_looked_at_again_when_it_is_deleted,
            parents_learn_of_their_pruned_spender_and_it_cannot_come_back,
            a_record_with_a_file_is_cut_first_and_nothing_brings_it_back,
            a_heavy_record_goes_in_pieces,
            a_spender_that_is_not_settled_is_told,
            counts_follow_what_is_there,
            notes_and_jobs_are_kept,
            of_many_who_claim_a_note_at_the_same_time_one_is_believed_by_all,
        ]);
        conformance!(@cases $open, [$(#[$how])?], comebacks: [
            a_pruned_coinbase_that_is_told_again_is_refused_and_makes_no_coins,
            a_pruned_loser_of_which_something_was_spent_does_not_come_back,
        ]);
        conformance!(@cases $open, [$(#[$how])?], prunes: [
            a_run_preserves_parents_and_deletes_what_is_due,
            a_failure_in_phase_1_at_any_record_deletes_nothing,
            a_run_that_fails_in_the_middle_is_finished_by_the_next,
            a_chunk_that_fails_while_the_next_page_is_looked_at_ends_the_run_with_its_reason,
            what_went_before_records_could_not_be_cut_is_counted,
            records_that_cannot_be_counted_go_all_the_same,
            defensive_mode_keeps_what_has_an_unsettled_spender,
            cleaning_that_is_switched_off_deletes_nothing_and_still_preserves,
            a_run_that_is_stopped_or_late_ends_between_chunks_and_is_not_processed,
            a_guard_that_says_no_keeps_a_run_from_beginning,
            ten_thousand_heights_in_a_burst_run_a_handful_of_prunes_and_end_at_the_last,
            a_height_counts_as_processed_only_when_both_phases_are_done,
            a_run_that_the_store_could_not_note_is_noted_with_the_next_one,
            a_prune_at_a_lower_height_does_not_lower_what_is_processed,
        ]);
        conformance!(@cases $open, [$(#[$how])?], heights: [
            what_a_persister_reported_outlives_a_restart_also_without_a_run,
            a_persister_binds_every_service_on_the_store,
            where_records_wait_for_a_persister_nothing_goes_before_it_reports,
            a_run_that_waited_deletes_nothing_beyond_a_persister_that_began_anew,
            a_persister_that_catches_up_below_a_prune_by_hand_sets_runs_off,
            a_height_far_above_what_is_known_is_not_believed,
            a_run_that_is_tried_again_goes_to_the_height_that_was_told_last,
            a_run_that_begins_late_does_not_go_above_the_chain_s_top,
            a_wrong_height_that_was_pruned_is_told_and_a_prune_by_hand_goes_on_from_there,
            a_wrong_height_that_could_be_believed_is_told_once_a_block_says_where_the_head_is,
            what_another_service_on_the_store_processed_is_known,
            a_wrong_height_that_was_pruned_is_nobody_s_tip,
            what_is_above_the_last_block_that_was_told_is_not_persisted,
            a_persister_that_begins_anew_does_not_take_the_head_back_with_it,
            an_event_whose_work_is_done_sets_nothing_off,
        ]);
        conformance!(@cases $open, [$(#[$how])?], seen: [
            a_prune_by_hand_below_the_head_does_not_forget_how_far_the_chain_was_seen,
            whether_there_are_records_is_asked_once_and_they_are_not_counted_for_it,
            a_feeder_of_old_blocks_feeds_for_every_service_on_the_store,
        ]);
        conformance!(@cases $open, [$(#[$how])?], broke: [
            a_parent_stays_while_an_unmined_child_spends_it_whose_clock_a_reorganisation_restarted,
            a_preservation_that_expires_over_a_live_coin_does_not_date_it,
            a_stale_persister_is_told_and_the_past_due_records_are_counted,
            a_wrong_prefix_of_files_is_not_taken_for_files_that_are_gone,
            a_place_that_lost_its_files_is_not_believed_when_every_record_is_due,
            a_cut_record_is_not_finished_by_a_place_that_never_had_its_file,
            a_reorganisation_between_listing_and_deleting_is_seen,
            a_reorganisation_between_deleting_and_cutting_is_seen,
            catching_up_with_a_small_retention_deletes_nothing_that_is_needed,
            a_fan_out_of_many_children_does_not_stall_the_store,
        ]);
        conformance!(@cases $open, [$(#[$how])?], places: [
            a_record_stays_while_its_file_cannot_be_removed,
            files_that_stay_do_not_keep_others_from_going,
            a_place_that_answers_to_no_removal_has_its_part_of_a_run_and_no_more,
            a_run_that_is_stopped_among_files_keeps_and_counts_what_it_did,
            what_stays_with_its_file_is_told_and_tried_again_at_the_same_height,
            what_was_tried_in_vain_is_not_tried_sooner_because_it_is_told_again,
            what_stays_because_of_its_place_is_counted_and_outlives_a_restart,
            a_place_without_the_mark_takes_no_new_file_and_none_vouches_for_the_others,
            a_place_that_goes_in_the_middle_of_a_run_takes_no_record_with_it,
            a_place_is_one_store_s_and_is_marked_for_it_also_after_a_crash,
            all_who_look_at_a_new_place_at_the_same_time_find_it_right,
            whoever_only_peeks_at_a_place_marks_nothing,
        ]);
    };
    (@cases $open:path, $how:tt, $theme:ident: [$($case:ident,)*]) => {
        $(conformance!(@case $open, $how, $theme, $case);)*
    };
    (@case $open:path, [$(#[$how:meta])?], $theme:ident, $case:ident) => {
        $(#[$how])?
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            crate::conformance::$theme::$case($open).await;
        }
    };
}
pub(crate) use conformance;
