//! Who decides, how many it takes, and what the recorded decisions are worth to another requirement.

use crate::domain::approval::{Approval, CommandRefusal, Commanded, Person, StateName, Verdict};
use crate::domain::testing::{answer, asked, at, changed, decided, person, requirement};

type Clauses<'a> = &'a [(&'a [&'a str], u32)];

/// Reads `dana@finance,security+`: dana, of today's groups finance and security, approves (`-`: denies).
fn said(text: &str) -> (Person, Verdict) {
    let (who, verdict) = match text.strip_suffix('+') {
        Some(who) => (who, Verdict::Approve),
        None => (text.strip_suffix('-').unwrap(), Verdict::Deny),
    };
    let (name, groups) = who.split_once('@').unwrap_or((who, ""));
    let groups: Vec<&str> = groups.split(',').filter(|group| !group.is_empty()).collect();
    (person(name, &groups), verdict)
}

/// The record after these answers, and how each was received.
fn after(clauses: Clauses<'_>, exclude_requester: bool, answers: &str) -> (Approval, Vec<String>) {
    let mut approval = asked(requirement(clauses, exclude_requester));
    let mut received = Vec::new();
    for (index, text) in answers.split_whitespace().enumerate() {
        let (person, verdict) = said(text);
        let now = at(i64::try_from(index).unwrap() + 1);
        received.push(match approval.decide(&person, &answer(verdict), now) {
            Ok(Commanded::Changed(change)) => {
                approval = change.next;
                approval.state.name().to_string()
            }
            Ok(Commanded::AsItWas) => "=".to_owned(),
            Err(CommandRefusal::NotAnApprover) => "not-theirs".to_owned(),
            Err(CommandRefusal::State(state)) => format!("refused:{state}"),
            Err(other) => panic!("{other:?}"),
        });
    }
    (approval, received)
}

/// A requirement, the answers in order, and how each is received.
struct Case {
    claim: &'static str,
    clauses: Clauses<'static>,
    exclude_requester: bool,
    answers: &'static str,
    received: &'static str,
}

const OWNER: Clauses<'static> = &[(&["owner"], 1)];
const TWO_OF_FINANCE: Clauses<'static> = &[(&["group:finance"], 2)];
const FINANCE_AND_SECURITY: Clauses<'static> = &[(&["group:finance"], 1), (&["group:security"], 1)];
const OWNER_AND_FINANCE: Clauses<'static> = &[(&["owner"], 1), (&["owner", "group:finance"], 1)];

