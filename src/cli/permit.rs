//! `countersign permit`: checks a permit offline, as whoever holds the credentials does before it makes the call.

use super::exit::Exit;
use super::input::{self, InputProblem};
use super::terminal::{self, Layout, safe};
use crate::clock::{Clock as _, SystemClock};
use crate::domain::canonical::MAX_BYTES;
use crate::domain::fingerprint::ArgumentsDigest;
use crate::domain::permit::{
    Claims, DEFAULT_AUDIENCE, DEFAULT_ISSUER, Expected, MAX_TOKEN_BYTES, MAX_TOLERANCE, PermitRefusal,
};
use crate::domain::span::parse_span;
use crate::domain::time::Timestamp;
use crate::secrets::{MAX_JWKS_BYTES, PermitKeys};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the keys may take to come.
const FETCH: Duration = Duration::from_secs(10);
/// Where the health listener has them.
const KEYS_PATH: &str = "/.well-known/jwks.json";
/// The column in which values begin.
const LABEL: usize = 24;

/// What `permit` is told.
#[derive(Args, Debug)]
pub(super) struct PermitCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Checks signature, times and whatever else is said here. Exits with 0 for a permit that holds, with 1 for any other.
    Verify(Box<VerifyCommand>),
}

#[derive(Args, Debug)]
struct VerifyCommand {
    /// The file of the permit; `-` reads standard input. It is no argument, since those can be read by every process.
    #[arg(value_name = "FILE", default_value = "-")]
    permit: PathBuf,
    /// The public keys: a file with a JWK Set, or the health listener that has it, `http://HOST:PORT`.
    #[arg(long, value_name = "FILE|URL")]
    jwks: String,
    /// Who must have issued it.
    #[arg(long, value_name = "TEXT", default_value = DEFAULT_ISSUER)]
    issuer: String,
    /// Who checks it.
    #[arg(long, value_name = "TEXT", default_value = DEFAULT_AUDIENCE)]
    audience: String,
    /// The arguments of the call, a JSON object; an empty file means `{}`; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    arguments: Option<PathBuf>,
    /// The connector of the call.
    #[arg(long, value_name = "C", allow_hyphen_values = true)]
    connector: Option<String>,
    /// The account of the call; empty: none.
    #[arg(long, value_name = "A", allow_hyphen_values = true)]
    account: Option<String>,
    /// The action of the call.
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    action: Option<String>,
    /// On whose behalf the call is made.
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    principal: Option<String>,
    /// The agent that makes it.
    #[arg(long, value_name = "G", allow_hyphen_values = true)]
    agent: Option<String>,
    /// The conversation in which it is made; empty: none.
    #[arg(long, value_name = "V", allow_hyphen_values = true)]
    conversation: Option<String>,
    /// How far this machine's clock and the sidecar's may be apart, in whole seconds to 5m.
    #[arg(long, value_name = "SPAN", default_value = "5s", value_parser = tolerance)]
    tolerance: Duration,
    /// Check as of this time, RFC 3339 [default: now].
    #[arg(long, value_name = "TIME", value_parser = instant)]
    at: Option<Timestamp>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// 0 for a permit that holds, 1 for one that does not, 3 where keys, permit or arguments cannot be read.
pub(super) fn run(command: &PermitCommand, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let Command::Verify(verify) = &command.command;
    if verify.permit.as_os_str() == "-" && verify.arguments.as_ref().is_some_and(|path| path.as_os_str() == "-") {
        writeln!(err, "standard input cannot be both the permit and the arguments: give one of them a file")?;
        return Ok(Exit::Usage);
    }
    match verify.checked() {
        Ok(Checked { claims, refusals }) => verify.tell(claims.as_ref(), &refusals, out),
        Err(Unread { exit, message }) => {
            writeln!(err, "{}", safe(&message))?;
            Ok(exit)
        }
    }
}

/// A permit that was looked at.
struct Checked {
    /// What it says, once the signature is known to be genuine.
    claims: Option<Claims>,
    /// Everything that is wrong with it.
    refusals: Vec<PermitRefusal>,
}

/// Something that could not be read.
struct Unread {
    exit: Exit,
    message: String,
}

impl Unread {
    fn of(place: &str, cause: &dyn std::fmt::Display) -> Self {
        Self { exit: Exit::Unreachable, message: format!("{place}: {cause}") }
    }
}

impl VerifyCommand {
    fn checked(&self) -> Result<Checked, Unread> {
        let arguments = self.arguments.as_deref().map(digest).transpose()?;
        let keys = self.keys()?;
        let token = read(&self.permit, MAX_TOKEN_BYTES + 2)
            .map_err(|cause| Unread::of(&self.permit.display().to_string(), &cause))?;
        // What is no text is no permit either.
        let token = String::from_utf8(token).unwrap_or_default();
        let claims = match keys.verify(token.trim_end_matches(['\r', '\n'])) {
            Ok(claims) => claims,
            Err(refusal) => return Ok(Checked { claims: None, refusals: vec![refusal] }),
        };
        let refusals = claims.check(&Expected {
            issuer: &self.issuer,
            audience: &self.audience,
            arguments,
            connector: self.connector.as_deref(),
            account: self.account.as_deref(),
            action: self.action.as_deref(),
            principal: self.principal.as_deref(),
            agent: self.agent.as_deref(),
            conversation: self.conversation.as_deref(),
            now: self.at.unwrap_or_else(|| SystemClock::new().wall()),
            tolerance: self.tolerance,
        });
        Ok(Checked { claims: Some(claims), refusals })
    }

