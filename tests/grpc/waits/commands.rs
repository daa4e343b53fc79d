//! Every pair of a wait's state and a command, through the door: the same table that the domain documents.

use super::*;
use std::time::Duration;
use tonic::Code;

const STATES: [&str; 5] = ["open", "resumed", "closed", "replaced", "expired"];

/// One wait in one state, of a principal of its own, with an approval in it that had been approved.
struct Stand<'a> {
    sidecar: &'a Sidecar,
    state: &'static str,
    principal: String,
    wait: Wait,
    approval: Approval,
    /// The attempt that resumed it, if one did.
    attempt: String,
}

/// The objective of the table is in its revision 5, so that there are higher ones and lower ones.
fn opening_of(principal: &str, objective: &str, revision: u64) -> OpenWaitRequest {
    OpenWaitRequest { principal: principal.to_owned(), expire_after: None, ..opening_for(objective, revision) }
}

impl<'a> Stand<'a> {
    async fn new(sidecar: &'a Sidecar, state: &'static str) -> Self {
        let principal = format!("principal-{}", new_attempt());
        let first = OpenWaitRequest { expire_after: span(3_600, 0), ..opening_of(&principal, "input-1", 5) };
        let mut wait = sidecar.open_wait(first).await.unwrap().wait.unwrap();
        let call = Invocation { principal: principal.clone(), ..email_for("input-1", 5) };
        let (approval, _) = sidecar.ask_in(&wait, call).await;
        let approval = sidecar.decide(&principal, &approval.id, Verdict::Approve).await.unwrap();
        let attempt = new_attempt();
        match state {
            "open" => {}
            "resumed" => drop(sidecar.resume_wait(&wait, &attempt).await.unwrap()),
            "closed" => drop(sidecar.close_wait_as("runtime-2", &wait).await.unwrap()),
            "replaced" => {
                let other = OpenWaitRequest { replace: true, ..opening_of(&principal, "input-2", 0) };
                let other = sidecar.open_wait(other).await.unwrap().wait.unwrap();
                // The one in its place would be in the way of what is tried.
                sidecar.close_wait(&other).await.unwrap();
            }
            _ => sidecar.stand_at(&wait.expire_time, 0),
        }
        wait = sidecar.get_wait(&wait).await;
        Self { sidecar, state, principal, wait, approval, attempt }
    }

