//! `countersign approvals watch`: what the person sees, and each change of it as it comes.

use super::{Door, Failure};
use crate::cli::exit::Exit;
use crate::cli::remote::Refused;
use crate::cli::show;
use crate::cli::terminal::{self, safe};
use crate::proto::watch_approvals_response::Event;
use crate::proto::{self, ApprovalState};
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;
use tonic::Code;

/// How long until a stream that ended is begun anew, at first and at most; twice as long each time that nothing came of it.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// What `watch` is told.
#[derive(Args, Debug)]
pub(super) struct WatchCommand {
    /// Begin with those in this state, and not with what is open; may be given several times.
    #[arg(long, value_name = "STATE", value_parser = super::state, ignore_case = true)]
    state: Vec<ApprovalState>,
    /// End when the stream does: it is not begun anew.
    #[arg(long)]
    once: bool,
}

/// What one stream came to.
struct Ended {
    /// Whether anything was told.
    told: bool,
    refused: Refused,
}

impl Door<'_> {
    /// Tells until it is interrupted, the sidecar refuses, or nobody reads what is told. A stream that ended because a
    /// sidecar stopped, or was not reached after it had been, is begun anew.
    pub(super) async fn watch(
        &mut self,
        watch: &WatchCommand,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<Exit, Failure> {
        let mut pause = AGAIN.0;
        let mut was_told = false;
        loop {
            let ended = self.stream(watch, out).await?;
            was_told |= ended.told;
            if watch.once || !was_told || !may_pass(ended.refused.code) {
                return Err(Failure::Refused(ended.refused));
            }
            if ended.told {
                pause = AGAIN.0;
            }
            writeln!(err, "{}; watching again in {pause:?}", ended.refused)?;
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(AGAIN.1);
        }
    }

    /// One stream, to its end.
    async fn stream(&mut self, watch: &WatchCommand, out: &mut dyn Write) -> Result<Ended, Failure> {
        let request = proto::WatchApprovalsRequest {
            principal: self.person.to_owned(),
            states: watch.state.iter().map(|state| (*state).into()).collect(),
        };
        let mut told = false;
        let mut stream = match self.client.watch_approvals(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => return Ok(Ended { told, refused: Refused::of(&status) }),
        };
        let mut in_snapshot = true;
        loop {
            let event = match stream.message().await {
                Ok(Some(answer)) => answer.event,
                Ok(None) => return Ok(Ended { told, refused: Refused::ended() }),
                Err(status) => return Ok(Ended { told, refused: Refused::of(&status) }),
            };
            told = true;
            match event {
                Some(Event::Approval(approval)) if self.json => {
                    let approval = super::json::approval(&approval);
                    line(out, &json!({ "event": "approval", "snapshot": in_snapshot, "approval": approval }))?;
                }
                Some(Event::Approval(approval)) => writeln!(out, "{}", in_words(&approval))?,
                Some(Event::SnapshotComplete(complete)) => {
                    in_snapshot = false;
                    if self.json {
                        line(out, &json!({ "event": "snapshot_complete", "left_out": complete.left_out }))?;
                    } else {
                        let rest =
                            if complete.left_out { "; there are more, `approvals list --all` has them" } else { "" };
                        writeln!(out, "watching{rest}")?;
                    }
                }
                // Of a newer sidecar.
                None => {}
            }
            out.flush()?;
        }
    }
}

/// Whether a stream that ended so is worth another try.
fn may_pass(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded | Code::Aborted)
}

/// An approval in one line.
fn in_words(approval: &proto::Approval) -> String {
    let state = show::state(approval.state());
    let cell = |text: &str| safe(text).into_owned();
    let account = if approval.account.is_empty() { String::new() } else { format!(" as {}", cell(&approval.account)) };
    let until = match approval.state() {
        ApprovalState::Pending => format!(", decide by {}", show::time(approval.decide_by.as_ref())),
        ApprovalState::Approved => format!(", use by {}", show::time(approval.use_by.as_ref())),
        _ => String::new(),
    };
    format!(
        "{state:<9} {}  {}: {} of {}{account}, for {}{until}",
        cell(&approval.id),
        cell(&approval.agent),
        cell(&approval.action),
        cell(&approval.connector),
        cell(&approval.principal),
    )
}

/// A value in one line, harmless on a terminal as well.
fn line(out: &mut dyn Write, value: &Value) -> std::io::Result<()> {
    // Line feeds of the layout alone: those of a text are escaped.
    let text: String = terminal::json(value).lines().map(str::trim_start).collect();
    writeln!(out, "{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_and_loses_nothing() {
        let value = json!({ "a": ["  x\n\u{85}\u{2028} y  ", {}], "b": { "c": null } });
        let mut out = Vec::new();
        line(&mut out, &value).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn a_sidecar_that_is_away_may_come_back_and_a_refusal_stays() {
        for code in [Code::Unavailable, Code::Unknown, Code::DeadlineExceeded] {
            assert!(may_pass(code));
        }
        for code in [Code::Unauthenticated, Code::PermissionDenied, Code::InvalidArgument, Code::ResourceExhausted] {
            assert!(!may_pass(code));
        }
    }
}
