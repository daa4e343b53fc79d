//! Every pair of a state and a command, by everyone who might give it.

use crate::domain::approval::{Answer, Approval, CommandRefusal, Commanded, Person, StateName, Verdict};
use crate::domain::consume::{Attempted, ConsumeFacts, ConsumeRefusal, WhyNot, why_not};
use crate::domain::decision::{Decision, PolicyReason};
use crate::domain::testing::{
    answer, asked, at, changed, confirmed, consumed, decided, documented, execution_id, id, near, person, policy,
    requirement, wait_id,
};
use crate::domain::time::Timestamp;
use crate::domain::wait::{Cause, Withdrawal};

/// One record in one state, and an instant at which it is still there.
struct Stand {
    approval: Approval,
    now: Timestamp,
}

/// Every state's records, all of a question that two of finance must confirm and that dana has approved. Where a state can
/// be reached undecided and after confirmation, both are there.
fn records(state: StateName) -> Vec<Stand> {
    let eve = person("eve", &["finance"]);
    let pending = decided(
        &asked(requirement(&[(&["group:finance"], 2)], false)),
        &person("dana", &["finance"]),
        Verdict::Approve,
        at(1),
    );
    let approved = decided(&pending, &eve, Verdict::Approve, at(2));
    let stand = |approval: Approval| Stand { approval, now: at(3) };
    let expired = |approval: &Approval, deadline: Timestamp| Stand {
        approval: approval.expired(deadline).unwrap().next,
        now: near(deadline, 1),
    };
    match state {
        StateName::Pending => vec![stand(pending)],
        StateName::Denied => vec![stand(decided(&pending, &eve, Verdict::Deny, at(2)))],
        StateName::Cancelled => [pending, approved]
            .iter()
            .map(|approval| stand(changed(approval.cancel(&id("agents"), None, at(3))).next))
            .collect(),
        StateName::Revoked => vec![stand(changed(approved.revoke(&eve, None, at(3))).next)],
        StateName::Expired => {
            vec![expired(&pending, pending.decide_by), expired(&approved, confirmed(&approved).use_by)]
        }
        StateName::Consumed => vec![stand(consumed(&approved, execution_id(1), at(3)))],
        StateName::Approved => vec![stand(approved)],
    }
}

/// Overdue records, which nobody has written down as expired: they must behave like those that are.
fn overdue() -> Vec<Stand> {
    [StateName::Pending, StateName::Approved]
        .into_iter()
        .flat_map(records)
        .map(|Stand { approval, .. }| {
            let deadline = approval.state.confirmed().map_or(approval.decide_by, |confirmed| confirmed.use_by);
            Stand { approval, now: deadline }
        })
        .collect()
}

/// What a command makes of a record.
type Command = Box<dyn Fn(&Stand) -> String>;

/// The table's rows: a command by somebody.
fn commands() -> Vec<(&'static str, Command)> {
    let dana = || person("dana", &["finance"]);
    let eve = || person("eve", &["finance"]);
    let mia = || person("mia", &["finance"]);
    let owner = || person("olga", &[]);
    let nobody = || person("sam", &["security"]);
    vec![
        ("APPROVE by who has approved", decide(Verdict::Approve, dana())),
        ("APPROVE by who has denied", only_in(StateName::Denied, decide(Verdict::Approve, eve()))),
        ("APPROVE by another approver", decide(Verdict::Approve, mia())),
        ("APPROVE by the owner", decide(Verdict::Approve, owner())),
        ("APPROVE by anybody else", decide(Verdict::Approve, nobody())),
        ("DENY by who has approved", decide(Verdict::Deny, dana())),
        ("DENY by who has denied", only_in(StateName::Denied, decide(Verdict::Deny, eve()))),
        ("DENY by another approver", decide(Verdict::Deny, mia())),
        ("DENY by the owner", decide(Verdict::Deny, owner())),
        ("DENY by anybody else", decide(Verdict::Deny, nobody())),
        ("cancel by who asked", cancel("agents")),
        ("cancel by another caller", cancel("others")),
        ("revoke by who has revoked", only_in(StateName::Revoked, revoke(eve()))),
        ("revoke by who has approved", revoke(dana())),
        ("revoke by another approver", revoke(mia())),
        ("revoke by the owner", revoke(owner())),
        ("revoke by anybody else", revoke(nobody())),
        ("consume", Box::new(consume)),
        ("its deadline passes", Box::new(expire)),
        ("its wait is closed", Box::new(withdraw)),
    ]
}