    async fn withdrawn(&self) -> &'static str {
        let was_open = matches!(self.state, "open" | "resumed");
        let approval = self.sidecar.read(&self.approval).await;
        let is_open = approval.state() == ApprovalState::Approved;
        if was_open && !is_open { "*" } else { "" }
    }

    /// The wait's state now, in a word; `=` if it is as it was.
    async fn reached(&self) -> String {
        let wait = self.sidecar.get_wait(&self.wait).await;
        let withdrawn = self.withdrawn().await;
        if wait == self.wait && withdrawn.is_empty() {
            return "=".to_owned();
        }
        format!("{}{withdrawn}", word(&wait))
    }

    async fn refused(&self, status: &Status) -> String {
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        assert_eq!(told(status, "wait_id"), self.wait.id);
        assert_eq!(told(status, "version"), self.wait.version.to_string());
        assert_eq!(told(status, "state"), word(&self.wait));
        assert_eq!(self.sidecar.get_wait(&self.wait).await, self.wait, "a refusal changes nothing");
        assert_eq!(self.withdrawn().await, "");
        reason(status)
    }

    async fn open(&self, change: fn(&mut OpenWaitRequest)) -> String {
        let mut request = opening_of(&self.principal, "input-1", 5);
        change(&mut request);
        match self.sidecar.open_wait(request.clone()).await {
            Ok(opened) if opened.existing => {
                let wait = opened.wait.unwrap();
                assert_eq!((wait.state(), &wait.summary), (WaitState::Open, &request.summary));
                assert_eq!(wait, self.sidecar.get_wait(&self.wait).await);
                self.reached().await
            }
            Ok(opened) => {
                let made = opened.wait.unwrap();
                assert_eq!((made.state(), made.version), (WaitState::Open, 1));
                assert_ne!(made.id, self.wait.id);
                match self.reached().await.as_str() {
                    "=" => "new".to_owned(),
                    reached => format!("{reached} new"),
                }
            }
            Err(status) => self.refused(&status).await,
        }
    }

    async fn resume(&self, attempt: &str, change: fn(&mut ResumeWaitRequest)) -> String {
        let mut request = resuming(&self.wait, attempt);
        // The version that was seen when the agent stopped.
        request.version = 1;
        change(&mut request);
        match self.sidecar.agent().resume_wait(request).await {
            Ok(resumed) => {
                let resumed = resumed.into_inner();
                assert_eq!(resumed.replayed, self.state == "resumed");
                assert_eq!(resumed.wait.unwrap(), self.sidecar.get_wait(&self.wait).await);
                assert_eq!(resumed.approvals.len(), 1);
                self.reached().await
            }
            Err(status) => self.refused(&status).await,
        }
    }

    async fn close(&self, caller: &str) -> String {
        match self.sidecar.close_wait_as(caller, &self.wait).await {
            Ok(closed) => {
                assert_eq!(closed, self.sidecar.get_wait(&self.wait).await);
                self.reached().await
            }
            Err(status) => self.refused(&status).await,
        }
    }

    async fn ask(&self, revision: u64) -> String {
        let call = Invocation {
            principal: self.principal.clone(),
            conversation: "another question".to_owned(),
            ..email_for("input-1", revision)
        };
        match self.sidecar.request_in(&self.wait, call.clone()).await {
            Ok(asked) => {
                let approval = asked.approval.unwrap();
                assert_eq!(approval.wait_id, self.wait.id);
                self.sidecar.cancel_as("runtime", &approval).await.unwrap();
                assert_eq!(self.sidecar.get_wait(&self.wait).await.version, self.wait.version);
                "=".to_owned()
            }
            Err(status) => {
                // Where the policy asks nobody, the wait is asked all the same.
                let allowed = Invocation { action: "GMAIL_FETCH_EMAILS".to_owned(), ..call };
                let allowed = self.sidecar.request_in(&self.wait, allowed).await.unwrap_err();
                assert_eq!((reason(&allowed), allowed.message()), (reason(&status), status.message()));
                self.refused(&status).await
            }
        }
    }

    async fn its_time_is_over(&self) -> String {
        if micros(&self.wait.expire_time) > self.sidecar.store_micros() {
            self.sidecar.stand_at(&self.wait.expire_time, 0);
        }
        self.reached().await
    }

    async fn with_something_pending(&self) -> String {
        if self.state == "open" {
            let call = Invocation { principal: self.principal.clone(), ..email_for("input-1", 5) };
            let reply = Invocation { action: "GMAIL_REPLY".to_owned(), ..call };
            let (pending, _) = self.sidecar.ask_in(&self.wait, reply).await;
            let status = self.sidecar.agent().resume_wait(resuming(&self.wait, &new_attempt())).await.unwrap_err();
            self.sidecar.cancel_as("runtime", &pending).await.unwrap();
            return reason(&status);
        }
        self.resume(&new_attempt(), |_| {}).await
    }

    async fn answers(&self, command: &str) -> String {
        let another = &new_attempt();
        match command {
            "open, as before" => self.open(|_| {}).await,
            "open, another summary" => self.open(|again| again.summary = "something else".to_owned()).await,
            "open, for longer" => self.open(|again| again.expire_after = span(7_200, 0)).await,
            "open, for shorter" => self.open(|again| again.expire_after = span(1, 0)).await,
            "open, a higher revision" => self.open(|again| again.objective.as_mut().unwrap().revision = 6).await,
            "open, a lower revision" => self.open(|again| again.objective.as_mut().unwrap().revision = 4).await,
            "open, another objective" => self.open(|again| again.objective = opening_for("input-3", 0).objective).await,
            "the same, replacing" => {
                self.open(|again| {
                    again.objective = opening_for("input-3", 0).objective;
                    again.replace = true;
                })
                .await
            }
            "resume" => self.resume(another, |_| {}).await,
            "resume by the same attempt" if self.state == "resumed" => self.resume(&self.attempt, |_| {}).await,
            "close by who closed" if self.state == "closed" => self.close("runtime-2").await,
            "resume by the same attempt" | "close by who closed" => "·".to_owned(),
            "resume, something pending" => self.with_something_pending().await,
            "resume another version" => self.resume(another, |another| another.version = 9).await,
            "resume another transcript" => self.resume(another, |another| another.transcript = "t2".to_owned()).await,
            "resume as another agent" => self.resume(another, |another| another.agent = "other-1".to_owned()).await,
            "resume for another principal" => {
                self.resume(another, |another| another.principal = "pia".to_owned()).await
            }
            "close by another caller" => self.close("runtime").await,
            "its time is over" => self.its_time_is_over().await,
            "ask in it" => self.ask(5).await,
            "ask for another objective" => self.ask(6).await,
            other => panic!("a command that this test does not know: {other}"),
        }
    }
}

