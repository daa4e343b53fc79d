//! The story, step by step. Each step says what it expects and checks it.

use super::Stopped;
use super::mailbox::Mailbox;
use super::sidecar::{AGENT, PERSON, Sidecar};
use crate::address::Address;
use crate::cli::remote::Refused;
use crate::cli::show::{self, short};
use crate::cli::terminal::{Layout, ask, table, width, wrap};
use crate::client::{self, Authenticated};
use crate::proto::agent_service_client::AgentServiceClient;
use crate::proto::approver_service_client::ApproverServiceClient;
use crate::proto::operator_service_client::OperatorServiceClient;
use crate::proto::{self, ApprovalState, Decision, Outcome, Verdict};
use std::fmt::Debug;
use std::io::{self, Write};
use std::time::Duration;
use tonic::{Response, Status};
use uuid::Uuid;

const INDENT: usize = 3;
/// The column of calls.
const CALL: usize = 20;
/// Beyond a deadline it is over; this much more keeps the two clocks of one machine apart.
const AFTER: Duration = Duration::from_millis(50);

/// The longest cell of the audit's table: six of them fit the width.
const CELL: usize = 21;

const MAILBOX: &str = "work-mailbox-a";
const ANOTHER_MAILBOX: &str = "work-mailbox-b";
const READ: &str = "GMAIL_FETCH_EMAILS";
const SEND: &str = "GMAIL_SEND_EMAIL";
const DELETE: &str = "GMAIL_DELETE_EMAIL";
const EMAIL: &str = r#"{"recipient_email":"eve@acme.com","subject":"Offer 4711","body":"Hello Eve,\nwe take the offer.\nDana","relay":{"host":"smtp.acme.com","password":"hunter2-hunter2"}}"#;
/// The same value: other white space, other order, an escape for a letter.
const EMAIL_REORDERED: &str = r#"{ "body": "Hello Eve,\nwe take the offer.\nDana", "relay": { "password": "hunter2-hunter2",
    "host": "smtp.acme.com" }, "subject": "Offer 4711", "recipient_email": "\u0065ve@acme.com" }"#;
const EMAIL_TO_ANOTHER: &str = r#"{"recipient_email":"mallory@rival.example","subject":"Offer 4711","body":"Hello Eve,\nwe take the offer.\nDana","relay":{"host":"smtp.acme.com","password":"hunter2-hunter2"}}"#;
const NOTE: &str = "You asked me to answer Eve. I read her offer; nothing in it is unusual.";

/// The demonstration, told to `out`.
pub(super) struct Story<'a> {
    out: &'a mut dyn Write,
    agent: AgentServiceClient<Authenticated>,
    /// The agent's own credential, tried at the person's door.
    agent_as_person: ApproverServiceClient<Authenticated>,
    person: ApproverServiceClient<Authenticated>,
    operator: OperatorServiceClient<Authenticated>,
    address: Address,
    mailbox: Mailbox,
    step: u32,
}

/// A question that was asked.
struct Asked {
    approval: proto::Approval,
    consume_token: String,
    invocation: proto::Invocation,
}

impl<'a> Story<'a> {
    /// A story at this sidecar.
    pub(super) fn new(sidecar: &Sidecar, out: &'a mut dyn Write) -> Result<Self, String> {
        let channel = client::channel(sidecar.running.address()).map_err(|cause| cause.to_string())?;
        Ok(Self {
            out,
            agent: client::agent(channel.clone(), sidecar.agent.clone()),
            agent_as_person: client::approver(channel.clone(), sidecar.agent.clone()),
            person: client::approver(channel.clone(), sidecar.person.clone()),
            operator: client::operator(channel, sidecar.operator.clone()),
            address: sidecar.running.address(),
            mailbox: Mailbox::default(),
            step: 0,
        })
    }

