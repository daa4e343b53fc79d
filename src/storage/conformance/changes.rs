//! What a store tells of its changes.

use super::*;
use crate::storage::Sweep;
use crate::storage::changes::{Changes, Told, Touch};
use std::collections::BTreeMap;

/// Whoever listens and remembers what was told: what is told again is nothing new.
struct Listener {
    changes: Changes,
    known: BTreeMap<ApprovalId, u64>,
}

impl Listener {
    fn to(fixture: &Fixture) -> Self {
        Self { changes: fixture.store.changes(), known: BTreeMap::new() }
    }

    /// Everything new that has been told by now.
    fn told(&mut self) -> Vec<(ApprovalId, u64)> {
        let mut all = Vec::new();
        while let Some(told) = self.changes.now() {
            let Told::Touched(part) = told else { panic!("nothing was slow") };
            for Touch { id, version } in part.iter() {
                let known = self.known.entry(*id).or_default();
                if version > known {
                    *known = *version;
                    all.push((*id, *version));
                }
            }
        }
        all
    }
}

pub(in super::super) async fn every_change_is_told_once_it_is_committed(fixture: Fixture) {
    let mut changes = Listener::to(&fixture);
    let asked = fixture.ask(question()).await;
    assert_eq!(changes.told(), [(asked.id, 1)]);
    let approved = fixture.decide(&asked, asked.question.subject.principal.as_str(), Verdict::Approve).await;
    assert_eq!(changes.told(), [(asked.id, 2)]);
    fixture.consume(start_of(&approved)).await.unwrap();
    assert_eq!(changes.told(), [(asked.id, 3)]);

    // A question whose like is overdue: that one expires, and a new one is made.
    let late = fixture.ask(question()).await;
    fixture.advance_to(late.decide_by);
    let next = fixture.ask(question()).await;
    assert_eq!(changes.told(), [(late.id, 1), (late.id, 2), (next.id, 1)]);
    let cancelled = next.cancel(&next.question.requested_by, None, fixture.now()).unwrap();
    fixture.save(cancelled, 1).await;
    assert_eq!(changes.told(), [(next.id, 2)]);
}

pub(in super::super) async fn what_changes_no_approval_is_not_told(fixture: Fixture) {
    let mut changes = Listener::to(&fixture);
    let asked = fixture.ask(question()).await;
    assert_eq!(changes.told(), [(asked.id, 1)]);
    assert!(matches!(fixture.request(question(), None, NO_LIMITS).await, Requested::Existing(_)));
    assert!(fixture.consume(start_of(&asked)).await.is_none());
    let Commanded::Changed(cancel) = asked.cancel(&asked.question.requested_by, None, fixture.now()).unwrap() else {
        panic!("nothing changed")
    };
    assert_eq!(fixture.store.save_approval(*cancel, 7).await.unwrap(), Saved::Conflict);
    let full = QuestionLimits { per_principal: 1, per_agent: 1, ..NO_LIMITS };
    assert!(matches!(fixture.request(question_about("other"), None, full).await, Requested::LimitReached(_)));
    let execution = fixture.store.start(start(subject())).await.unwrap().unwrap();
    fixture.report(&execution, Outcome::Unknown).await;
    fixture.approval(asked.id).await;
    assert_eq!(changes.told(), []);
}

pub(in super::super) async fn what_is_swept_is_told_as_one_by_one(fixture: Fixture) {
    let mut changes = Listener::to(&fixture);
    let pending = fixture.ask(question_about("pending")).await;
    fixture.clock.advance(TICK);
    let approved = fixture.approved(question_about("approved")).await;
    fixture.advance_to(pending.decide_by);
    changes.told();
    fixture.store.sweep(Sweep::ExpireApprovals, 10).await.unwrap();
    assert_eq!(changes.told(), [(approved.id, 3), (pending.id, 2)], "in the order of their deadlines");
    fixture.clock.advance(USE_WITHIN);
    let kept = TICK;
    for step in [Sweep::ExpireApprovals, Sweep::EraseApprovals { kept }, Sweep::DeleteApprovals { kept }] {
        fixture.store.sweep(step, 10).await.unwrap();
    }
    assert!(fixture.store.approval(pending.id).await.unwrap().row.is_none());
    assert_eq!(changes.told(), [], "what is erased or deleted was final, and everybody has been told so");
}

pub(in super::super) async fn who_listens_and_then_reads_misses_nothing(fixture: Fixture) {
    for _ in 0..50 {
        let asked = fixture.ask(question()).await;
        let store = Arc::clone(&fixture.store);
        let answer = Answer { verdict: Verdict::Approve, reason: None, shown_fingerprint: None };
        let owner = person(asked.question.subject.principal.as_str());
        let Commanded::Changed(approve) = asked.decide(&owner, &answer, fixture.now()).unwrap() else {
            panic!("nothing changed")
        };
        let deciding = tokio::spawn(async move { store.save_approval(*approve, 1).await.unwrap() });
        let mut changes = Listener::to(&fixture);
        let read = fixture.approval(asked.id).await;
        assert_eq!(deciding.await.unwrap(), Saved::Yes);
        let told = changes.told();
        assert!(read.version == 2 || told.contains(&(asked.id, 2)), "read {}, told {told:?}", read.version);
        let approved = fixture.approval(asked.id).await;
        fixture.consume(start_of(&approved)).await.unwrap();
    }
}

pub(in super::super) async fn those_that_there_are_are_read_by_their_ids(fixture: Fixture) {
    let first = fixture.ask(question()).await;
    let second = fixture.ask(question_about("second")).await;
    fixture.ask(question_about("third")).await;
    let ids = [second.id, approval_id(), first.id, first.id];
    let mut read = fixture.store.approvals_of(&ids).await.unwrap().row;
    read.sort_by_key(|approval| approval.id);
    let mut want = vec![first, second];
    want.sort_by_key(|approval| approval.id);
    assert_eq!(read, want);
    assert!(fixture.store.approvals_of(&[]).await.unwrap().row.is_empty());
}