fn decide(verdict: Verdict, person: Person) -> Command {
    Box::new(move |stand| told(stand.approval.decide(&person, &answer(verdict), stand.now)))
}

fn cancel(caller: &'static str) -> Command {
    Box::new(move |stand| told(stand.approval.cancel(&id(caller), None, stand.now)))
}

fn revoke(person: Person) -> Command {
    Box::new(move |stand| told(stand.approval.revoke(&person, None, stand.now)))
}

fn only_in(state: StateName, command: Command) -> Command {
    Box::new(move |stand| if stand.approval.state.name() == state { command(stand) } else { "·".to_owned() })
}

fn consume(stand: &Stand) -> String {
    let approval = &stand.approval;
    let today =
        policy(Decision::ConfirmationRequired(approval.question.requirement.clone()), PolicyReason::ConfirmationByRule);
    let attempted =
        Attempted { approval: Some(approval.id), subject: &approval.question.subject, retry_of: None, today: &today };
    let facts = ConsumeFacts { approval: Some(approval.clone()), ..ConsumeFacts::default() };
    match why_not(&facts, &attempted, |_| true, stand.now) {
        WhyNot::Nothing => "consumed".to_owned(),
        WhyNot::Refused(ConsumeRefusal::State(shown, state)) => {
            assert_eq!(shown.state.name(), state, "the refusal shows the record in the state that it names");
            "refused".to_owned()
        }
        other @ (WhyNot::Refused(_) | WhyNot::Replay(_) | WhyNot::MeetsToday { .. }) => panic!("{other:?}"),
    }
}

fn expire(stand: &Stand) -> String {
    let deadline = near(stand.now, 1_000_000_000_000);
    stand.approval.expired(deadline).map_or_else(|| "=".to_owned(), |change| change.next.state.name().to_string())
}

fn withdraw(stand: &Stand) -> String {
    let wait = wait_id(1);
    let (caller, opened_by) = (Some(id("agents")), id("agents"));
    let withdrawal = Withdrawal { wait, cause: Cause::Closed, caller, opened_by, said: None };
    let change = withdrawal.of(&stand.approval, stand.now);
    change.map_or_else(|| "=".to_owned(), |change| change.next.state.name().to_string())
}