    /// Tells all of it, with this answer to the question; with none it is put to whoever sits at the terminal.
    pub(super) async fn tell(mut self, answer: Option<bool>) -> Result<(), Stopped> {
        self.say(&format!(
            "A Countersign sidecar runs in this process, on {} and with an empty database that is removed at the end. \
             {AGENT} is an agent that acts for {PERSON}; each has a token of its own. Everything below is what the \
             sidecar answers.",
            self.address
        ))?;
        self.reads_mail().await?;
        let asked = self.wants_to_send().await?;
        self.is_not_to_be_had_without_a_person(&asked).await?;
        if self.is_answered(&asked, answer).await? {
            self.cannot_be_used_for_anything_else(&asked).await?;
            self.sends(&asked).await?;
            self.cannot_be_used_twice(&asked).await?;
            self.is_used_too_late().await?;
            self.audit(&asked, "approval.consumed").await?;
            self.is_denied().await?;
            expect("one email sent", 1, self.mailbox.count())?;
            self.say("One email was sent: the one that was approved, once. To go on: countersign serve --dev")
        } else {
            self.learns_of_the_denial(&asked).await?;
            self.audit(&asked, "approval.denied").await?;
            expect("no email sent", 0, self.mailbox.count())?;
            self.say("No email was sent. To see the other ending: countersign demo --answer approve")
        }
    }