/// The state in the table's word.
fn word(wait: &Wait) -> &'static str {
    match (wait.state(), wait.close_kind()) {
        (WaitState::Open, WaitCloseKind::Unspecified) => "open",
        (WaitState::Resumed, WaitCloseKind::Unspecified) => "resumed",
        (WaitState::Closed, WaitCloseKind::Closed) => "closed",
        (WaitState::Closed, WaitCloseKind::Replaced) => "replaced",
        (WaitState::Closed, WaitCloseKind::Expired) => "expired",
        other => panic!("{other:?} is no state"),
    }
}

/// The documented table: each command with its five answers.
fn documented() -> Vec<(String, Vec<String>)> {
    let source = include_str!("../../../src/domain/wait.rs");
    let lines = source.lines().map_while(|line| line.strip_prefix("//!")).map(|line| line.trim_start_matches(' '));
    let block = lines.skip_while(|line| !line.starts_with("What each command")).skip_while(|line| *line != "```text");
    let mut rows = block.skip(1).take_while(|line| *line != "```");
    let header = rows.next().unwrap();
    assert_eq!(header.split_whitespace().collect::<Vec<_>>(), STATES);
    rows.map(|row| {
        // A name is followed by its answers, and no answer but one has a space in it.
        let at = row.match_indices(' ').map(|(at, _)| at);
        let split = at.map(|at| row.split_at(at)).find(|(_, rest)| cells(rest).is_some());
        let (name, rest) = split.unwrap_or_else(|| panic!("{row:?} is no row"));
        (name.trim().to_owned(), cells(rest).unwrap())
    })
    .collect()
}

fn cells(text: &str) -> Option<Vec<String>> {
    let joined = text.replace("* new", "*+new");
    let cells: Vec<String> = joined.split_whitespace().map(|cell| cell.replace('+', " ")).collect();
    (cells.len() == 5).then_some(cells)
}

#[tokio::test]
async fn every_state_answers_every_command_as_documented() {
    let sidecar = Sidecar::with(POLICY, (1_000, 100_000)).await;
    let table = documented();
    assert_eq!(table.len(), 20);
    for (command, answers) in table {
        for (state, answer) in STATES.into_iter().zip(answers) {
            let stand = Stand::new(&sidecar, state).await;
            assert_eq!(stand.answers(&command).await, answer, "{command} of a wait that is {state}");
        }
        sidecar.advance(Duration::from_secs(1));
    }
}

#[tokio::test]
async fn who_is_refused_is_told_what_stands_in_the_way() {
    let sidecar = Sidecar::start().await;
    let wait = sidecar.waiting().await;
    let conflict =
        refused(sidecar.open_wait(opening_for("input-2", 1)).await, Code::FailedPrecondition, "OBJECTIVE_CONFLICT");
    assert_eq!(told(&conflict, "wait_id"), wait.id);
    assert!(conflict.message().contains(&wait.id), "{}", conflict.message());
    let higher = sidecar.open_wait(opening_for("input-1", 7)).await.unwrap().wait.unwrap();
    let stale = refused(sidecar.open_wait(opening()).await, Code::FailedPrecondition, "OBJECTIVE_STALE");
    assert_eq!(told(&stale, "revision"), "7");
    let changed =
        refused(sidecar.resume_wait(&wait, &new_attempt()).await, Code::FailedPrecondition, "WAIT_VERSION_CHANGED");
    assert_eq!(told(&changed, "version"), "2");
    let gone_on = sidecar.resumed(&higher).await;
    let late = sidecar.resume_wait(&gone_on, &new_attempt()).await;
    let late = refused(late, Code::FailedPrecondition, "WAIT_ALREADY_RESUMED");
    assert_eq!((told(&late, "state_by"), told(&late, "state_time")), ("runtime".to_owned(), START.to_string()));
    sidecar.close_wait_as("runtime-2", &wait).await.unwrap();
    let over = refused(sidecar.close_wait(&wait).await, Code::FailedPrecondition, "WAIT_CLOSED");
    assert_eq!((told(&over, "state_by"), told(&over, "state_time")), ("runtime-2".to_owned(), START.to_string()));
    assert!(over.message().contains("runtime-2"), "{}", over.message());
}

