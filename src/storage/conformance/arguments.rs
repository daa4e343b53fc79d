//! Sealed arguments, and for whom an approval is read.

use super::*;
use crate::domain::requirement::{Approver, Clause, Requirement};
use crate::domain::text::Identifier;
use crate::storage::{OpenLimit, SealedArguments, Viewer};

fn sealed_under(key_id: &str, bytes: Vec<u8>) -> SealedArguments {
    SealedArguments { key_id: key_id.to_owned(), bytes }
}

async fn request(
    fixture: &Fixture,
    question: Question,
    arguments: SealedArguments,
    limits: QuestionLimits,
) -> Requested {
    let new = NewApproval { id: approval_id(), question, request: None, arguments, limits };
    fixture.store.request(new).await.unwrap().row
}

async fn kept(fixture: &Fixture, approval: &Approval) -> Option<SealedArguments> {
    let subject = &approval.question.subject;
    let viewer = Viewer::Agent { principal: &subject.principal, agent: &subject.agent };
    let loaded = fixture.store.arguments_seen_by(approval.id, viewer).await.unwrap();
    let found = loaded.row.unwrap();
    assert_eq!(found.approval.id, approval.id);
    found.arguments
}

pub(in super::super) async fn sealed_arguments_are_kept_whole_and_only_with_what_was_created(fixture: Fixture) {
    for (call, bytes) in
        [("one byte", vec![0]), ("every byte", (0..=255).collect()), ("the largest", vec![0xa5; 1024 * 1024])]
    {
        let sealed = sealed_under("00aa", bytes);
        let asked = request(&fixture, question_about(call), sealed.clone(), NO_LIMITS).await;
        let Requested::Created(approval) = asked else { panic!("{asked:?}") };
        assert!(kept(&fixture, &approval).await == Some(sealed), "{call}");
    }
    let first = sealed_under("00aa", b"first".to_vec());
    let asked = request(&fixture, question(), first.clone(), NO_LIMITS).await;
    let Requested::Created(approval) = asked else { panic!("{asked:?}") };
    let before = fixture.dump().await;
    let again = request(&fixture, question(), sealed_under("00bb", b"second".to_vec()), NO_LIMITS).await;
    assert_eq!(again, Requested::Existing(approval.clone()));
    let limits = QuestionLimits { per_principal: 1, per_agent: 1, ..NO_LIMITS };
    let refused = request(&fixture, question_about("more"), sealed_under("00bb", b"more".to_vec()), limits).await;
    assert_eq!(refused, Requested::LimitReached(OpenLimit::PerPrincipal));
    assert_eq!(fixture.dump().await, before, "nothing is kept of what was not created");

    // Whatever becomes of the approval, they stay until they are erased.
    let approved = fixture.decide(&approval, "olga", Verdict::Approve).await;
    fixture.consume(start_of(&approved)).await.unwrap();
    let fixture = fixture.reopen().await;
    assert_eq!(kept(&fixture, &approval).await, Some(first));
}

pub(in super::super) async fn the_keys_in_use_are_those_that_something_is_sealed_under(fixture: Fixture) {
    assert!(fixture.store.keys_in_use().await.unwrap().is_empty());
    for (call, key) in
        [("1", "0f"), ("2", "ff"), ("3", "0f"), ("4", "00"), ("5", "ff"), ("6", "0f"), ("7", "a0"), ("8", "a00")]
    {
        request(&fixture, question_about(call), sealed_under(key, vec![1]), NO_LIMITS).await;
    }
    let mut used = fixture.store.keys_in_use().await.unwrap();
    used.sort();
    assert_eq!(used, ["00", "0f", "a0", "a00", "ff"]);
    assert!(fixture.store.keys().await.unwrap().is_empty(), "noting a secret is another matter");
}

pub(in super::super) async fn an_agent_sees_what_its_own_pair_asked_alone(fixture: Fixture) {
    let asked = fixture.ask(question()).await;
    let sees = async |principal: &str, agent: &str, id: ApprovalId| {
        let (principal, agent) = (self::id(principal), self::id(agent));
        let viewer = Viewer::Agent { principal: &principal, agent: &agent };
        let approval = fixture.store.approval_seen_by(id, viewer).await.unwrap();
        assert_eq!(approval.now, fixture.now());
        let with_arguments = fixture.store.arguments_seen_by(id, viewer).await.unwrap().row;
        assert_eq!(with_arguments.map(|found| found.approval), approval.row);
        approval.row
    };
    assert_eq!(sees("olga", "assistant", asked.id).await, Some(asked.clone()));
    for (principal, agent) in [
        ("Olga", "assistant"),
        ("olga", "Assistant"),
        ("assistant", "olga"),
        ("olg", "assistant"),
        ("olga%", "assistant"),
        ("olga", "runner"),
    ] {
        assert_eq!(sees(principal, agent, asked.id).await, None, "{principal} {agent}");
    }
    assert_eq!(sees("olga", "assistant", approval_id()).await, None);
}

pub(in super::super) async fn a_person_sees_one_approval_as_the_domain_says(fixture: Fixture) {
    let clause =
        |entries: &[&str]| Clause::new(entries.iter().map(|entry| Approver::parse(entry).unwrap()), 1).unwrap();
    let of =
        |clauses: Vec<Clause>, exclude: bool| Requirement::new(clauses, exclude, DECIDE_WITHIN, USE_WITHIN).unwrap();
    let requirements = [
        of(vec![clause(&["owner"])], false),
        of(vec![clause(&["group:finance"]), clause(&["person:kim"])], true),
        of(vec![clause(&["group:finance", "group:security", "person:group"])], false),
    ];
    let mut approvals = Vec::new();
    for requirement in requirements {
        approvals.push(fixture.ask(Question { requirement, ..question() }).await);
    }
    // Who decided through a group still sees it after leaving.
    approvals.push(fixture.decide(&approvals[2], "finn:finance", Verdict::Approve).await);
    let mut seen = 0;
    for who in [
        "olga",
        "kim",
        "Kim",
        "finn",
        "finance",
        "group",
        "owner",
        "group:finance",
        "eve:finance",
        "sam:security",
        "eve:Finance",
        "eve:kim,person,olga",
        "ana:a,b,finance,c",
    ] {
        let person = match who {
            "group:finance" => crate::domain::approval::Person { id: id(who), ..person("x") },
            who => person(who),
        };
        let viewer = Viewer::Person { id: &person.id, groups: &person.groups };
        for approval in &approvals {
            let approval = fixture.approval(approval.id).await;
            let found = fixture.store.approval_seen_by(approval.id, viewer).await.unwrap().row;
            assert_eq!(found.is_some(), approval.is_visible_to(&person), "{who} {:?}", approval.question.requirement);
            assert!(found.is_none_or(|found| found == approval));
            seen += usize::from(approval.is_visible_to(&person));
        }
        assert!(fixture.store.approval_seen_by(approval_id(), viewer).await.unwrap().row.is_none());
    }
    assert!(seen > 10, "{seen}");
    let none: &[Identifier] = &[];
    let viewer = Viewer::Person { id: &id("nobody"), groups: none };
    assert!(fixture.store.approval_seen_by(approvals[0].id, viewer).await.unwrap().row.is_none());
}