    async fn reads_mail(&mut self) -> Result<(), Stopped> {
        self.heading("The agent reads mail: nobody is asked")?;
        let invocation = gmail(READ, MAILBOX, r#"{"query":"from:eve is:unread"}"#);
        let request = proto::EvaluateRequest { invocation: Some(invocation.clone()), explain: false };
        let answer = answered(self.agent.evaluate(request).await)?;
        expect("Evaluate allows reading", Decision::Allow, answer.decision())?;
        self.decision("Evaluate", answer.decision(), &answer.reason, &answer.message)?;
        let answer = answered(self.consume("", &invocation).await)?;
        let permit = answer.permit.unwrap_or_default();
        expect("no approval is used up", "", permit.approval_id.as_str())?;
        step().field(self.out, "Consume", &format!("a permit, without a token: execution {}", permit.execution_id))?;
        self.report(&permit, "").await
    }

    async fn wants_to_send(&mut self) -> Result<Asked, Stopped> {
        self.heading("The agent wants to send an email: a person must confirm")?;
        let invocation = gmail(SEND, MAILBOX, EMAIL);
        let refused = refused(self.consume("", &invocation).await, "APPROVAL_REQUIRED")?;
        self.refusal("without a token", &refused)?;
        let answer = self.request(&invocation, NOTE).await?;
        self.decision("RequestApproval", answer.decision(), &answer.reason, &answer.message)?;
        let asked = asked(answer, invocation)?;
        self.heading(&format!("What {PERSON} is shown"))?;
        // Read at the person's own door: what the agent says of its question is not what a person should see.
        let request = proto::ApproverServiceGetApprovalRequest {
            approval_id: asked.approval.id.clone(),
            principal: String::new(),
        };
        let shown = answered(self.person.get_approval(request).await)?.approval.unwrap_or_default();
        expect("the question waits", ApprovalState::Pending, shown.state())?;
        expect("one part is masked", 1, shown.omissions.len())?;
        expect("the secret is not shown", false, shown.preview_json.contains("hunter2"))?;
        show::question(self.out, show::layout(INDENT), &shown)?;
        Ok(Asked { approval: shown, ..asked })
    }

    async fn is_not_to_be_had_without_a_person(&mut self, asked: &Asked) -> Result<(), Stopped> {
        self.heading("The agent cannot answer its own question, nor go ahead meanwhile")?;
        let request = decide(&asked.approval, Verdict::Approve, "");
        let refused_role = refused(self.agent_as_person.decide(request).await, "ROLE_NOT_ALLOWED")?;
        self.refusal("Decide", &refused_role)?;
        let refused_pending = refused(self.consume_asked(asked).await, "APPROVAL_PENDING")?;
        self.refusal("Consume", &refused_pending)
    }

    async fn is_answered(&mut self, asked: &Asked, answer: Option<bool>) -> Result<bool, Stopped> {
        self.heading(&format!("{PERSON} answers{}", if answer.is_none() { ": that is you" } else { "" }))?;
        let allowed = match answer {
            Some(allowed) => {
                writeln!(self.out, "   Allow this? [y]es/[n]o: {} (by --answer)", if allowed { "yes" } else { "no" })?;
                allowed
            }
            None => ask("   Allow this?", self.out).await?.ok_or(Stopped::Undecided)?,
        };
        let (verdict, state, reason) = match allowed {
            true => (Verdict::Approve, ApprovalState::Approved, ""),
            false => (Verdict::Deny, ApprovalState::Denied, "I want to read the offer myself first."),
        };
        let answer = self.person.decide(decide(&asked.approval, verdict, reason)).await;
        if answer.as_ref().is_err_and(|status| Refused::of(status).reason == "APPROVAL_EXPIRED") {
            return Err(Stopped::TooLate);
        }
        let approval = answered(answer)?.approval.unwrap_or_default();
        expect("the answer is recorded", state, approval.state())?;
        self.decided(&approval)?;
        Ok(allowed)
    }

    async fn cannot_be_used_for_anything_else(&mut self, asked: &Asked) -> Result<(), Stopped> {
        self.heading("The agent tries the approval on something else")?;
        let others = [
            ("another recipient", gmail(SEND, MAILBOX, EMAIL_TO_ANOTHER), "ARGUMENTS_CHANGED"),
            ("another mailbox", gmail(SEND, ANOTHER_MAILBOX, EMAIL), "ACCOUNT_MISMATCH"),
            ("another action", gmail(DELETE, MAILBOX, EMAIL), "ACTION_MISMATCH"),
        ];
        for (what, invocation, reason) in others {
            let refused = refused(self.consume(&asked.consume_token, &invocation).await, reason)?;
            self.refusal(what, &refused)?;
        }
        Ok(())
    }

    async fn sends(&mut self, asked: &Asked) -> Result<(), Stopped> {
        self.heading("The agent sends what was approved, its members in another order")?;
        let answer = answered(self.consume(&asked.consume_token, &gmail(SEND, MAILBOX, EMAIL_REORDERED)).await)?;
        let permit = answer.permit.unwrap_or_default();
        expect("the approval is used up", asked.approval.id.as_str(), permit.approval_id.as_str())?;
        expect("the permit is new", false, answer.replayed)?;
        step().field(self.out, "Consume", &format!("a permit: execution {}", permit.execution_id))?;
        step().field(self.out, "", &format!("idempotency key {}", permit.idempotency_key))?;
        let message = self.mailbox.send(&permit.idempotency_key);
        step().field(self.out, "the mail service", &format!("sent {message}"))?;
        self.report(&permit, &message).await
    }

    async fn cannot_be_used_twice(&mut self, asked: &Asked) -> Result<(), Stopped> {
        self.heading("The same token once more")?;
        let refused = refused(self.consume_asked(asked).await, "APPROVAL_CONSUMED")?;
        self.refusal("Consume", &refused)
    }

    async fn is_used_too_late(&mut self) -> Result<(), Stopped> {
        self.heading("An approval that is used too late")?;
        let invocation = proto::Invocation {
            connector: "calendar".to_owned(),
            action: "CALENDAR_BOOK_ROOM".to_owned(),
            account: String::new(),
            ..gmail("", "", r#"{"room":"4.11","from":"14:00","to":"15:00"}"#)
        };
        let answer = self.request(&invocation, "").await?;
        self.decision("RequestApproval", answer.decision(), &answer.reason, &answer.message)?;
        let asked = asked(answer, invocation)?;
        let approval = self.decide(&asked.approval, Verdict::Approve, "").await?;
        expect("the room is approved", ApprovalState::Approved, approval.state())?;
        self.decided(&approval)?;
        let within = approval.requirement.as_ref().and_then(|asked| show::duration(asked.use_within.as_ref()));
        let within = within.unwrap_or_default();
        self.out.flush()?;
        tokio::time::sleep(within + AFTER).await;
        let refused = refused(self.consume_asked(&asked).await, "APPROVAL_EXPIRED")?;
        self.refusal("Consume, later", &refused)
    }

    /// The records of one approval, oldest first.
    async fn audit(&mut self, asked: &Asked, ended: &str) -> Result<(), Stopped> {
        self.heading("What the audit says of that email")?;
        let request = proto::ListAuditRecordsRequest {
            approval_id: asked.approval.id.clone(),
            ..proto::ListAuditRecordsRequest::default()
        };
        let mut records = answered(self.operator.list_audit_records(request).await)?.records;
        records.reverse();
        let kinds: Vec<&str> = records.iter().map(|record| record.kind.as_str()).collect();
        expect("the audit begins with the question", Some(&"approval.requested"), kinds.first())?;
        expect(&format!("the audit has {ended} once"), 1, kinds.iter().filter(|kind| **kind == ended).count())?;
        let mut rows =
            vec![["TIME (UTC)", "WHAT", "CALLER", "PERSON", "DECISION", "REASON"].map(str::to_owned).to_vec()];
        rows.extend(records.iter().map(|record| {
            let time = show::time(record.time.as_ref());
            let clock = time.split_once('T').and_then(|(_, clock)| clock.get(..12)).unwrap_or(&time).to_owned();
            let [kind, caller, person] = [&record.kind, &record.caller, &record.person].map(Clone::clone);
            vec![clock, kind, caller, person, record.decision.clone(), record.reason.clone()]
        }));
        Ok(table(self.out, INDENT, CELL, &rows)?)
    }

    async fn is_denied(&mut self) -> Result<(), Stopped> {
        self.heading("What a deny looks like: an email that leaves the company")?;
        let invocation = gmail(SEND, MAILBOX, EMAIL_TO_ANOTHER);
        let answer = self.request(&invocation, "").await?;
        self.decision("RequestApproval", answer.decision(), &answer.reason, &answer.message)?;
        let asked = asked(answer, invocation)?;
        let approval = self.decide(&asked.approval, Verdict::Deny, "We have no business with them.").await?;
        expect("the second question is denied", ApprovalState::Denied, approval.state())?;
        self.decided(&approval)?;
        self.denied(&asked).await
    }

    async fn learns_of_the_denial(&mut self, asked: &Asked) -> Result<(), Stopped> {
        self.heading("What the agent gets")?;
        self.denied(asked).await
    }

    async fn denied(&mut self, asked: &Asked) -> Result<(), Stopped> {
        let refused = refused(self.consume_asked(asked).await, "APPROVAL_DENIED")?;
        self.refusal("Consume", &refused)?;
        let request = proto::AgentServiceGetApprovalRequest {
            principal: PERSON.to_owned(),
            agent: AGENT.to_owned(),
            approval_id: asked.approval.id.clone(),
        };
        let approval = answered(self.agent.get_approval(request).await)?.approval.unwrap_or_default();
        expect("the denial is final", ApprovalState::Denied, approval.state())?;
        step().field(
            self.out,
            "GetApproval",
            &format!("{}: {}", show::state(approval.state()), approval.state_reason),
        )?;
        Ok(())
    }
}

/// Calls.
impl Story<'_> {
    async fn request(
        &mut self,
        invocation: &proto::Invocation,
        note: &str,
    ) -> Result<proto::RequestApprovalResponse, Stopped> {
        let request = proto::RequestApprovalRequest {
            invocation: Some(invocation.clone()),
            agent_note: note.to_owned(),
            ..proto::RequestApprovalRequest::default()
        };
        let answer = answered(self.agent.request_approval(request).await)?;
        expect("the policy asks for a person", Decision::ConfirmationRequired, answer.decision())?;
        Ok(answer)
    }

    async fn decide(
        &mut self,
        approval: &proto::Approval,
        verdict: Verdict,
        reason: &str,
    ) -> Result<proto::Approval, Stopped> {
        let answer = answered(self.person.decide(decide(approval, verdict, reason)).await)?;
        Ok(answer.approval.unwrap_or_default())
    }

    /// Each attempt has an id of its own: the same one again would be the same attempt.
    async fn consume(
        &mut self,
        token: &str,
        invocation: &proto::Invocation,
    ) -> Result<Response<proto::ConsumeResponse>, Status> {
        let request = proto::ConsumeRequest {
            consume_token: token.to_owned(),
            attempt_id: Uuid::new_v4().to_string(),
            invocation: Some(invocation.clone()),
            retry_of: String::new(),
        };
        self.agent.consume(request).await
    }

    async fn consume_asked(&mut self, asked: &Asked) -> Result<Response<proto::ConsumeResponse>, Status> {
        self.consume(&asked.consume_token, &asked.invocation).await
    }

    async fn report(&mut self, permit: &proto::Permit, remote_reference: &str) -> Result<(), Stopped> {
        let request = proto::ReportOutcomeRequest {
            principal: PERSON.to_owned(),
            agent: AGENT.to_owned(),
            execution_id: permit.execution_id.clone(),
            outcome: Outcome::Succeeded.into(),
            remote_reference: remote_reference.to_owned(),
            ..proto::ReportOutcomeRequest::default()
        };
        let execution = answered(self.agent.report_outcome(request).await)?.execution.unwrap_or_default();
        expect("the outcome is recorded", proto::ExecutionState::Succeeded, execution.state())?;
        let state = short(execution.state().as_str_name(), "EXECUTION_STATE_");
        let remote = execution.remote_reference;
        let text = if remote.is_empty() { state.to_owned() } else { format!("{state}, as {remote}") };
        Ok(step().field(self.out, "ReportOutcome", &text)?)
    }
}

/// Words.
impl Story<'_> {
    fn say(&mut self, text: &str) -> Result<(), Stopped> {
        if self.step > 0 {
            writeln!(self.out)?;
        }
        for line in wrap(text, width()) {
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }

    fn heading(&mut self, text: &str) -> io::Result<()> {
        self.step += 1;
        writeln!(self.out, "\n{}. {text}", self.step)
    }

    fn decision(&mut self, call: &str, decision: Decision, reason: &str, message: &str) -> io::Result<()> {
        step().field(self.out, call, &format!("{}, {reason}", short(decision.as_str_name(), "DECISION_")))?;
        step().field(self.out, "", message)
    }

    fn decided(&mut self, approval: &proto::Approval) -> Result<(), Stopped> {
        step().field(self.out, "Decide", show::state(approval.state()))?;
        for decision in &approval.decisions {
            step().field(self.out, "", &show::decided(decision))?;
        }
        if approval.use_by.is_some() {
            step().field(self.out, "", &format!("to be used by {}", show::time(approval.use_by.as_ref())))?;
        }
        Ok(())
    }

    fn refusal(&mut self, call: &str, refused: &Refused) -> Result<(), Stopped> {
        step().field(self.out, call, &format!("refused: {}", refused.reason))?;
        Ok(step().field(self.out, "", &refused.message)?)
    }
}

fn step() -> Layout {
    Layout::new(INDENT, CALL)
}

fn gmail(action: &str, account: &str, arguments: &str) -> proto::Invocation {
    proto::Invocation {
        principal: PERSON.to_owned(),
        agent: AGENT.to_owned(),
        conversation: "conversation-1".to_owned(),
        connector: "gmail".to_owned(),
        account: account.to_owned(),
        action: action.to_owned(),
        arguments_json: arguments.to_owned(),
        ..proto::Invocation::default()
    }
}

fn decide(approval: &proto::Approval, verdict: Verdict, reason: &str) -> proto::DecideRequest {
    proto::DecideRequest {
        approval_id: approval.id.clone(),
        principal: PERSON.to_owned(),
        verdict: verdict.into(),
        reason: reason.to_owned(),
        shown_fingerprint: approval.fingerprint.clone(),
    }
}

fn asked(answer: proto::RequestApprovalResponse, invocation: proto::Invocation) -> Result<Asked, Stopped> {
    expect("a new question, with a token", (false, false), (answer.existing, answer.consume_token.is_empty()))?;
    let approval = answer.approval.unwrap_or_default();
    Ok(Asked { approval, consume_token: answer.consume_token, invocation })
}

fn expect<T: PartialEq + Debug>(what: &str, want: T, got: T) -> Result<(), Stopped> {
    if want == got {
        return Ok(());
    }
    Err(Stopped::Unexpected { expected: format!("{what} ({want:?})"), answered: format!("{got:?}") })
}

fn answered<T>(answer: Result<Response<T>, Status>) -> Result<T, Stopped> {
    answer.map(Response::into_inner).map_err(|status| Stopped::Unexpected {
        expected: "an answer".to_owned(),
        answered: Refused::of(&status).to_string(),
    })
}

fn refused<T>(answer: Result<Response<T>, Status>, reason: &str) -> Result<Refused, Stopped> {
    let unexpected = |answered| Stopped::Unexpected { expected: format!("a refusal, {reason}"), answered };
    match answer {
        Ok(_) => Err(unexpected("an OK".to_owned())),
        Err(status) => {
            let refused = Refused::of(&status);
            if refused.reason == reason { Ok(refused) } else { Err(unexpected(refused.to_string())) }
        }
    }
}
