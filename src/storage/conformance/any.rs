//! Whatever the domain can hold, for tests of how it comes back from a database.

use crate::domain::approval::{
    Approval, ApprovalState, Confirmed, KnownOutcome, PersonDecision, Question, RetriedExecution, Verdict,
};
use crate::domain::decision::{Effect, MatchedRule, PolicyReason};
use crate::domain::execution::{Execution, ExecutionState, Report};
use crate::domain::fingerprint::{ArgumentsDigest, DefinitionDigest, Digest, Fingerprint};
use crate::domain::ids::{ApprovalId, AttemptId, ExecutionId, WaitId};
use crate::domain::invocation::{Objective, Subject};
use crate::domain::limits::MAX_REVISION;
use crate::domain::preview::{OmissionKind, Preview};
use crate::domain::requirement::{Approver, Clause, Requirement};
use crate::domain::scope::Scope;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::{Ending, Resumption, Wait, WaitState};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use std::time::Duration;
use uuid::Uuid;

fn identifier() -> impl Strategy<Value = Identifier> {
    "[ -~à-üא-ת]{1,20}".prop_filter_map("an identifier", |text| Identifier::parse(text.trim()).ok())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[\\x00-\\x1f'\"\\\\%$?:0\u{10ffff}]{0,8}"]
}

fn time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![any::<i64>(), 0..i64::MAX].prop_map(Timestamp::from_micros)
}

fn span() -> impl Strategy<Value = Duration> {
    (0..u64::MAX / 4).prop_map(Duration::from_micros)
}

fn uuid() -> impl Strategy<Value = Uuid> {
    (1..u128::MAX).prop_map(Uuid::from_u128)
}

fn subject() -> impl Strategy<Value = Subject> {
    let objective = (identifier(), identifier(), 0..=MAX_REVISION).prop_map(|(transcript, id, revision)| Objective {
        transcript,
        id,
        revision,
    });
    let names = (identifier(), identifier(), of(identifier()), identifier(), of(identifier()), of(identifier()));
    let digests = (any::<[u8; 32]>(), any::<[u8; 32]>(), of(any::<[u8; 32]>()));
    (names, identifier(), of(objective), digests, btree_map(text(), text(), 0..4)).prop_map(
        |(names, action, objective, digests, labels)| {
            let (principal, agent, conversation, connector, account, connection) = names;
            Subject {
                principal,
                agent,
                conversation,
                connector,
                account,
                connection,
                action,
                objective,
                fingerprint: Fingerprint::from_digest(Digest::from_bytes(digests.0)),
                arguments_digest: ArgumentsDigest::from_digest(Digest::from_bytes(digests.1)),
                tool_definition_digest: digests.2.map(|bytes| DefinitionDigest::from_digest(Digest::from_bytes(bytes))),
                labels,
            }
        },
    )
}

fn requirement() -> impl Strategy<Value = Requirement> {
    let approver = prop_oneof![
        Just(Approver::Owner),
        identifier().prop_map(Approver::Group),
        identifier().prop_map(Approver::Person)
    ];
    let clause = (vec(approver, 1..4), 1..40_u32).prop_map(|(entries, quorum)| Clause::new(entries, quorum).unwrap());
    (vec(clause, 1..4), any::<bool>(), span(), span())
        .prop_map(|(clauses, exclude, decide, used)| Requirement::new(clauses, exclude, decide, used).unwrap())
}

fn question() -> impl Strategy<Value = Question> {
    let kinds = prop::sample::select(OmissionKind::ALL.to_vec());
    let omission = (text(), kinds, any::<u64>()).prop_map(|(pointer, kind, count)| {
        let mut omission = crate::storage::conformance::question().preview.unwrap().omissions.remove(0);
        (omission.pointer, omission.kind, omission.count) = (pointer, kind, count);
        omission
    });
    let preview =
        (text(), vec(omission, 0..3)).prop_map(|(text, omissions)| Preview { json: format!("[{text}"), omissions });
    let effect = prop::sample::select(vec![Effect::Confirm, Effect::Deny]);
    let rule = (text(), text(), effect, of(text())).prop_map(|(connector, name, effect, error)| MatchedRule {
        connector,
        name,
        effect,
        error,
    });
    let known = prop::sample::select(vec![KnownOutcome::Started, KnownOutcome::Failed, KnownOutcome::Unknown]);
    let retried = (uuid(), known).prop_map(|(id, known)| RetriedExecution { id: ExecutionId::new(id), known });
    let words = (text(), of(text()), text());
    let policy = (
        prop::sample::select(Scope::ALL.to_vec()),
        vec(text(), 0..3),
        prop::sample::select(PolicyReason::ALL.to_vec()),
        vec(rule, 0..3),
    );
    let wait = of(uuid().prop_map(WaitId::new));
    (subject(), identifier(), of(preview), words, policy, requirement(), of(retried), wait).prop_map(
        |(subject, requested_by, preview, words, policy, requirement, retry_of, wait)| Question {
            subject,
            requested_by,
            scope: policy.0,
            tags: policy.1,
            preview,
            message: words.0,
            agent_note: words.1,
            policy_revision: words.2,
            reason: policy.2,
            rules: policy.3,
            requirement,
            retry_of,
            wait,
        },
    )
}

