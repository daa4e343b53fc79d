//! `countersign approvals`: a person's door at the terminal. What is approved is shown first, and the answer carries the
//! fingerprint of what was shown.

mod json;
mod watch;

use super::exit::Exit;
use super::remote::{Connection, Refused, block_on};
use super::show;
use super::terminal::{self, ask, safe, table};
use crate::client::{self, Authenticated};
use crate::proto::approver_service_client::ApproverServiceClient;
use crate::proto::{self, ApprovalState, Verdict};
use clap::{Args, Subcommand};
use serde_json::json;
use std::io::{self, IsTerminal as _, Write};
use tonic::Status;

/// A cell of a list; `show` has the whole.
const CELL: usize = 40;
/// The largest page that the sidecar gives.
const PAGE: u32 = 100;
/// A sidecar that hands out pages without end is not to be followed for ever.
const PAGES: usize = 10_000;

/// What `approvals` is told.
#[derive(Args, Debug)]
pub(super) struct ApprovalsCommand {
    #[command(flatten)]
    connection: Connection,
    /// The person who looks and decides [default: the one whom the token stands for].
    #[arg(long = "as", global = true, value_name = "PERSON", default_value = "", hide_default_value = true)]
    person: String,
    /// Print as JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Lists the approvals that the person sees, newest first.
    List(ListCommand),
    /// Shows one of them whole.
    Show(ShowCommand),
    /// Approves one: what runs is shown, and asked for once more.
    Approve(DecideCommand),
    /// Denies one.
    Deny(DecideCommand),
    /// Tells what is open, and then each change as it comes.
    Watch(watch::WatchCommand),
}

#[derive(Args, Debug)]
struct ListCommand {
    /// Only those in this state; may be given several times.
    #[arg(long, value_name = "STATE", value_parser = state, ignore_case = true)]
    state: Vec<ApprovalState>,
    /// Every page of them, not the first 50 alone.
    #[arg(long)]
    all: bool,
}

#[derive(Args, Debug)]
struct ShowCommand {
    /// The approval's id.
    #[arg(value_name = "ID")]
    id: String,
    /// With all of its arguments, secrets included. The audit records who read them.
    #[arg(long)]
    arguments: bool,
}

#[derive(Args, Debug)]
struct DecideCommand {
    /// The approval's id.
    #[arg(value_name = "ID")]
    id: String,
    /// Why; at most 500 characters. The agent's side can read it.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Do not ask at the terminal.
    #[arg(long)]
    yes: bool,
}

/// Why a command did not do what it was for.
enum Failure {
    Refused(Refused),
    Output(io::Error),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Refused(Refused::of(&status))
    }
}

impl From<io::Error> for Failure {
    fn from(cause: io::Error) -> Self {
        Self::Output(cause)
    }
}

/// A person's client, at one sidecar.
struct Door<'a> {
    client: ApproverServiceClient<Authenticated>,
    person: &'a str,
    json: bool,
}

/// Runs the command: 0 done, 1 the sidecar says no or the person does, 2 asked wrongly, 3 no answer or no identity.
pub(super) fn run(command: &ApprovalsCommand, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let to_be_asked = match &command.command {
        Command::Approve(decide) | Command::Deny(decide) => !decide.yes,
        Command::List(_) | Command::Show(_) | Command::Watch(_) => false,
    };
    if to_be_asked && !io::stdin().is_terminal() {
        writeln!(err, "there is no terminal to ask at: look with `approvals show`, then decide with --yes")?;
        return Ok(Exit::Usage);
    }
    let token = match command.connection.credential() {
        Ok(token) => token,
        Err((exit, line)) => {
            writeln!(err, "{line}")?;
            return Ok(exit);
        }
    };
    let done = block_on(async {
        let client = client::approver(command.connection.channel().map_err(Failure::Refused)?, token);
        let mut door = Door { client, person: &command.person, json: command.json };
        match &command.command {
            Command::List(list) => door.list(list, out, err).await,
            Command::Show(show) => door.show(show, out).await,
            Command::Approve(decide) => door.decide(decide, Verdict::Approve, out, err).await,
            Command::Deny(decide) => door.decide(decide, Verdict::Deny, out, err).await,
            Command::Watch(watch) => door.watch(watch, out, err).await,
        }
    })?;
    match done {
        Ok(exit) => Ok(exit),
        Err(Failure::Output(cause)) => Err(cause),
        Err(Failure::Refused(refused)) => {
            if command.json {
                writeln!(out, "{}", terminal::json(&json!({ "error": refused.json() })))?;
            }
            let server = command.connection.server();
            let place = if refused.reason.is_empty() { format!("{server}: ") } else { String::new() };
            let hint = if refused.reason == "PRINCIPAL_REQUIRED" { "; say who decides with --as PERSON" } else { "" };
            writeln!(err, "{place}{refused}{hint}")?;
            Ok(refused.exit())
        }
    }
}

