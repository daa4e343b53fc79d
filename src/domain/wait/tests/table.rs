//! Every pair of a state and a command.

use crate::domain::ids::WaitId;
use crate::domain::testing::{at, attempt_id, documented, id, near, opening, resuming, subject_with, wait_id, waiting};
use crate::domain::time::Timestamp;
use crate::domain::wait::{Opened, Opening, Resumed, Resuming, Wait, WaitChange, WaitRefusal, WaitStateName};
use std::time::Duration;

/// One wait in one state, and an instant at which it is still there.
struct Stand {
    wait: Wait,
    now: Timestamp,
}

/// The waits of the table are for revision 5, so that there are higher ones and lower ones.
fn fifth() -> Wait {
    let mut wait = waiting();
    wait.objective.revision = 5;
    wait
}

fn resumed() -> Wait {
    match fifth().resume(&resuming(), 0, at(1)) {
        Ok(Resumed::Changed(change)) => change.next,
        other => panic!("not resumed: {other:?}"),
    }
}

/// Every state's waits: the same one, by every way that leads there.
fn waits(state: WaitStateName) -> Vec<Stand> {
    let active = || [fifth(), resumed()].into_iter();
    let stand = |wait: Wait| Stand { wait, now: at(2) };
    match state {
        WaitStateName::Open => vec![stand(fifth())],
        WaitStateName::Resumed => vec![stand(resumed())],
        WaitStateName::Closed => {
            active().map(|wait| stand(wait.close(&id("closer"), None, at(2)).unwrap().unwrap().change.next)).collect()
        }
        WaitStateName::Replaced => active()
            .map(|wait| match other_objective(true).against(Some(&wait), at(2)) {
                Ok(Opened::Made { instead_of: Some(first), .. }) => stand(first.change.next),
                other => panic!("not replaced: {other:?}"),
            })
            .collect(),
        WaitStateName::Expired => active()
            .map(|wait| {
                let deadline = wait.expire_time;
                Stand { wait: wait.expired(deadline).unwrap().change.next, now: near(deadline, 1) }
            })
            .collect(),
    }
}

/// Waits whose time is over, which nobody has written down: they must behave like those of which somebody did.
fn overdue() -> Vec<Stand> {
    [fifth(), resumed()].map(|wait| Stand { now: wait.expire_time, wait }).into_iter().collect()
}

fn other_objective(replace: bool) -> Opening {
    let mut other = Opening { id: wait_id(2), replace, ..opening() };
    other.objective.id = id("objective-2");
    other
}

type Command = Box<dyn Fn(&Stand) -> String>;

/// The table's rows.
fn commands() -> Vec<(&'static str, Command)> {
    let again = |change: fn(&mut Opening)| {
        let mut again = Opening { id: wait_id(2), expire_after: None, ..opening() };
        again.objective.revision = 5;
        change(&mut again);
        open(again)
    };
    let another = |pending: u32, change: fn(&mut Resuming)| {
        let mut another = Resuming { attempt: attempt_id(2), ..resuming() };
        change(&mut another);
        resume(another, pending)
    };
    vec![
        ("open, as before", again(|_| {})),
        ("open, another summary", again(|again| again.summary = "something else".to_owned())),
        ("open, for longer", again(|again| again.expire_after = Some(Duration::from_secs(3_600)))),
        ("open, for shorter", again(|again| again.expire_after = Some(Duration::from_secs(1)))),
        ("open, a higher revision", again(|again| again.objective.revision = 6)),
        ("open, a lower revision", again(|again| again.objective.revision = 4)),
        ("open, another objective", open(other_objective(false))),
        ("the same, replacing", open(other_objective(true))),
        ("resume", another(0, |_| {})),
        ("resume by the same attempt", only(WaitStateName::Resumed, resume(resuming(), 0))),
        ("resume, something pending", another(1, |_| {})),
        ("resume another version", another(0, |another| another.version = 9)),
        ("resume another transcript", another(0, |another| another.transcript = id("transcript-2"))),
        ("resume as another agent", another(0, |another| another.agent = id("other"))),
        ("resume for another principal", another(0, |another| another.principal = id("pia"))),
        ("close by who closed", only(WaitStateName::Closed, close("closer"))),
        ("close by another caller", close("another")),
        ("its time is over", Box::new(expire)),
        ("ask in it", ask(5)),
        ("ask for another objective", ask(6)),
    ]
}

fn only(state: WaitStateName, command: Command) -> Command {
    Box::new(move |stand| if stand.wait.state.name() == state { command(stand) } else { "·".to_owned() })
}

