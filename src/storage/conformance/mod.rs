//! What every store promises, each promise one function over `Arc<dyn Store>` and clocks that a test moves. A database
//! joins with an implementation of [`Database`] and one line of `promises!`, which stamps a test per promise; what it
//! promises beyond the others it names in a line of its own.

pub(super) mod agreement;
pub(super) mod any;
pub(super) mod approvals;
pub(super) mod arguments;
pub(super) mod audit;
pub(super) mod backlog;
pub(super) mod changes;
pub(super) mod consuming;
mod contradictions;
pub(super) mod durability;
pub(super) mod executions;
pub(super) mod fatigue;
pub(super) mod listing;
mod random;
pub(super) mod requests;
mod samples;
pub(super) mod seals;
pub(super) mod shared;
pub(super) mod sweeping;
pub(super) mod waits;

use super::{Accepting, NewApproval, QuestionLimits, RequestKey, Requested, Saved, Store};
use crate::clock::ManualClock;
use crate::domain::approval::{Answer, Approval, ApprovalState, Commanded, Question, Verdict};
use crate::domain::change::Change;
use crate::domain::execution::{Execution, Outcome, Reported, Start};
use crate::domain::ids::ApprovalId;
use crate::domain::time::Timestamp;
use async_trait::async_trait;
pub(super) use contradictions::{CONTRADICTIONS, TOLD_TOO_EARLY};
pub(super) use random::Random;
pub(super) use samples::*;
use std::sync::Arc;
use std::time::Duration;

/// A database of its own, empty at first, that can be opened again and again.
#[async_trait]
pub(super) trait Database: Send + Sync {
    /// Opens it with these clocks. The store that was open before has been dropped, but for the promises of [`shared`].
    async fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store>;

    /// Every row of every table, byte for byte, as text: each a line that begins with the table's name and a colon.
    async fn dump(&self) -> String;

    /// Fails where rows that belong together do not agree, whatever has happened to them.
    async fn check(&self);
}

