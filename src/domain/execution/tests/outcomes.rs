//! Every pair of a state and an outcome, with evidence and without, in time and late.

use super::*;
use crate::domain::testing::{documented, in_state};
use proptest::prelude::*;

/// The table's columns: the state of the record, and an instant at which it is in it.
const COLUMNS: [&str; 6] = ["started", "overdue", "timed out", "unknown", "succeeded", "failed"];

/// The records of one column, before and after `report_by` where that makes no difference.
fn records(column: &str) -> Vec<(Execution, Timestamp)> {
    let earlier = report(at(1));
    let late = started().report_by;
    let at_any_time = |state: ExecutionState| {
        let execution = in_state(started(), state);
        [at(2), near(late, -1), late, near(late, 1)].into_iter().map(|now| (execution.clone(), now)).collect()
    };
    match column {
        "started" => vec![(started(), at(0)), (started(), near(late, -1))],
        "overdue" => vec![(started(), late), (started(), near(late, 1))],
        "timed out" => vec![(started().as_of(late), late), (started().as_of(late), near(late, 1))],
        "unknown" => at_any_time(ExecutionState::Unknown(Some(earlier))),
        "succeeded" => at_any_time(ExecutionState::Succeeded(earlier)),
        "failed" => at_any_time(ExecutionState::Failed(earlier)),
        other => panic!("{other}"),
    }
}

/// What a report says beside the outcome.
type Said = fn(&mut Report);

const SAYING: [(&str, bool, Said); 6] = [
    ("", false, |_| {}),
    ("", false, |report| report.error_code = Some("500".to_owned())),
    ("", false, |report| report.duration = Some(Duration::from_secs(1))),
    ("", false, |report| {
        report.remote_reference = Some(String::new());
        report.detail = Some(" \n".to_owned());
    }),
    (", with evidence", true, |report| report.remote_reference = Some("message-1".to_owned())),
    (", with evidence", true, |report| report.detail = Some("seen in the outbox".to_owned())),
];

/// The cell of one row and column: the same for each way of saying it, and at each time.
fn cell(column: &str, outcome: Outcome, evidence: bool) -> String {
    let mut answers: Vec<String> = records(column)
        .into_iter()
        .flat_map(|(execution, now)| {
            SAYING.iter().filter(move |(_, is_evidence, _)| *is_evidence == evidence).map(move |(.., say)| {
                let mut report = report(now);
                say(&mut report);
                match execution.report(outcome, report) {
                    Ok(Reported::Changed(change)) => change.next.state.name().as_str().to_owned(),
                    Ok(Reported::AsItWas) => "=".to_owned(),
                    Err(ReportRefusal::OutcomeFinal(state)) => {
                        assert_eq!(state, execution.state.name());
                        "final".to_owned()
                    }
                    Err(ReportRefusal::EvidenceMissing) => "no evidence".to_owned(),
                }
            })
        })
        .collect();
    answers.dedup();
    assert_eq!(answers.len(), 1, "{outcome:?} on {column}, evidence {evidence}: {answers:?}");
    answers.remove(0)
}

#[test]
fn every_state_answers_every_outcome_as_documented() {
    let line = |name: &str, cells: [String; 6]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:<13}")).collect();
        format!("{name:<26}{cells}").trim_end().to_owned()
    };
    let mut lines = vec![line("", COLUMNS.map(str::to_owned))];
    for outcome in [Outcome::Succeeded, Outcome::Failed, Outcome::Unknown] {
        for (with, evidence) in [("", false), (", with evidence", true)] {
            let name = format!("{}{with}", outcome.as_str());
            lines.push(line(&name, COLUMNS.map(|column| cell(column, outcome, evidence))));
        }
    }
    let computed = lines.join("\n");
    let documented = documented(include_str!("../../execution.rs"), "What each report does").join("\n");
    assert_eq!(documented, computed, "the documentation of the module is to read:\n{computed}");
}

#[test]
fn a_report_is_in_time_until_the_microsecond_before_report_by() {
    let report_by = started().report_by;
    for outcome in [Outcome::Succeeded, Outcome::Failed] {
        let change = recorded(started().report(outcome, report(near(report_by, -1))));
        assert_eq!(change.valid_before, Some(report_by), "it must be saved in time as well");
        for late in [0, 1] {
            let now = near(report_by, late);
            assert_eq!(started().report(outcome, report(now)), Err(ReportRefusal::EvidenceMissing), "{late:+} µs");
            let evidence = Report { detail: Some("seen in the outbox".to_owned()), ..report(now) };
            let change = recorded(started().report(outcome, evidence));
            assert_eq!(change.valid_before, None, "what is late cannot become later");
        }
    }
}