impl Door<'_> {
    /// Page by page, so that a long list takes no memory.
    async fn list(&mut self, list: &ListCommand, out: &mut dyn Write, err: &mut dyn Write) -> Result<Exit, Failure> {
        let mut page_token = String::new();
        let mut listed = 0_usize;
        for _ in 0..PAGES {
            let request = proto::ListApprovalsRequest {
                principal: self.person.to_owned(),
                states: list.state.iter().map(|state| (*state).into()).collect(),
                page_size: if list.all { PAGE } else { 0 },
                page_token: page_token.clone(),
            };
            let page = self.client.list_approvals(request).await?.into_inner();
            if self.json {
                for approval in &page.approvals {
                    let before = if listed == 0 { "{\"approvals\": [\n" } else { ",\n" };
                    write!(out, "{before}{}", terminal::json(&json::approval(approval)))?;
                    listed += 1;
                }
            } else {
                rows(&page.approvals, listed == 0, out)?;
                listed += page.approvals.len();
            }
            page_token = page.next_page_token;
            if page_token.is_empty() || !list.all {
                break;
            }
        }
        let more = !page_token.is_empty();
        if self.json {
            let before = if listed == 0 { "{\"approvals\": [" } else { "\n" };
            writeln!(out, "{before}], \"more\": {more}}}")?;
        } else if listed == 0 {
            writeln!(out, "none")?;
        } else if more {
            writeln!(err, "there are more; --all lists them")?;
        }
        Ok(Exit::Done)
    }

    async fn show(&mut self, show: &ShowCommand, out: &mut dyn Write) -> Result<Exit, Failure> {
        let approval = self.approval(&show.id).await?;
        let arguments = if show.arguments { Some(self.arguments(&show.id).await?) } else { None };
        if self.json {
            let mut answer = json::approval(&approval);
            if let (Some(arguments), Some(members)) = (arguments, answer.as_object_mut()) {
                members.insert("arguments_json".to_owned(), arguments.into());
            }
            writeln!(out, "{}", terminal::json(&answer))?;
            return Ok(Exit::Done);
        }
        show::record(out, show::layout(0), &approval)?;
        if let Some(arguments) = arguments {
            show::whole_arguments(out, show::layout(0), &arguments)?;
        }
        Ok(Exit::Done)
    }

    async fn arguments(&mut self, id: &str) -> Result<String, Failure> {
        let (approval_id, principal) = (id.to_owned(), self.person.to_owned());
        let request = proto::GetApprovalArgumentsRequest { approval_id, principal };
        Ok(self.client.get_approval_arguments(request).await?.into_inner().arguments_json)
    }

    /// Shows all that is bound, asks, decides: on exactly what was shown.
    async fn decide(
        &mut self,
        decide: &DecideCommand,
        verdict: Verdict,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<Exit, Failure> {
        let shown = self.approval(&decide.id).await?;
        let approving = verdict == Verdict::Approve;
        // Standard output is for what a program reads, where one does.
        let beside: &mut dyn Write = if self.json { &mut *err } else { &mut *out };
        show::record(beside, show::layout(0), &shown)?;
        if !decide.yes {
            let question = if approving { "Approve this?" } else { "Deny this?" };
            writeln!(err)?;
            if ask(question, err).await? != Some(true) {
                writeln!(err, "Nothing was decided.")?;
                return Ok(Exit::No);
            }
        }
        let request = proto::DecideRequest {
            approval_id: shown.id,
            principal: self.person.to_owned(),
            verdict: verdict.into(),
            reason: decide.reason.clone(),
            shown_fingerprint: shown.fingerprint,
        };
        let decided = self.client.decide(request).await?.into_inner().approval.unwrap_or_default();
        if self.json {
            writeln!(out, "{}", terminal::json(&json::approval(&decided)))?;
            return Ok(Exit::Done);
        }
        let state = show::state(decided.state());
        writeln!(out)?;
        match decided.state() {
            ApprovalState::Pending => writeln!(out, "{state}: your answer is recorded; others must confirm as well")?,
            ApprovalState::Approved => {
                writeln!(out, "{state}: to be used by {}", show::time(decided.use_by.as_ref()))?;
            }
            _ => writeln!(out, "{state}")?,
        }
        Ok(Exit::Done)
    }

    async fn approval(&mut self, id: &str) -> Result<proto::Approval, Failure> {
        let request =
            proto::ApproverServiceGetApprovalRequest { approval_id: id.to_owned(), principal: self.person.to_owned() };
        Ok(self.client.get_approval(request).await?.into_inner().approval.unwrap_or_default())
    }
}

fn rows(approvals: &[proto::Approval], first: bool, out: &mut dyn Write) -> io::Result<()> {
    if approvals.is_empty() {
        return Ok(());
    }
    let mut rows = Vec::with_capacity(approvals.len() + 1);
    if first {
        rows.push(["ID", "STATE", "DECIDE BY", "PRINCIPAL", "AGENT", "ACTION", "ACCOUNT"].map(str::to_owned).to_vec());
    }
    for approval in approvals {
        let decide_by = show::time(approval.decide_by.as_ref());
        rows.push(vec![
            safe(&approval.id).into_owned(),
            show::state(approval.state()).to_owned(),
            decide_by.split_once('.').map_or(decide_by.as_str(), |(seconds, _)| seconds).to_owned(),
            approval.principal.clone(),
            approval.agent.clone(),
            format!("{} {}", approval.connector, approval.action),
            approval.account.clone(),
        ]);
    }
    table(out, 0, CELL, &rows)
}

fn state(text: &str) -> Result<ApprovalState, String> {
    let name = format!("APPROVAL_STATE_{}", text.to_ascii_uppercase());
    ApprovalState::from_str_name(&name).filter(|state| *state != ApprovalState::Unspecified).ok_or_else(|| {
        "is none of `pending`, `approved`, `denied`, `cancelled`, `revoked`, `expired`, `consumed`".to_owned()
    })
}