/// Stamps the tests of one database: those of every database, or those that are named.
macro_rules! promises {
    ($database:expr) => {
        $crate::storage::conformance::promises! { $database,
            requests::a_new_question_is_pending_until_its_deadline,
            requests::the_same_question_is_asked_once,
            requests::each_part_of_a_question_alone_makes_it_another,
            requests::absent_is_a_value_of_its_own,
            requests::a_hundred_simultaneous_equal_questions_make_one_approval,
            requests::an_overdue_question_is_expired_and_asked_again,
            requests::a_question_that_is_final_is_asked_again,
            requests::a_request_id_returns_its_approval_as_it_stands,
            requests::a_request_id_stands_for_one_request,
            requests::a_request_id_is_of_one_caller_principal_and_agent,
            requests::a_new_request_id_stands_for_the_question_that_is_open,
            requests::open_approvals_of_a_principal_are_limited,
            requests::open_approvals_of_an_agent_are_limited,
            requests::what_is_overdue_or_final_counts_against_no_limit,
            requests::the_same_question_is_answered_however_full_it_is,
            requests::simultaneous_questions_never_exceed_a_limit,
            approvals::a_decision_is_read_back_as_it_was_saved,
            approvals::every_state_is_read_back_as_it_was_saved,
            approvals::a_stale_version_saves_nothing,
            approvals::of_simultaneous_decisions_one_is_saved,
            approvals::a_change_is_saved_only_before_its_deadline,
            approvals::what_is_unknown_is_absent_and_cannot_be_saved,
            approvals::hostile_text_is_kept_as_it_is,
            arguments::sealed_arguments_are_kept_whole_and_only_with_what_was_created,
            arguments::the_keys_in_use_are_those_that_something_is_sealed_under,
            arguments::an_agent_sees_what_its_own_pair_asked_alone,
            arguments::a_person_sees_one_approval_as_the_domain_says,
            changes::every_change_is_told_once_it_is_committed,
            changes::what_changes_no_approval_is_not_told,
            changes::what_is_swept_is_told_as_one_by_one,
            changes::who_listens_and_then_reads_misses_nothing,
            changes::those_that_there_are_are_read_by_their_ids,
            listing::a_person_sees_what_the_domain_says,
            listing::an_overdue_approval_is_listed_as_expired,
            listing::a_list_by_state_is_whole_however_much_is_overdue,
            listing::pages_are_whole_in_order_and_unmoved_by_new_approvals,
            listing::who_decided_through_a_group_sees_it_after_leaving,
            listing::a_name_is_compared_by_its_bytes,
            fatigue::open_approvals_of_an_action_are_limited,
            fatigue::questions_are_counted_over_all_callers_until_they_are_old_enough,
            fatigue::simultaneous_questions_of_many_callers_never_exceed_the_rate,
            fatigue::what_was_denied_is_not_asked_again_however_it_is_put,
            fatigue::an_absent_conversation_cools_off_as_one_of_its_own,
            fatigue::only_a_person_s_no_cools_off_and_the_newest_counts,
            fatigue::a_question_that_is_still_open_is_answered_though_its_like_was_denied,
            fatigue::a_denial_and_the_same_question_at_once_leave_one_question,
            fatigue::somebody_who_looks_is_remembered_and_time_does_not_go_back,
            backlog::the_backlog_is_what_waits_for_people_and_nothing_else,
            backlog::an_overdue_question_waits_for_nobody,
            consuming::of_a_hundred_attempts_one_consumes,
            consuming::one_attempt_from_fifty_tasks_starts_once,
            consuming::each_binding_alone_keeps_the_gate_shut,
            consuming::connection_and_labels_do_not_bind,
            consuming::an_approval_is_used_only_before_its_deadline,
            consuming::only_an_approved_approval_is_used,
            consuming::the_requirement_is_a_condition,
            consuming::an_attempt_starts_once_whatever_it_is_for,
            consuming::an_attempt_is_of_one_caller_principal_and_agent,
            consuming::what_has_succeeded_is_not_done_again,
            consuming::an_equal_retry_inherits_the_key,
            consuming::without_an_approval_nothing_is_used_up,
            consuming::the_facts_are_those_of_the_attempt,
            executions::an_attempt_without_an_approval_starts_once,
            executions::a_retry_is_of_the_same_principal_and_agent_and_still_needed,
            executions::every_outcome_is_read_back_as_it_was_saved,
            executions::a_stale_version_settles_nothing,
            executions::an_outcome_is_saved_only_before_its_deadline,
            executions::a_list_has_what_is_wanted_newest_first,
            waits::a_wait_is_read_back_as_it_was_saved,
            waits::one_wait_of_a_principal_agent_and_transcript_is_active,
            waits::a_hundred_simultaneous_openings_make_one_wait,
            waits::what_ends_a_wait_withdraws_what_is_open_in_it_and_nothing_else,
            waits::a_question_belongs_to_an_open_wait_of_its_own_and_ends_with_it,
            waits::the_same_question_in_another_wait_is_another,
            waits::a_wait_is_resumed_once_nothing_is_pending,
            waits::of_a_hundred_attempts_one_resumes,
            waits::an_overdue_wait_is_expired_by_whoever_comes_first,
            waits::waits_expire_a_few_at_a_time_the_longest_overdue_first,
            waits::a_question_and_the_end_of_its_wait_do_not_miss_each_other,
            waits::of_many_approvals_the_newest_are_told,
            audit::every_change_has_its_records_and_what_failed_has_none,
            audit::records_are_listed_newest_first_and_by_what_they_are_about,
            audit::a_record_is_read_back_as_it_was_written,
            audit::keys_are_noted_once,
            seals::every_record_is_sealed_once_in_its_order_slice_by_slice,
            seals::a_lease_keeps_others_out_until_it_ends,
            seals::what_is_kept_of_the_tree_is_that_of_the_seals,
            seals::a_checkpoint_is_of_the_log_as_it_is,
            seals::what_was_passed_over_is_found_and_sealed,
            seals::a_seal_is_found_by_its_record_and_keeps_what_it_was_of,
            sweeping::expiring_writes_what_the_domain_says,
            sweeping::timing_out_writes_what_the_domain_says,
            sweeping::sweeping_twice_is_sweeping_once,
            sweeping::a_sweep_deals_with_what_has_waited_longest_and_no_more_than_it_may,
            sweeping::what_is_erased_keeps_everything_but_what_it_showed,
            sweeping::what_is_erased_is_deleted_in_its_time,
            sweeping::an_execution_is_kept_while_it_is_retried_or_under_way,
            sweeping::audit_records_are_deleted_in_their_order_and_their_time,
            sweeping::sweeping_and_consuming_and_deciding_never_both,
            durability::nothing_acknowledged_is_lost,
            durability::a_write_outlives_its_caller,
            durability::an_acknowledged_write_is_seen_by_every_read,
            durability::time_is_not_before_any_row,
            durability::a_closed_store_answers_unavailable,
            agreement::the_statement_and_why_not_agree,
            agreement::many_at_once_and_why_not_agree,
            agreement::the_statement_without_a_token_and_why_not_agree,
        }
    };
    ($database:expr, $($topic:ident :: $promise:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $promise() {
                use $crate::storage::conformance::{Database, Fixture, $topic};
                let database = std::sync::Arc::new($database);
                $topic::$promise(Fixture::new(database.clone()).await).await;
                database.check().await;
            }
        )*
    };
}
pub(super) use promises;