#[tokio::test]
async fn what_a_request_lacks_or_has_too_much_of_is_named() {
    let sidecar = Sidecar::start().await;
    let with = |change: fn(&mut OpenWaitRequest)| {
        let mut request = opening();
        change(&mut request);
        sidecar.open_wait(request)
    };
    wrong(with(|request| request.objective = None).await, "objective");
    wrong(with(|request| request.objective.as_mut().unwrap().revision = 1 << 53).await, "objective.revision");
    wrong(with(|request| request.summary.clear()).await, "summary");
    wrong(with(|request| request.summary = "a".repeat(501)).await, "summary");
    for (seconds, nanos) in [(0, 999_999_999), (0, 0), (-1, 0), (604_800, 1), (i64::MAX, 0), (1, -1)] {
        let request = OpenWaitRequest { expire_after: span(seconds, nanos), ..opening() };
        wrong(sidecar.open_wait(request).await, "expire_after");
    }
    assert!(sidecar.audit().await.is_empty());
    let request = OpenWaitRequest { summary: "wait\u{202e}for\0it".to_owned(), ..opening() };
    let wait = sidecar.open_wait(request).await.unwrap().wait.unwrap();
    assert_eq!(wait.summary, r"wait\u{202E}for\u{0}it");
    let never = ResumeWaitRequest { version: 0, ..resuming(&wait, &new_attempt()) };
    wrong(sidecar.agent().resume_wait(never).await, "version");
    for (seconds, objective) in [(1, "shortest"), (604_800, "longest")] {
        let request = OpenWaitRequest { expire_after: span(seconds, 0), principal: objective.to_owned(), ..opening() };
        let wait = sidecar.open_wait(request).await.unwrap().wait.unwrap();
        assert_eq!(micros(&wait.expire_time), sidecar.store_micros() + seconds * 1_000_000);
    }
    let silent = OpenWaitRequest { expire_after: None, principal: "silent".to_owned(), ..opening() };
    let wait = sidecar.open_wait(silent).await.unwrap().wait.unwrap();
    assert_eq!(micros(&wait.expire_time), sidecar.store_micros() + 86_400_000_000);
}

#[tokio::test]
async fn a_wait_is_of_one_principal_agent_and_transcript() {
    let sidecar = Sidecar::start().await;
    let mut ids = std::collections::BTreeSet::from([sidecar.waiting().await.id]);
    for change in [
        (|request| request.principal = "pia".to_owned()) as fn(&mut OpenWaitRequest),
        |request| request.agent = "other-1".to_owned(),
        |request| request.objective.as_mut().unwrap().transcript = "t2".to_owned(),
        |request| request.objective.as_mut().unwrap().transcript = "T1".to_owned(),
    ] {
        let mut request = opening();
        change(&mut request);
        let opened = sidecar.open_wait(request).await.unwrap();
        assert!(!opened.existing && ids.insert(opened.wait.unwrap().id));
    }
    // A caller and a conversation are no part of what a wait is.
    let request = OpenWaitRequest { conversation: "elsewhere".to_owned(), ..opening() };
    let opened = sidecar.agent_as("runtime-2").open_wait(request).await.unwrap().into_inner();
    assert!(opened.existing && ids.contains(&opened.wait.as_ref().unwrap().id));
    let wait = opened.wait.unwrap();
    assert_eq!((wait.conversation.as_str(), wait.opened_by.as_str()), ("conversation-1", "runtime"));
    // Nor of what may be asked in it.
    let (approval, _) = sidecar.ask_in(&wait, Invocation { conversation: "elsewhere".to_owned(), ..email() }).await;
    assert_eq!(approval.wait_id, wait.id);
}