#[test]
fn nobody_s_report_reads_as_unknown_from_report_by_on() {
    let execution = started();
    let before = near(execution.report_by, -1);
    assert_eq!(execution.clone().as_of(before), execution);
    assert!(execution.may_be_replayed(before));
    assert_eq!(execution.known_outcome(before), Some(KnownOutcome::Started));
    for late in [0, 1, 1_000_000_000_000] {
        let now = near(execution.report_by, late);
        let shown = execution.clone().as_of(now);
        assert_eq!(shown.state, ExecutionState::Unknown(None));
        assert_eq!(shown.version, execution.version + 1);
        assert_eq!(shown.clone().as_of(now), shown, "reading twice is reading once");
        assert!(!execution.may_be_replayed(now));
        assert!(!shown.may_be_replayed(now));
        assert_eq!(execution.known_outcome(now), Some(KnownOutcome::Unknown));
        assert_eq!(shown.known_outcome(now), Some(KnownOutcome::Unknown));
    }
}

#[test]
fn what_is_known_of_an_execution_is_what_a_person_is_told_before_a_retry() {
    for (state, known, twice) in [
        (ExecutionState::Started, Some(KnownOutcome::Started), true),
        (ExecutionState::Failed(report(at(1))), Some(KnownOutcome::Failed), false),
        (ExecutionState::Unknown(Some(report(at(1)))), Some(KnownOutcome::Unknown), true),
        (ExecutionState::Unknown(None), Some(KnownOutcome::Unknown), true),
        (ExecutionState::Succeeded(report(at(1))), None, false),
    ] {
        let execution = in_state(started(), state);
        assert_eq!(execution.known_outcome(at(2)), known);
        assert_eq!(known.is_some_and(KnownOutcome::may_do_twice), twice);
    }
}

#[test]
fn a_late_unknown_names_its_reporter_and_may_still_be_settled_once() {
    let now = near(started().report_by, 5);
    let unknown = settled(&started(), Outcome::Unknown, report(now));
    assert_eq!(unknown.state, ExecutionState::Unknown(Some(report(now))));
    assert_eq!(unknown.report(Outcome::Unknown, report(near(now, 1))), Ok(Reported::AsItWas));
    assert_eq!(unknown.report(Outcome::Failed, report(near(now, 1))), Err(ReportRefusal::EvidenceMissing));
    let evidence = Report { remote_reference: Some("message-1".to_owned()), ..report(near(now, 2)) };
    let sent = settled(&unknown, Outcome::Succeeded, evidence.clone());
    for outcome in [Outcome::Failed, Outcome::Unknown] {
        assert_eq!(
            sent.report(outcome, evidence.clone()),
            Err(ReportRefusal::OutcomeFinal(ExecutionStateName::Succeeded))
        );
    }
    assert_eq!(sent.report(Outcome::Succeeded, report(near(now, 3))), Ok(Reported::AsItWas));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_reports_unsettles_an_execution(
        steps in prop::collection::vec(
            (
                prop::sample::select(vec![Outcome::Succeeded, Outcome::Failed, Outcome::Unknown]),
                any::<bool>(),
                prop_oneof![4 => 0..3_i64, 1 => 59_999_990..60_000_010_i64],
            ),
            0..8,
        ),
    ) {
        let mut execution = started();
        let mut now = at(0);
        let mut changes = 0;
        for (outcome, evidence, wait) in steps {
            now = near(now, wait);
            let read = execution.clone().as_of(now);
            prop_assert_eq!(&read.clone().as_of(now), &read);
            let report = Report { detail: evidence.then(|| "seen".to_owned()), ..report(now) };
            // Whether or not somebody has written down that it is overdue, the report is received alike.
            let of_read = read.report(outcome, report.clone());
            match execution.report(outcome, report) {
                Ok(Reported::Changed(change)) => {
                    prop_assert!(matches!(read.state, ExecutionState::Started | ExecutionState::Unknown(_)));
                    prop_assert!(read.state == ExecutionState::Started || outcome == Outcome::Unknown || evidence);
                    prop_assert_eq!(change.next.version, execution.version + 1);
                    prop_assert_eq!(change.events.len(), 1);
                    prop_assert_eq!(&recorded(of_read).next.state, &change.next.state);
                    execution = change.next;
                    changes += 1;
                }
                other => prop_assert_eq!(of_read, other),
            }
        }
        prop_assert!(changes <= 2, "unknown, then settled once");
    }
}