const CASES: &[Case] = &[
    Case {
        claim: "the owner's own consent is enough where the owner alone is asked",
        clauses: OWNER,
        exclude_requester: false,
        answers: "dana@finance+ olga+",
        received: "not-theirs approved",
    },
    Case {
        claim: "a quorum counts different people",
        clauses: TWO_OF_FINANCE,
        exclude_requester: false,
        answers: "dana@finance+ dana@finance+ dana@finance+ eve@finance+",
        received: "pending = = approved",
    },
    Case {
        claim: "one person of both groups stands for one clause",
        clauses: FINANCE_AND_SECURITY,
        exclude_requester: false,
        answers: "dana@finance,security+ dana@finance,security+ eve@finance+",
        received: "pending = approved",
    },
    Case {
        claim: "whom a clause does not need counts for nothing",
        clauses: FINANCE_AND_SECURITY,
        exclude_requester: false,
        answers: "dana@finance+ eve@finance+ mia@finance+ sam@security+",
        received: "pending pending pending approved",
    },
    Case {
        claim: "people are moved between clauses, whatever their order",
        clauses: OWNER_AND_FINANCE,
        exclude_requester: false,
        answers: "olga+ dana@finance+",
        received: "pending approved",
    },
    Case {
        claim: "people are moved between clauses, in the other order too",
        clauses: OWNER_AND_FINANCE,
        exclude_requester: false,
        answers: "dana@finance+ olga+",
        received: "pending approved",
    },
    Case {
        claim: "two of finance do not replace the owner",
        clauses: OWNER_AND_FINANCE,
        exclude_requester: false,
        answers: "dana@finance+ eve@finance+ olga@finance+",
        received: "pending pending approved",
    },
    Case {
        claim: "clauses of several groups, a person, the owner and numbers are met together",
        clauses: &[(&["group:finance", "group:security"], 2), (&["person:kim", "owner"], 1)],
        exclude_requester: false,
        answers: "sam@security+ olga@finance+ kim+",
        received: "pending pending approved",
    },
    Case {
        claim: "one denial ends it, whatever the number of approvals",
        clauses: &[(&["group:finance"], 3)],
        exclude_requester: false,
        answers: "dana@finance+ eve@finance+ mia@finance- ned@finance+",
        received: "pending pending denied refused:denied",
    },
    Case {
        claim: "the first answer may be the denial",
        clauses: TWO_OF_FINANCE,
        exclude_requester: false,
        answers: "dana@finance- dana@finance- dana@finance+ eve@finance-",
        received: "denied = refused:denied refused:denied",
    },
    Case {
        claim: "while pending, an approval may become a denial",
        clauses: TWO_OF_FINANCE,
        exclude_requester: false,
        answers: "dana@finance+ dana@finance- dana@finance+",
        received: "pending denied refused:denied",
    },
    Case {
        claim: "what is approved is not denied any more",
        clauses: TWO_OF_FINANCE,
        exclude_requester: false,
        answers: "dana@finance+ eve@finance+ dana@finance- mia@finance-",
        received: "pending approved refused:approved refused:approved",
    },
    Case {
        claim: "who is in no group of the requirement can neither approve nor end it",
        clauses: TWO_OF_FINANCE,
        exclude_requester: false,
        answers: "sam@security- olga- kim- finance- group:finance- dana@finance+ eve@finance+",
        received: "not-theirs not-theirs not-theirs not-theirs not-theirs pending approved",
    },
    Case {
        claim: "membership is that of the decision's time: joining later helps, leaving later does no harm",
        clauses: TWO_OF_FINANCE,
        exclude_requester: false,
        answers: "mia+ dana@finance+ mia@finance+",
        received: "not-theirs pending approved",
    },
    Case {
        claim: "who has left and says the same again is told how it stands, and who changes their mind is too late",
        clauses: TWO_OF_FINANCE,
        exclude_requester: false,
        answers: "dana@finance+ dana+ dana- eve@finance+",
        received: "pending = not-theirs approved",
    },
    Case {
        claim: "names are compared byte for byte",
        clauses: &[(&["person:kim", "group:finance"], 1)],
        exclude_requester: false,
        answers: "Kim+ kim@Finance-",
        received: "not-theirs denied",
    },
    Case {
        claim: "an excluded requester cannot answer as owner, by name or by group",
        clauses: &[(&["owner", "person:olga", "group:finance"], 1)],
        exclude_requester: true,
        answers: "olga@finance+ olga@finance- dana@finance+",
        received: "not-theirs not-theirs approved",
    },
    Case {
        claim: "an excluded requester fills no place of a quorum",
        clauses: TWO_OF_FINANCE,
        exclude_requester: true,
        answers: "dana@finance+ olga@finance+ eve@finance+",
        received: "pending not-theirs approved",
    },
];

#[test]
fn answers_are_received_as_the_requirement_says() {
    for case in CASES {
        let (_, received) = after(case.clauses, case.exclude_requester, case.answers);
        assert_eq!(received.join(" "), case.received, "{}", case.claim);
    }
}

/// Recorded answers to one requirement, and whether they meet another.
struct Meeting {
    claim: &'static str,
    asked: Clauses<'static>,
    answers: &'static str,
    today: Clauses<'static>,
    exclude_requester: bool,
    met: bool,
}