#[tokio::test]
async fn what_ends_a_wait_is_told_in_its_approvals_to_people_and_agents() {
    let sidecar = Sidecar::start().await;
    for (ending, sentence) in [
        ("closed", "was closed: the user left"),
        ("replaced", "was replaced by one for another objective"),
        ("superseded", "is for a later revision of its objective"),
    ] {
        let principal = format!("principal-{ending}");
        let of = |request: OpenWaitRequest| OpenWaitRequest { principal: principal.clone(), ..request };
        let wait = sidecar.open_wait(of(opening())).await.unwrap().wait.unwrap();
        let call = Invocation { principal: principal.clone(), ..email() };
        let (approved, token) = sidecar.ask_in(&wait, call.clone()).await;
        sidecar.decide(&principal, &approved.id, Verdict::Approve).await.unwrap();
        let reply = Invocation { action: "GMAIL_REPLY".to_owned(), ..call.clone() };
        let (pending, _) = sidecar.ask_in(&wait, reply).await;
        match ending {
            "closed" => drop(sidecar.close_wait(&wait).await.unwrap()),
            "replaced" => {
                let other = OpenWaitRequest { replace: true, ..of(opening_for("input-2", 1)) };
                sidecar.open_wait(other).await.unwrap();
            }
            _ => drop(sidecar.open_wait(of(opening_for("input-1", 2))).await.unwrap()),
        }
        for approval in [&approved, &pending] {
            let withdrawn = sidecar.read(approval).await;
            assert_eq!(withdrawn.state(), ApprovalState::Cancelled);
            assert_eq!(withdrawn.state_reason, format!("wait {} {sentence}", wait.id));
            assert_eq!(
                (withdrawn.closed_by.as_str(), withdrawn.version),
                ("runtime", if approval.id == approved.id { 3 } else { 2 })
            );
            assert_eq!(sidecar.seen_by(&principal, &approval.id).await.unwrap(), withdrawn);
        }
        let listed = sidecar.listed(&principal, &[ApprovalState::Cancelled]).await;
        assert_eq!(listed.len(), 2);
        assert!(sidecar.listed(&principal, &[ApprovalState::Pending, ApprovalState::Approved]).await.is_empty());
        let gate = refused(sidecar.consume(&token, call).await, Code::FailedPrecondition, "APPROVAL_CANCELLED");
        assert_eq!(told(&gate, "state_by"), "runtime");
        let late = sidecar.decide(&principal, &pending.id, Verdict::Deny).await;
        refused(late, Code::FailedPrecondition, "APPROVAL_CANCELLED");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_stops_in_so_many_transcripts_and_no_more() {
    let sidecar = std::sync::Arc::new(Sidecar::start().await);
    let in_transcript = |number: usize| {
        let objective =
            Some(Objective { transcript: format!("transcript-{number}"), id: "input-1".to_owned(), revision: 1 });
        OpenWaitRequest { objective, ..opening() }
    };
    let opening: Vec<_> = (0..1_000)
        .map(|number| {
            let (sidecar, request) = (std::sync::Arc::clone(&sidecar), in_transcript(number));
            tokio::spawn(async move { sidecar.open_wait(request).await.unwrap().wait.unwrap() })
        })
        .collect();
    let mut last = None;
    for opened in opening {
        last = Some(opened.await.unwrap());
    }
    let refused = refused(sidecar.open_wait(in_transcript(1_000)).await, Code::ResourceExhausted, "TOO_MANY_WAITS");
    assert!(refused.message().contains("1000"), "{refused:?}");
    assert!(sidecar.open_wait(in_transcript(3)).await.unwrap().existing, "what is active is found");
    sidecar.close_wait(&last.unwrap()).await.unwrap();
    sidecar.open_wait(in_transcript(1_000)).await.unwrap();
}
