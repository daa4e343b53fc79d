//! Limits against questions that wear people out.

use super::*;
use crate::domain::approval::{KnownOutcome, RetriedExecution};
use crate::domain::invocation::Subject;
use crate::storage::{AskedLimit, CoolingOff, OpenLimit};

const WITHIN: Duration = Duration::from_secs(3_600);
const COOL_OFF: Duration = Duration::from_secs(300);

/// So many questions within [`WITHIN`], and no other limit.
fn asked(most: u32) -> QuestionLimits {
    QuestionLimits { asked: Some(AskedLimit { most, within: WITHIN }), ..NO_LIMITS }
}

/// A question is not asked again for [`COOL_OFF`] after its denial, and no other limit.
fn cooling() -> QuestionLimits {
    QuestionLimits { cool_off: COOL_OFF, ..NO_LIMITS }
}

/// The question as another caller asks it.
fn by(caller: &str, question: Question) -> Question {
    Question { requested_by: id(caller), ..question }
}

pub(in super::super) async fn open_approvals_of_an_action_are_limited(fixture: Fixture) {
    let limits = QuestionLimits { per_action: 2, ..NO_LIMITS };
    for (call, agent) in [("0", "agent-0"), ("1", "agent-1")] {
        let mut question = question_about(call);
        question.subject.agent = id(agent);
        assert!(matches!(fixture.request(question, None, limits).await, Requested::Created(_)));
    }
    let before = fixture.dump().await;
    let full = fixture.request(question_about("more"), Some(request_key("refused", "d")), limits).await;
    assert_eq!(full, Requested::LimitReached(OpenLimit::PerAction));
    assert_eq!(fixture.dump().await, before, "nothing is recorded");
    let (mut action, mut connector, mut principal) =
        (question_about("more"), question_about("more"), question_about("more"));
    action.subject.action = id("GMAIL_REPLY");
    connector.subject.connector = id("outlook");
    principal.subject.principal = id("dana");
    for other in [action, connector, principal, by("another runner", question_about("more"))] {
        assert!(matches!(fixture.request(other, None, limits).await, Requested::Created(_)));
    }
    fixture.advance_to(START.plus(DECIDE_WITHIN).minus(TICK));
    let full = fixture.request(question_about("later"), None, limits).await;
    assert_eq!(full, Requested::LimitReached(OpenLimit::PerAction));
    fixture.clock.advance(TICK);
    assert!(matches!(fixture.request(question_about("later"), None, limits).await, Requested::Created(_)));
}

pub(in super::super) async fn questions_are_counted_over_all_callers_until_they_are_old_enough(fixture: Fixture) {
    let first = fixture.request(by("runner-0", question_about("0")), None, asked(3)).await;
    let Requested::Created(first) = first else { panic!("{first:?}") };
    fixture.clock.advance(Duration::from_secs(60));
    // What has become of a question does not matter: it was asked.
    let second = by("runner-1", question_about("1"));
    let Requested::Created(denied) = fixture.request(second.clone(), None, asked(3)).await else { panic!() };
    fixture.decide(&denied, "olga", Verdict::Deny).await;
    let mut third = by("runner-2", question_about("2"));
    third.subject.agent = id("another agent");
    let Requested::Created(open) = fixture.request(third.clone(), None, asked(3)).await else { panic!() };

    let before = fixture.dump().await;
    let again_at = first.create_time.plus(WITHIN);
    let refused = Requested::AskedTooOften { again_at };
    assert_eq!(fixture.request(question_about("more"), Some(request_key("r", "d")), asked(3)).await, refused);
    assert_eq!(fixture.request(third, None, asked(3)).await, Requested::Existing(open), "it is no new question");
    assert_eq!(fixture.dump().await, before, "nothing is recorded");
    let mut others = question_about("more");
    others.subject.principal = id("dana");
    assert!(matches!(fixture.request(others, None, asked(3)).await, Requested::Created(_)));
    assert!(matches!(fixture.request(question_about("unlimited"), None, NO_LIMITS).await, Requested::Created(_)));

    // By now there are four, of which the second is to grow old as well.
    fixture.advance_to(again_at.minus(TICK));
    let at = again_at.plus(Duration::from_secs(60));
    assert_eq!(
        fixture.request(question_about("more"), None, asked(3)).await,
        Requested::AskedTooOften { again_at: at }
    );
    assert_eq!(
        fixture.request(question_about("more"), None, asked(4)).await,
        Requested::AskedTooOften { again_at },
        "a moment before the first is old enough"
    );
    fixture.clock.advance(TICK);
    assert!(matches!(fixture.request(question_about("more"), None, asked(4)).await, Requested::Created(_)));
    fixture.clock.advance(TICK);
    assert!(matches!(
        fixture.request(question_about("and more"), None, asked(4)).await,
        Requested::AskedTooOften { again_at: then } if then == at
    ));
}