const MEETINGS: &[Meeting] = &[
    Meeting {
        claim: "more people are asked for than decided",
        asked: TWO_OF_FINANCE,
        answers: "dana@finance+ eve@finance+",
        today: &[(&["group:finance"], 3)],
        exclude_requester: false,
        met: false,
    },
    Meeting {
        claim: "fewer people are asked for than decided",
        asked: TWO_OF_FINANCE,
        answers: "dana@finance+ eve@finance+",
        today: &[(&["group:finance"], 1)],
        exclude_requester: false,
        met: true,
    },
    Meeting {
        claim: "another group is asked for",
        asked: TWO_OF_FINANCE,
        answers: "dana@finance+ eve@finance+",
        today: &[(&["group:security"], 1)],
        exclude_requester: false,
        met: false,
    },
    Meeting {
        claim: "another group is asked for, in which one of them was when she decided",
        asked: TWO_OF_FINANCE,
        answers: "dana@finance,security+ eve@finance+",
        today: &[(&["group:security"], 1)],
        exclude_requester: false,
        met: true,
    },
    Meeting {
        claim: "one more group is asked for, and the only one of it is needed elsewhere",
        asked: TWO_OF_FINANCE,
        answers: "dana@finance,security+ eve@finance+",
        today: &[(&["group:finance"], 2), (&["group:security"], 1)],
        exclude_requester: false,
        met: false,
    },
    Meeting {
        claim: "one more group is asked for, and one is free for it",
        asked: TWO_OF_FINANCE,
        answers: "dana@finance,security+ eve@finance+",
        today: FINANCE_AND_SECURITY,
        exclude_requester: false,
        met: true,
    },
    Meeting {
        claim: "a group that somebody joined after deciding does not count",
        asked: TWO_OF_FINANCE,
        answers: "dana@finance+ eve@finance+ dana@finance,security+",
        today: FINANCE_AND_SECURITY,
        exclude_requester: false,
        met: false,
    },
    Meeting {
        claim: "the group that somebody left after deciding counts",
        asked: TWO_OF_FINANCE,
        answers: "dana@finance+ eve@finance+ dana+",
        today: TWO_OF_FINANCE,
        exclude_requester: false,
        met: true,
    },
    Meeting {
        claim: "the person is named instead of the group",
        asked: TWO_OF_FINANCE,
        answers: "dana@finance+ eve@finance+",
        today: &[(&["person:eve"], 1)],
        exclude_requester: false,
        met: true,
    },
    Meeting {
        claim: "the owner is asked for, who did not decide",
        asked: TWO_OF_FINANCE,
        answers: "dana@finance+ eve@finance+",
        today: OWNER,
        exclude_requester: false,
        met: false,
    },
    Meeting {
        claim: "the owner was one of them",
        asked: TWO_OF_FINANCE,
        answers: "dana@finance+ olga@finance+",
        today: OWNER,
        exclude_requester: false,
        met: true,
    },
    Meeting {
        claim: "the requester is excluded now and was one of them",
        asked: TWO_OF_FINANCE,
        answers: "dana@finance+ olga@finance+",
        today: TWO_OF_FINANCE,
        exclude_requester: true,
        met: false,
    },
    Meeting {
        claim: "the requester is excluded now and was none of them",
        asked: TWO_OF_FINANCE,
        answers: "dana@finance+ eve@finance+",
        today: TWO_OF_FINANCE,
        exclude_requester: true,
        met: true,
    },
    Meeting {
        claim: "the requester was one of three and is not needed",
        asked: &[(&["group:finance"], 3)],
        answers: "dana@finance+ olga@finance+ eve@finance+",
        today: TWO_OF_FINANCE,
        exclude_requester: true,
        met: true,
    },
    Meeting {
        claim: "who changed their mind does not count",
        asked: TWO_OF_FINANCE,
        answers: "dana@finance+ dana@finance-",
        today: &[(&["group:finance"], 1)],
        exclude_requester: false,
        met: false,
    },
    Meeting {
        claim: "who denied does not count",
        asked: TWO_OF_FINANCE,
        answers: "dana@finance+ eve@finance-",
        today: TWO_OF_FINANCE,
        exclude_requester: false,
        met: false,
    },
    Meeting {
        claim: "nobody decided",
        asked: TWO_OF_FINANCE,
        answers: "",
        today: &[(&["group:finance"], 1)],
        exclude_requester: false,
        met: false,
    },
];