fn told(commanded: Result<Commanded, CommandRefusal>) -> String {
    match commanded {
        Ok(Commanded::Changed(change)) => change.next.state.name().to_string(),
        Ok(Commanded::AsItWas) => "=".to_owned(),
        Err(CommandRefusal::State(_)) => "refused".to_owned(),
        Err(CommandRefusal::NotAnApprover) => "not theirs".to_owned(),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn every_state_answers_every_command_as_documented() {
    let mut lines = vec![line("", &StateName::ALL.map(|state| state.to_string()))];
    for (name, command) in commands() {
        let cells = StateName::ALL.map(|state| {
            let mut answers: Vec<String> = records(state).iter().map(&command).collect();
            answers.dedup();
            assert_eq!(answers.len(), 1, "{name} differs between two ways to {state}: {answers:?}");
            answers.remove(0)
        });
        lines.push(line(name, &cells));
    }
    let computed = lines.join("\n");
    let documented = documented(include_str!("../../approval.rs"), "What each command does").join("\n");
    assert_eq!(documented, computed, "the documentation of the module is to read:\n{computed}");
}

fn line(name: &str, cells: &[String; 7]) -> String {
    let cells: String = cells.iter().map(|cell| format!("{cell:<11}")).collect();
    format!("{name:<28}{cells}").trim_end().to_owned()
}

#[test]
fn an_overdue_record_behaves_like_an_expired_one_before_anybody_wrote_that_down() {
    for (name, command) in commands().into_iter().filter(|(name, _)| !name.starts_with("its ")) {
        for (overdue, expired) in overdue().iter().zip(&records(StateName::Expired)) {
            assert_eq!(command(overdue), command(expired), "{name}");
        }
    }
}

#[test]
fn a_refusal_names_the_state_that_the_record_is_in() {
    let mia = person("mia", &["finance"]);
    for state in StateName::ALL {
        for Stand { approval, now } in records(state) {
            let refused = Err(CommandRefusal::State(state));
            if state != StateName::Pending {
                for verdict in [Verdict::Approve, Verdict::Deny] {
                    assert_eq!(approval.decide(&mia, &answer(verdict), now), refused);
                }
            }
            if !matches!(state, StateName::Approved | StateName::Revoked) {
                assert_eq!(approval.revoke(&mia, None, now), refused);
            }
            if !matches!(state, StateName::Pending | StateName::Approved | StateName::Cancelled) {
                assert_eq!(approval.cancel(&id("agents"), None, now), refused);
            }
        }
    }
    for Stand { approval, now } in overdue() {
        let refused = Err(CommandRefusal::State(StateName::Expired));
        assert_eq!(approval.decide(&mia, &answer(Verdict::Approve), now), refused);
        assert_eq!(approval.revoke(&mia, None, now), refused);
        assert_eq!(approval.cancel(&id("agents"), None, now), refused);
    }
}

#[test]
fn an_owner_who_is_an_approver_is_answered_like_any_other() {
    let owners = |quorum| requirement(&[(&["owner", "group:finance"], quorum)], false);
    let olga = person("olga", &[]);
    let approved = decided(&asked(owners(1)), &olga, Verdict::Approve, at(1));
    assert_eq!(approved.state.name(), StateName::Approved);
    assert!(approved.decisions[0].as_owner);
    assert_eq!(told(approved.decide(&olga, &answer(Verdict::Approve), at(2))), "=");
    assert_eq!(told(approved.decide(&olga, &answer(Verdict::Deny), at(2))), "refused");
    assert_eq!(told(asked(owners(1)).decide(&olga, &answer(Verdict::Deny), at(1))), "denied");
    assert_eq!(told(asked(owners(2)).decide(&olga, &answer(Verdict::Approve), at(1))), "pending");
}

#[test]
fn the_fingerprint_that_was_shown_is_the_one_that_is_decided() {
    let approval = asked(requirement(&[(&["group:finance"], 1)], false));
    let dana = person("dana", &["finance"]);
    let shown = |shown_fingerprint| Answer { shown_fingerprint, ..answer(Verdict::Approve) };
    let same = shown(Some(approval.question.subject.fingerprint));
    let other = shown(Some(crate::domain::testing::fingerprint("another")));
    assert_eq!(told(approval.decide(&dana, &same, at(1))), "approved");
    assert_eq!(told(approval.decide(&dana, &shown(None), at(1))), "approved");
    assert_eq!(approval.decide(&dana, &other, at(1)), Err(CommandRefusal::ShownFingerprintDiffers));

    let approved = decided(&approval, &dana, Verdict::Approve, at(1));
    assert_eq!(
        approved.decide(&dana, &other, at(2)),
        Err(CommandRefusal::ShownFingerprintDiffers),
        "also where the verdict is the same again"
    );
    assert_eq!(
        approved.decide(&person("sam", &[]), &other, at(2)),
        Err(CommandRefusal::NotAnApprover),
        "who may not decide is told nothing of fingerprints"
    );
}

#[test]
fn a_record_that_no_command_makes_is_not_approved_over_a_denial() {
    let approval = asked(requirement(&[(&["group:finance"], 1)], false));
    let dana = person("dana", &["finance"]);
    let denied = decided(&approval, &dana, Verdict::Deny, at(1));
    let pending = Approval { state: approval.state.clone(), ..denied };
    assert_eq!(pending.decide(&dana, &answer(Verdict::Approve), at(2)), Err(CommandRefusal::State(StateName::Denied)));
}

#[test]
fn states_verdicts_and_outcomes_are_read_from_the_words_they_are_written_as_and_from_no_others() {
    use crate::domain::approval::KnownOutcome;
    for state in StateName::ALL {
        assert_eq!(StateName::parse(state.as_str()), Some(state));
        assert_eq!(state.reason(), format!("APPROVAL_{}", state.as_str().to_uppercase()));
    }
    for verdict in [Verdict::Approve, Verdict::Deny] {
        assert_eq!(Verdict::parse(verdict.as_str()), Some(verdict));
    }
    for known in [KnownOutcome::Started, KnownOutcome::Failed, KnownOutcome::Unknown] {
        assert_eq!(KnownOutcome::parse(known.as_str()), Some(known));
    }
    for word in ["", "Pending", "pending ", "PENDING", "approve", "Approve", "DENIED", "succeeded", "constructor"] {
        assert_eq!((StateName::parse(word), Verdict::parse(word), KnownOutcome::parse(word)), (None, None, None));
    }
}