fn state() -> impl Strategy<Value = ApprovalState> {
    let confirmed = || (time(), time()).prop_map(|(at, use_by)| Confirmed { at, use_by });
    prop_oneof![
        Just(ApprovalState::Pending),
        confirmed().prop_map(ApprovalState::Approved),
        time().prop_map(|at| ApprovalState::Denied { at }),
        (time(), identifier(), of(text()), of(confirmed()))
            .prop_map(|(at, by, reason, confirmed)| ApprovalState::Cancelled { at, by, reason, confirmed }),
        (time(), identifier(), of(text()), confirmed())
            .prop_map(|(at, by, reason, confirmed)| ApprovalState::Revoked { at, by, reason, confirmed }),
        (time(), of(confirmed())).prop_map(|(at, confirmed)| ApprovalState::Expired { at, confirmed }),
        (time(), uuid(), confirmed()).prop_map(|(at, id, confirmed)| ApprovalState::Consumed {
            at,
            execution: ExecutionId::new(id),
            confirmed
        }),
    ]
}

fn decision() -> impl Strategy<Value = PersonDecision> {
    let verdict = prop::sample::select(vec![Verdict::Approve, Verdict::Deny]);
    (identifier(), vec(identifier(), 0..3), any::<bool>(), verdict, of(text()), identifier(), time()).prop_map(
        |(person, groups, as_owner, verdict, reason, caller, at)| PersonDecision {
            person,
            groups,
            as_owner,
            verdict,
            reason,
            caller,
            at,
        },
    )
}

/// An approval in whatever state.
pub(in crate::storage) fn approval() -> impl Strategy<Value = Approval> {
    let version = 1..u64::try_from(i64::MAX).unwrap();
    (uuid(), question(), time(), time(), vec(decision(), 0..4), state(), version).prop_map(
        |(id, question, create_time, decide_by, decisions, state, version)| Approval {
            id: ApprovalId::new(id),
            ends_by: question
                .wait
                .map(|_| state.confirmed().map_or(decide_by, |confirmed| decide_by.max(confirmed.use_by))),
            question,
            create_time,
            decide_by,
            decisions,
            state,
            version,
        },
    )
}

/// An execution in whatever state.
pub(in crate::storage) fn execution() -> impl Strategy<Value = Execution> {
    let report = || {
        (time(), identifier(), of(text()), of(text()), of(text()), of(span())).prop_map(
            |(at, by, remote_reference, error_code, detail, duration)| Report {
                at,
                by,
                remote_reference,
                error_code,
                detail,
                duration,
            },
        )
    };
    let state = prop_oneof![
        Just(ExecutionState::Started),
        report().prop_map(ExecutionState::Succeeded),
        report().prop_map(ExecutionState::Failed),
        of(report()).prop_map(ExecutionState::Unknown),
    ];
    let ids = (uuid(), of(uuid()), uuid(), of(uuid()));
    let times = (time(), time(), 1..u64::try_from(i64::MAX).unwrap());
    (ids, subject(), identifier(), text(), text(), times, state).prop_map(
        |(ids, subject, caller, idempotency_key, policy_revision, times, state)| Execution {
            id: ExecutionId::new(ids.0),
            approval: ids.1.map(ApprovalId::new),
            subject,
            caller,
            attempt: AttemptId::new(ids.2),
            idempotency_key,
            retry_of: ids.3.map(ExecutionId::new),
            policy_revision,
            start_time: times.0,
            report_by: times.1,
            state,
            version: times.2,
        },
    )
}

/// A wait in whatever state.
pub(in crate::storage) fn wait() -> impl Strategy<Value = Wait> {
    let resumption = (time(), identifier(), uuid())
        .prop_map(|(at, by, attempt)| WaitState::Resumed(Resumption { at, by, attempt: AttemptId::new(attempt) }));
    let ending = prop_oneof![
        (identifier(), of(text())).prop_map(|(by, reason)| Ending::Closed { by, reason }),
        identifier().prop_map(|by| Ending::Replaced { by }),
        Just(Ending::Expired),
    ];
    let state = prop_oneof![
        Just(WaitState::Open),
        resumption,
        (time(), ending).prop_map(|(at, ending)| WaitState::Closed { at, ending }),
    ];
    let names = (identifier(), identifier(), identifier(), of(identifier()));
    let objective = (identifier(), identifier(), 0..=MAX_REVISION);
    let times = (time(), time(), time(), 1..u64::try_from(i64::MAX).unwrap());
    (uuid(), names, objective, text(), times, state).prop_map(|(id, names, objective, summary, times, state)| Wait {
        id: WaitId::new(id),
        opened_by: names.0,
        principal: names.1,
        agent: names.2,
        conversation: names.3,
        objective: Objective { transcript: objective.0, id: objective.1, revision: objective.2 },
        summary,
        create_time: times.0,
        update_time: times.1,
        expire_time: times.2,
        state,
        version: times.3,
    })
}