    /// The public keys, from wherever they are.
    fn keys(&self) -> Result<PermitKeys, Unread> {
        let text = if self.jwks.contains("://") {
            fetch(&self.jwks)?
        } else {
            let bytes = read(Path::new(&self.jwks), MAX_JWKS_BYTES).map_err(|cause| Unread::of(&self.jwks, &cause))?;
            String::from_utf8(bytes).map_err(|cause| Unread::of(&self.jwks, &cause))?
        };
        PermitKeys::parse(&text).map_err(|problem| Unread::of(&self.jwks, &problem))
    }

    fn tell(&self, claims: Option<&Claims>, refusals: &[PermitRefusal], out: &mut dyn Write) -> io::Result<Exit> {
        let valid = claims.is_some() && refusals.is_empty();
        if self.json {
            let refusals: Vec<Value> = refusals
                .iter()
                .map(|refusal| json!({ "reason": refusal.reason(), "message": refusal.to_string() }))
                .collect();
            // The claims are ours, and hold no number that JSON cannot carry.
            let claims = claims.and_then(|claims| serde_json::from_str::<Value>(&claims.to_json()).ok());
            let told = json!({ "valid": valid, "refusals": refusals, "claims": claims });
            writeln!(out, "{}", terminal::json(&told))?;
        } else {
            writeln!(out, "{}", if valid { "the permit holds" } else { "the permit is refused" })?;
            for refusal in refusals {
                writeln!(out, "  {}: {}", refusal.reason(), safe(&refusal.to_string()))?;
            }
            if let Some(claims) = claims {
                show(claims, out)?;
            }
        }
        Ok(if valid { Exit::Done } else { Exit::No })
    }
}

/// The claims of a genuine permit, for a person.
fn show(claims: &Claims, out: &mut dyn Write) -> io::Result<()> {
    let layout = Layout::new(2, LABEL);
    let time = |seconds: i64| Timestamp::from_micros(seconds.saturating_mul(1_000_000)).to_string();
    let text = |value: Option<String>| value.unwrap_or_default();
    for (label, value) in [
        ("issuer", claims.issuer.to_string()),
        ("audience", claims.audience.to_string()),
        ("issued_at", time(claims.issued_at)),
        ("expires_at", time(claims.expires_at)),
        ("execution_id", claims.execution.to_string()),
        ("approval_id", text(claims.approval.map(|id| id.to_string()))),
        ("attempt_id", claims.attempt.to_string()),
        ("principal", claims.principal.to_string()),
        ("agent", claims.agent.to_string()),
        ("conversation", text(claims.conversation.as_ref().map(ToString::to_string))),
        ("connector", claims.connector.to_string()),
        ("account", text(claims.account.as_ref().map(ToString::to_string))),
        ("action", claims.action.to_string()),
        ("args_sha256", claims.arguments_digest.to_string()),
        ("fingerprint", claims.fingerprint.to_string()),
        ("tool_definition_digest", text(claims.tool_definition_digest.map(|digest| digest.to_string()))),
        ("idempotency_key", claims.idempotency_key.clone()),
        ("policy_revision", claims.policy_revision.clone()),
    ] {
        layout.optional(out, label, &value)?;
    }
    Ok(())
}

fn digest(path: &Path) -> Result<ArgumentsDigest, Unread> {
    input::arguments(path, MAX_BYTES).map(|arguments| arguments.digest()).map_err(|problem| match problem {
        InputProblem::Unreadable(cause) => Unread::of(&path.display().to_string(), &cause),
        // Arguments that no sidecar takes are of no permit.
        InputProblem::Refused(refusal) => Unread { exit: Exit::No, message: format!("the arguments: {refusal}") },
    })
}

/// All of a file or of standard input; of what is longer than `most` one byte more.
fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// The keys that a health listener has.
fn fetch(url: &str) -> Result<String, Unread> {
    let usage = |why: &str| Unread { exit: Exit::Usage, message: format!("--jwks {url}: {why}") };
    let rest = url.strip_prefix("http://").ok_or_else(|| {
        usage("keys are fetched by http:// from a health listener; from elsewhere, fetch them into a file")
    })?;
    let url = match rest.trim_end_matches('/') {
        host if !host.contains('/') => format!("http://{host}{KEYS_PATH}"),
        _ => url.to_owned(),
    };
    let agent = ureq::Agent::config_builder().timeout_global(Some(FETCH)).max_redirects(0).proxy(None).build();
    let failed = |cause: ureq::Error| Unread::of(&url, &cause);
    let limit = u64::try_from(MAX_JWKS_BYTES).unwrap_or(u64::MAX);
    let mut answer = ureq::Agent::from(agent).get(&url).call().map_err(failed)?;
    if answer.status() != 200 {
        return Err(Unread::of(&url, &format!("answers {}", answer.status())));
    }
    answer.body_mut().with_config().limit(limit).read_to_string().map_err(failed)
}

fn tolerance(text: &str) -> Result<Duration, String> {
    let whole = |span: &Duration| *span <= MAX_TOLERANCE && span.subsec_nanos() == 0;
    parse_span(text)
        .filter(whole)
        .ok_or_else(|| format!("{text:?} is no duration in whole seconds to 5m, such as `5s`"))
}

fn instant(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).ok_or_else(|| format!("{text:?} is no time such as `2026-01-01T00:00:00Z`"))
}
