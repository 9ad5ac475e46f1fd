//! The store contract: what every implementation of the port does (spec: durability, section 22; DESIGN.md, section 5).
//!
//! Each function is one test over a fresh store. [`store_contract!`](crate::store_contract) makes tests of all of them:
//!
//! ```ignore
//! nylorun_actors::store_contract!(MySubject::new());
//! ```

// These are tests: they may panic, and each name is the fact that it holds.
#![allow(clippy::unwrap_used, missing_docs)]

mod actions;
mod artifacts;
mod effects;
mod keys;
mod record;
mod samples;
mod sandboxes;
mod sessions;
mod tenant;
mod transactions;
mod workspaces;

use std::sync::Arc;

use super::ManualClock;
use crate::ports::store::{Reads, StoreHandle, StoreResult, Tx};

pub use actions::*;
pub use artifacts::*;
pub use effects::*;
pub use keys::*;
pub use record::*;
pub use sandboxes::*;
pub use sessions::*;
pub use tenant::*;
pub use transactions::*;
pub use workspaces::*;

/// A store under test.
pub trait Subject {
    /// A handle on it, always the same one until it is reopened.
    fn handle(&self) -> StoreHandle;
    /// The clock it was given.
    fn clock(&self) -> Arc<ManualClock>;
    /// Closes it and opens it again over the same data, as a process that starts anew does.
    fn reopen(&mut self);
}

async fn tx<T, F>(subject: &dyn Subject, run: F) -> StoreResult<T>
where
    F: FnOnce(&mut dyn Tx) -> StoreResult<T> + Send + 'static,
    T: Send + 'static,
{
    subject.handle().tx(run).await
}

async fn read<T, F>(subject: &dyn Subject, run: F) -> StoreResult<T>
where
    F: FnOnce(&mut dyn Reads) -> StoreResult<T> + Send + 'static,
    T: Send + 'static,
{
    subject.handle().read(run).await
}

/// Reads in a transaction and on a reader: both must say the same.
async fn both<T, F>(subject: &dyn Subject, run: F) -> T
where
    F: Fn(&mut dyn Reads) -> StoreResult<T> + Clone + Send + 'static,
    T: PartialEq + std::fmt::Debug + Send + 'static,
{
    let again = run.clone();
    let in_tx = tx(subject, move |t| {
        let reads: &mut dyn Reads = t;
        again(reads)
    })
    .await
    .unwrap();
    let in_read = read(subject, run).await.unwrap();
    assert_eq!(in_tx, in_read, "a transaction and a reader see the same");
    in_read
}

/// Makes a `#[tokio::test]` of each function of the contract. The argument makes a fresh
/// [`Subject`](crate::testing::contract::Subject).
#[macro_export]
macro_rules! store_contract {
    ($make:expr) => {
        $crate::store_contract! { @tests $make =>
            a_commit_is_readable_and_answers_what_its_closure_answered
            a_failed_transaction_writes_nothing_and_answers_its_own_error
            a_conflict_does_not_end_the_transaction
            a_panicking_transaction_is_rolled_back_alone
            a_panicking_read_harms_nobody
            transactions_of_a_group_fail_alone
            concurrent_failures_leave_no_gap_and_pairs_stay_adjacent
            concurrent_read_modify_writes_lose_nothing
            listeners_hear_each_commit_in_order_before_its_caller
            listeners_hear_nothing_without_events
            a_panicking_listener_is_contained
            a_listener_may_use_the_store
            a_closed_store_refuses
            the_clock_never_goes_back
            commits_survive_a_reopen
            health_names_the_schema
            a_session_is_three_rows_that_come_back_as_written
            a_session_id_is_used_once
            status_and_ownership_are_written_apart
            pin_and_documents_are_replaced
            writes_to_what_is_missing_say_so
            sessions_are_listed_by_id_filtered_and_in_pages
            orphans_have_no_owner_or_a_lapsed_lease
            orphans_of_dead_workers_are_found_at_once
            orphans_come_in_pages_by_id
            a_deleted_session_leaves_its_record_and_numbering
            a_rolled_back_delete_keeps_everything
            a_reset_deletes_sessions_and_starts_a_generation
            a_rolled_back_reset_changes_nothing
            counts_count
            effects_come_back_as_written
            an_effect_id_is_used_once
            settling_writes_status_outcome_and_error
            open_effects_are_those_of_the_session_in_the_statuses
            completed_effects_are_those_of_the_segment
            handing_out_counts_attempts
            slimming_drops_answers_of_completed_models_only
            the_record_numbers_each_session_from_zero
            an_event_is_the_envelope_that_is_served
            a_seq_that_was_rolled_back_is_used_again
            the_record_is_read_in_pages
            the_fold_reads_only_its_own_types
            odd_strings_survive_everywhere
            fold_snapshots_are_kept_by_cursor
            wakes_are_due_after_their_grace_oldest_first
            a_failed_wake_waits_and_a_parked_one_stays
            wakes_of_a_session_go_together
            the_tenant_is_there
            settings_are_written_replaced_and_deleted
            principals_are_found_by_the_hash_of_their_key
            credentials_live_in_their_vault
            answers_and_audit_are_kept_once
            usage_is_a_ledger
            definitions_and_manifests_are_kept
            commands_are_recorded_once_per_session_and_key
            workspaces_are_written_replaced_listed_and_deleted
            sandboxes_are_written_once_replaced_listed_and_deleted
            sessions_are_found_by_their_sandbox_and_by_their_turn
            events_of_a_sandbox_count_from_zero_and_outlive_it
            removals_wait_until_they_are_done
            actions_come_back_as_written_and_change_what_may_change
            an_action_needs_its_session_and_is_written_once
            due_actions_take_turns_between_sessions
            an_agents_load_counts_its_open_actions
            deliveries_past_their_deadline_are_found
            revived_actions_are_due_at_once
            busy_agents_deliver_or_have_an_endpoint
            endpoints_are_replaced_listed_and_deleted
            actions_go_with_their_session
            signing_keys_come_back_as_written_and_change_state_alone
            one_signing_key_has_each_living_state
            artifacts_and_their_versions_come_back_as_written
            artifacts_are_listed_by_id_filtered_and_in_pages
            a_folders_contents_are_shared_and_counted_once
            artifacts_go_with_their_session
        }
    };
    (@tests $make:expr => $($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let mut subject = $make;
                $crate::testing::contract::$name(&mut subject).await;
            }
        )*
    };
}