fn open(opening: Opening) -> Command {
    Box::new(move |stand| {
        let wait = &stand.wait;
        let active = matches!(wait.state.name(), WaitStateName::Open | WaitStateName::Resumed);
        // The store hands over the active one, and what is over is none.
        match opening.against(active.then_some(wait), stand.now) {
            Ok(Opened::AsItWas) => "=".to_owned(),
            Ok(Opened::Changed(change)) => reached(&change, wait.id),
            Ok(Opened::Made { instead_of, wait: made }) => {
                assert_eq!((made.next.id, made.next.version), (wait_id(2), 1));
                match instead_of {
                    // Of an overdue one, that it is over is written down first.
                    Some(first) if first.change.next.state.name() == WaitStateName::Expired => "new".to_owned(),
                    Some(first) => format!("{} new", reached(&first, wait.id)),
                    None => "new".to_owned(),
                }
            }
            Err(refusal) => refusal.reason().to_owned(),
        }
    })
}

fn resume(resuming: Resuming, pending: u32) -> Command {
    Box::new(move |stand| match stand.wait.resume(&resuming, pending, stand.now) {
        Ok(Resumed::Changed(change)) => change.next.state.name().to_string(),
        Ok(Resumed::Replayed) => "=".to_owned(),
        Err(refusal) => refusal.reason().to_owned(),
    })
}

fn close(caller: &'static str) -> Command {
    Box::new(move |stand| match stand.wait.close(&id(caller), None, stand.now) {
        Ok(Some(change)) => reached(&change, stand.wait.id),
        Ok(None) => "=".to_owned(),
        Err(refusal) => refusal.reason().to_owned(),
    })
}

fn expire(stand: &Stand) -> String {
    let deadline = near(stand.now, 1_000_000_000_000);
    stand.wait.expired(deadline).map_or_else(|| "=".to_owned(), |change| reached(&change, stand.wait.id))
}

fn ask(revision: u64) -> Command {
    Box::new(move |stand| {
        let subject = subject_with(|subject| subject.objective.as_mut().unwrap().revision = revision);
        match stand.wait.accepts(&subject, stand.now) {
            Ok(ends_by) => {
                assert_eq!(ends_by, stand.wait.expire_time);
                "=".to_owned()
            }
            Err(refusal) => refusal.reason().to_owned(),
        }
    })
}

fn reached(change: &WaitChange, id: WaitId) -> String {
    assert_eq!(change.change.next.id, id);
    let withdrawn = change.withdrawal.as_ref().map(|withdrawal| {
        assert_eq!(withdrawal.wait, id);
        "*"
    });
    format!("{}{}", change.change.next.state.name(), withdrawn.unwrap_or_default())
}

#[test]
fn every_state_answers_every_command_as_documented() {
    let mut lines = vec![line("", &WaitStateName::ALL.map(|state| state.to_string()))];
    for (name, command) in commands() {
        let cells = WaitStateName::ALL.map(|state| {
            let mut answers: Vec<String> = waits(state).iter().map(&command).collect();
            answers.dedup();
            assert_eq!(answers.len(), 1, "{name} differs between two ways to {state}: {answers:?}");
            answers.remove(0)
        });
        lines.push(line(name, &cells));
    }
    let computed = lines.join("\n");
    let documented = documented(include_str!("../../wait.rs"), "What each command does").join("\n");
    assert_eq!(documented, computed, "the documentation of the module is to read:\n{computed}");
}

fn line(name: &str, [open, resumed, closed, replaced, expired]: &[String; 5]) -> String {
    format!("{name:<29}{open:<23}{resumed:<21}{closed:<12}{replaced:<14}{expired}").trim_end().to_owned()
}

#[test]
fn an_overdue_wait_behaves_like_an_expired_one_before_anybody_wrote_that_down() {
    let of_one_state = ["its time is over", "resume by the same attempt"];
    for (name, command) in commands().into_iter().filter(|(name, _)| !of_one_state.contains(name)) {
        for (overdue, expired) in overdue().iter().zip(&waits(WaitStateName::Expired)) {
            assert_eq!(command(overdue), command(expired), "{name}");
        }
    }
    for Stand { wait, now } in overdue() {
        let refused = Err(WaitRefusal::Over(WaitStateName::Expired));
        assert_eq!(wait.resume(&resuming(), 0, now), refused, "nor is a resumption answered again");
        assert_eq!(wait.state_at(now), WaitStateName::Expired);
        assert_eq!(wait.clone().as_of(now), wait.expired(now).unwrap().change.next);
    }
}

#[test]
fn every_refusal_has_a_reason_of_its_own_that_is_listed() {
    use WaitRefusal::*;
    let refusals = [
        Over(WaitStateName::Closed),
        Over(WaitStateName::Replaced),
        Over(WaitStateName::Expired),
        PrincipalMismatch,
        AgentMismatch,
        TranscriptChanged,
        AlreadyResumed,
        VersionChanged,
        Pending(1),
        ObjectiveConflict,
        ObjectiveStale,
        NotOpen,
        ObjectiveDiffers,
        TooMany(1),
    ];
    assert_eq!(refusals.map(WaitRefusal::reason), WaitRefusal::REASONS);
}