#[test]
fn recorded_decisions_are_tested_against_another_requirement() {
    for meeting in MEETINGS {
        let (approval, _) = after(meeting.asked, false, meeting.answers);
        let today = requirement(meeting.today, meeting.exclude_requester);
        assert_eq!(approval.meets(&today), meeting.met, "{}", meeting.claim);
    }
}

#[test]
fn a_decision_records_who_as_what_when_and_through_whom() {
    let mut dana = person("dana", &["finance", "security"]);
    dana.caller = crate::domain::testing::id("console");
    let approval = asked(requirement(FINANCE_AND_SECURITY, false));
    let reason = crate::domain::approval::Answer { reason: Some("fine".to_owned()), ..answer(Verdict::Approve) };
    let next = changed(approval.decide(&dana, &reason, at(3))).next;
    let decision = &next.decisions[0];
    assert_eq!(decision.person, dana.id);
    assert_eq!(decision.groups, dana.groups, "every group, not only the one that counted");
    assert!(!decision.as_owner);
    assert_eq!(decision.verdict, Verdict::Approve);
    assert_eq!(decision.reason.as_deref(), Some("fine"));
    assert_eq!(decision.caller, dana.caller);
    assert_eq!(decision.at, at(3));
}

#[test]
fn a_changed_mind_is_recorded_beside_the_first_answer() {
    let (approval, _) = after(TWO_OF_FINANCE, false, "dana@finance+ dana@finance-");
    let verdicts: Vec<Verdict> = approval.decisions.iter().map(|decision| decision.verdict).collect();
    assert_eq!(verdicts, [Verdict::Approve, Verdict::Deny]);
    assert_eq!(approval.version, 3);
}

#[test]
fn the_owner_revokes_also_where_the_requester_is_excluded() {
    let approved =
        decided(&asked(requirement(TWO_OF_FINANCE, true)), &person("dana", &["finance"]), Verdict::Approve, at(1));
    let approved = decided(&approved, &person("eve", &["finance"]), Verdict::Approve, at(2));
    assert_eq!(approved.state.name(), StateName::Approved);
    let revoked = changed(approved.revoke(&person("olga", &[]), Some("no longer"), at(3))).next;
    assert_eq!(revoked.state.name(), StateName::Revoked);
}

#[test]
fn a_person_sees_their_own_approvals_and_those_they_decided_or_may_decide() {
    let clauses: Clauses<'_> = &[(&["group:finance", "person:kim"], 3)];
    let (approval, _) = after(clauses, true, "dana@finance+ mia@finance+");
    for (who, seen) in [
        ("olga", true),
        ("dana", true),
        ("mia", true),
        ("eve@finance", true),
        ("eve@security,finance", true),
        ("eve", false),
        ("kim", true),
        ("Kim", false),
        ("sam@security", false),
        ("finance", false),
        ("assistant", false),
    ] {
        let (person, _) = said(&format!("{who}+"));
        assert_eq!(approval.is_visible_to(&person), seen, "{who}");
    }
}

#[test]
fn who_sees_it_is_its_owner_or_may_decide_or_did_and_so_reads_its_arguments() {
    for (clauses, exclude) in [(OWNER, false), (&[(&["group:finance", "person:kim"][..], 3)][..], true)] {
        let decided = if exclude { "dana@finance+ mia@finance+" } else { "" };
        let (approval, _) = after(clauses, exclude, decided);
        for who in ["olga", "dana", "mia", "eve@finance", "kim", "Kim", "eve", "sam@security", "finance", "assistant"] {
            let (person, _) = said(&format!("{who}+"));
            assert_eq!(approval.may_read_arguments(&person), approval.is_visible_to(&person), "{who}");
        }
    }
}

#[test]
fn where_the_owner_alone_decides_nobody_else_sees_it() {
    let (approval, _) = after(OWNER, false, "");
    for (who, seen) in
        [("olga", true), ("Olga", false), ("owner", false), ("dana@finance", false), ("sam@owner", false)]
    {
        let (person, _) = said(&format!("{who}+"));
        assert_eq!(approval.is_visible_to(&person), seen, "{who}");
    }
}