pub(in super::super) async fn simultaneous_questions_of_many_callers_never_exceed_the_rate(fixture: Fixture) {
    let tasks: Vec<_> = (0..60)
        .map(|call| {
            let store = Arc::clone(&fixture.store);
            let mut question = by(&format!("runner-{call}"), question_about(&call.to_string()));
            question.subject.agent = id(&format!("agent-{call}"));
            let limits = asked(7);
            let new = NewApproval { id: approval_id(), question, request: None, arguments: sealed_arguments(), limits };
            tokio::spawn(async move { store.request(new).await.unwrap().row })
        })
        .collect();
    let mut created = 0;
    for task in tasks {
        match task.await.unwrap() {
            Requested::Created(_) => created += 1,
            Requested::AskedTooOften { again_at } => assert_eq!(again_at, START.plus(WITHIN)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(created, 7);
}

pub(in super::super) async fn what_was_denied_is_not_asked_again_however_it_is_put(fixture: Fixture) {
    let (_, execution) = fixture.consumed(question_about("earlier")).await;
    let wait = fixture.waiting(waits::opening()).await.id;
    let key = request_key("request-1", "d1");
    let Requested::Created(asked) = fixture.request(question(), Some(key.clone()), cooling()).await else { panic!() };
    let denied = fixture.decide(&asked, "olga", Verdict::Deny).await;
    let until = fixture.now().plus(COOL_OFF);
    let refused = Requested::CoolingOff(Box::new(CoolingOff { denied: denied.clone(), until }));
    fixture.clock.advance(TICK);

    let of = |change: &dyn Fn(&mut Question)| {
        let mut question = question();
        change(&mut question);
        question
    };
    let unknown = RetriedExecution { id: execution_id(), known: KnownOutcome::Unknown };
    let put_otherwise = [
        ("as it was", question()),
        ("by another caller", by("another runner", question())),
        ("through another connection", of(&|question| question.subject.connection = Some(id("connection-2")))),
        ("through none", of(&|question| question.subject.connection = None)),
        ("of another definition", of(&|question| question.subject.tool_definition_digest = Some(definition("x")))),
        ("of none", of(&|question| question.subject.tool_definition_digest = None)),
        ("with another note", of(&|question| question.agent_note = Some("please".to_owned()))),
        ("with other labels", of(&|question| question.subject.labels.clear())),
        ("in a wait", of(&|question| question.wait = Some(wait))),
        ("as a retry", retrying(&execution, fixture.now(), question())),
        ("as another retry", of(&|question| question.retry_of = Some(unknown))),
        ("under another policy", of(&|question| question.policy_revision = "revision-9".to_owned())),
        ("of other people", of(&|question| question.requirement = requirement(&[&["owner", "group:finance"]]))),
        (
            "for less time",
            of(&|question| question.requirement = question.requirement.clone().deciding_within(Duration::from_secs(7))),
        ),
    ];
    let before = fixture.dump().await;
    for (how, question) in put_otherwise.clone() {
        let another = Some(request_key("another", "d"));
        assert_eq!(fixture.request(question.clone(), another, cooling()).await, refused, "{how}");
        assert_eq!(fixture.request(question, None, cooling()).await, refused, "{how}");
    }
    assert_eq!(fixture.dump().await, before, "nothing is recorded");
    let first = fixture.request(question(), Some(key), cooling()).await;
    assert_eq!(first, Requested::Existing(denied), "who asks for the first answer gets it");

    for (what, subject) in [
        ("principal", Subject { principal: id("dana"), ..subject() }),
        ("agent", Subject { agent: id("other"), ..subject() }),
        ("conversation", Subject { conversation: Some(id("chat-2")), ..subject() }),
        ("no conversation", Subject { conversation: None, ..subject() }),
        ("fingerprint", Subject { fingerprint: fingerprint("another call"), ..subject() }),
    ] {
        let answer = fixture.request(question_of(subject), None, cooling()).await;
        assert!(matches!(answer, Requested::Created(_)), "another {what} is another question: {answer:?}");
    }
    fixture.advance_to(until.minus(TICK));
    assert_eq!(fixture.request(question(), None, cooling()).await, refused);
    fixture.clock.advance(TICK);
    assert!(matches!(fixture.request(question(), None, cooling()).await, Requested::Created(_)), "it has cooled off");
    fixture.clock.advance(TICK);
    for (how, question) in put_otherwise.into_iter().skip(1).take(1) {
        assert!(matches!(fixture.request(question, None, cooling()).await, Requested::Created(_)), "{how}");
    }
}

pub(in super::super) async fn an_absent_conversation_cools_off_as_one_of_its_own(fixture: Fixture) {
    let alone = question_of(Subject { conversation: None, ..subject() });
    let asked = fixture.ask(alone.clone()).await;
    fixture.decide(&asked, "olga", Verdict::Deny).await;
    assert!(matches!(fixture.request(alone, None, cooling()).await, Requested::CoolingOff(_)));
    assert!(matches!(fixture.request(question(), None, cooling()).await, Requested::Created(_)));
}

pub(in super::super) async fn only_a_person_s_no_cools_off_and_the_newest_counts(fixture: Fixture) {
    let asked = fixture.ask(question()).await;
    let cancelled = asked.cancel(&id("runner"), None, fixture.now()).unwrap();
    fixture.save(cancelled, asked.version).await;
    let approved = fixture.approved(question()).await;
    let revoked = approved.revoke(&person("olga"), None, fixture.now()).unwrap();
    fixture.save(revoked, approved.version).await;
    fixture.consumed(question()).await;
    let expiring = fixture.ask(question()).await;
    fixture.advance_to(expiring.decide_by);
    let Requested::Created(first) = fixture.request(question(), None, cooling()).await else {
        panic!("withdrawn, revoked, used and expired are no denials")
    };
    fixture.decide(&first, "olga", Verdict::Deny).await;
    fixture.clock.advance(Duration::from_secs(10));
    // As it may be where the limit was another one meanwhile.
    let second = fixture.ask(question()).await;
    let second = fixture.decide(&second, "olga", Verdict::Deny).await;
    let until = fixture.now().plus(COOL_OFF);
    let refused = Requested::CoolingOff(Box::new(CoolingOff { denied: second, until }));
    assert_eq!(fixture.request(question(), None, cooling()).await, refused);
}

pub(in super::super) async fn a_question_that_is_still_open_is_answered_though_its_like_was_denied(fixture: Fixture) {
    let one = fixture.ask(question()).await;
    let other = fixture.ask(by("another runner", question())).await;
    fixture.decide(&one, "olga", Verdict::Deny).await;
    let again = fixture.request(by("another runner", question()), None, cooling()).await;
    assert_eq!(again, Requested::Existing(other), "the person is asked it already");
    assert!(matches!(fixture.request(question(), None, cooling()).await, Requested::CoolingOff(_)));
}

pub(in super::super) async fn a_denial_and_the_same_question_at_once_leave_one_question(fixture: Fixture) {
    denied_and_asked_at_once(&fixture, &fixture).await;
}

/// A denial through one store, and the same question again through the other at that moment, by the same caller and by another.
pub(in super::super) async fn denied_and_asked_at_once(fixture: &Fixture, other: &Fixture) {
    for round in 0..10 {
        let question = question_about(&format!("round {round}"));
        let asked = fixture.ask(question.clone()).await;
        let answer = Answer { verdict: Verdict::Deny, reason: None, shown_fingerprint: None };
        let Commanded::Changed(denial) = asked.decide(&person("olga"), &answer, fixture.now()).unwrap() else {
            panic!("it was pending")
        };
        let store = Arc::clone(&fixture.store);
        let denying = tokio::spawn(async move { store.save_approval(*denial, 1).await.unwrap() });
        let asking: Vec<_> = (0..6)
            .map(|number| {
                let store = Arc::clone(&other.store);
                let caller = if number % 2 == 0 { "runner" } else { "another runner" };
                let new = NewApproval {
                    id: approval_id(),
                    question: by(caller, question.clone()),
                    request: None,
                    arguments: sealed_arguments(),
                    limits: cooling(),
                };
                (caller, tokio::spawn(async move { store.request(new).await.unwrap().row }))
            })
            .collect();
        assert_eq!(denying.await.unwrap(), Saved::Yes);
        for (caller, asking) in asking {
            match asking.await.unwrap() {
                Requested::Existing(approval) if caller == "runner" => assert_eq!(approval.id, asked.id),
                Requested::CoolingOff(refused) => assert_eq!(refused.denied.id, asked.id),
                // Of another caller, and before the denial.
                Requested::Existing(_) | Requested::Created(_) if caller == "another runner" => {}
                answer => panic!("{caller}: {answer:?}"),
            }
        }
        let after = other.request(by("a third runner", question), None, cooling()).await;
        assert!(matches!(after, Requested::CoolingOff(_)), "{after:?}");
    }
}

pub(in super::super) async fn somebody_who_looks_is_remembered_and_time_does_not_go_back(fixture: Fixture) {
    let seen = async |fixture: &Fixture| fixture.store.backlog().await.unwrap().row.approver_seen;
    assert_eq!(seen(&fixture).await, None);
    fixture.store.note_approver().await.unwrap();
    assert_eq!(seen(&fixture).await, Some(START));
    fixture.clock.advance(Duration::from_secs(7));
    assert_eq!(seen(&fixture).await, Some(START), "it is as it was noted");
    fixture.store.note_approver().await.unwrap();
    assert_eq!(seen(&fixture).await, Some(START.plus(Duration::from_secs(7))));
    let fixture = fixture.reopen().await;
    assert_eq!(seen(&fixture).await, Some(START.plus(Duration::from_secs(7))), "a restart forgets nobody");
}