/// A database with a store open on it, and what tests often do.
pub(super) struct Fixture {
    database: Arc<dyn Database>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) store: Arc<dyn Store>,
}

impl Fixture {
    pub(super) async fn new(database: Arc<dyn Database>) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let store = database.open(Arc::clone(&clock)).await;
        Self { database, clock, store }
    }

    /// Another process on the same database, with the same clock.
    pub(super) async fn beside(&self) -> Self {
        let (database, clock) = (Arc::clone(&self.database), Arc::clone(&self.clock));
        let store = database.open(Arc::clone(&clock)).await;
        Self { database, clock, store }
    }

    /// Drops the store as a process that ends does, and opens the database again.
    pub(super) async fn reopen(self) -> Self {
        let Self { database, clock, store } = self;
        drop(store);
        let store = database.open(Arc::clone(&clock)).await;
        Self { database, clock, store }
    }

    pub(super) async fn dump(&self) -> String {
        self.database.dump().await
    }

    pub(super) fn now(&self) -> Timestamp {
        self.store.estimated_time()
    }

    /// Lets time pass until `instant`.
    pub(super) fn advance_to(&self, instant: Timestamp) {
        let now = self.now();
        assert!(instant >= now, "time does not go back: {now} to {instant}");
        self.clock.advance(instant.since(now));
    }

    pub(super) async fn request(
        &self,
        question: Question,
        request: Option<RequestKey>,
        limits: QuestionLimits,
    ) -> Requested {
        let new = NewApproval { id: approval_id(), question, request, arguments: sealed_arguments(), limits };
        self.store.request(new).await.unwrap().row
    }

    /// Asks a question that has not been asked.
    pub(super) async fn ask(&self, question: Question) -> Approval {
        match self.request(question, None, NO_LIMITS).await {
            Requested::Created(approval) => approval,
            other => panic!("not created: {other:?}"),
        }
    }

    pub(super) async fn approval(&self, id: ApprovalId) -> Approval {
        self.store.approval(id).await.unwrap().row.unwrap()
    }

    /// A person's answer, saved.
    pub(super) async fn decide(&self, approval: &Approval, name: &str, verdict: Verdict) -> Approval {
        let answer = Answer { verdict, reason: Some("because".to_owned()), shown_fingerprint: None };
        let decided = approval.decide(&person(name), &answer, self.now()).unwrap();
        self.save(decided, approval.version).await
    }

    /// Saves what a command changed.
    pub(super) async fn save(&self, commanded: Commanded, expected: u64) -> Approval {
        let Commanded::Changed(change) = commanded else { panic!("nothing changed") };
        let next = change.next.clone();
        assert_eq!(self.store.save_approval(*change, expected).await.unwrap(), Saved::Yes);
        next
    }

    /// Saves a change that its approval itself makes, such as expiring.
    pub(super) async fn save_change(&self, change: Change<Approval>, expected: u64) -> Approval {
        let next = change.next.clone();
        assert_eq!(self.store.save_approval(change, expected).await.unwrap(), Saved::Yes);
        next
    }

    /// Asks, and approves as its principal.
    pub(super) async fn approved(&self, question: Question) -> Approval {
        let principal = question.subject.principal.clone();
        let asked = self.ask(question).await;
        let approved = self.decide(&asked, principal.as_str(), Verdict::Approve).await;
        assert!(matches!(approved.state, ApprovalState::Approved(_)), "{:?}", approved.state);
        approved
    }

    pub(super) async fn consume(&self, start: Start) -> Option<Execution> {
        self.store.consume(start, Accepting::AnyRequirement).await.unwrap()
    }

    /// Asks, approves and consumes.
    pub(super) async fn consumed(&self, question: Question) -> (Approval, Execution) {
        let approved = self.approved(question).await;
        let execution = self.consume(start_of(&approved)).await.unwrap();
        (self.approval(approved.id).await, execution)
    }

    /// Reports an outcome, with evidence.
    pub(super) async fn report(&self, execution: &Execution, outcome: Outcome) -> Execution {
        let Reported::Changed(change) = execution.report(outcome, report(self.now())).unwrap() else {
            panic!("nothing changed")
        };
        let next = change.next.clone();
        assert_eq!(self.store.save_execution(*change, execution.version).await.unwrap(), Saved::Yes);
        next
    }
}

/// One microsecond: the smallest step of time.
pub(super) const TICK: Duration = Duration::from_micros(1);
