//! The demonstration's sidecar: the real one, with three callers.

use crate::app::{self, Running};
use crate::auth::token::{TokenHash, mint};
use crate::auth::{AgentBounds, Caller, Callers, Powers};
use crate::client::Bearer;
use crate::clock::SystemClock;
use crate::config::{Config, Overrides};
use crate::domain::pattern::Pattern;
use crate::domain::text::Identifier;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The person on whose behalf the agent acts, and who is asked.
pub(super) const PERSON: &str = "dana";
/// The program that acts.
pub(super) const AGENT: &str = "assistant";

const MAIL_POLICY: &str = include_str!("../../../deploy/policy/gmail.yaml");
const DEMO_POLICY: &str = include_str!("policy.yaml");
/// Any port that is free.
const ANY_PORT: &str = "127.0.0.1:0";

/// A sidecar that serves, and its callers' credentials.
pub(super) struct Sidecar {
    pub(super) running: Running,
    pub(super) agent: Bearer,
    pub(super) person: Bearer,
    pub(super) operator: Bearer,
}

/// Starts it, with everything in `folder`.
pub(super) async fn start(folder: &Path) -> Result<Sidecar, String> {
    let policy = folder.join("policy");
    fs::create_dir(&policy)
        .and_then(|()| fs::write(policy.join("gmail.yaml"), MAIL_POLICY))
        .and_then(|()| fs::write(policy.join("demo.yaml"), DEMO_POLICY))
        .map_err(|cause| format!("{}: {cause}", policy.display()))?;
    let overrides = Overrides {
        listen: Some(ANY_PORT.to_owned()),
        health_listen: Some(ANY_PORT.to_owned()),
        policy: Some(policy),
        sqlite: Some(folder.join("countersign.db")),
        ..Overrides::default()
    };
    let mut config = Config::load(None, &overrides).map_err(|problems| problems.to_string())?;
    let bounds = AgentBounds { agents: vec![Pattern::new(AGENT)], principals: vec![Pattern::new(PERSON)] };
    let (agent, agent_caller) = caller("runtime", Powers::Agent(Arc::new(bounds)))?;
    let (person, person_caller) = caller("terminal", Powers::Person(identifier(PERSON)?))?;
    let (operator, operator_caller) = caller("operator", Powers::Operator)?;
    config.callers = Callers::new(vec![agent_caller, person_caller, operator_caller]);
    let running = app::start(&config, Arc::new(SystemClock::new())).await.map_err(|problem| problem.to_string())?;
    Ok(Sidecar { running, agent, person, operator })
}

/// A caller with a new token, which is kept nowhere else.
fn caller(name: &str, powers: Powers) -> Result<(Bearer, (TokenHash, Caller)), String> {
    let token = mint().map_err(|_| "this machine has no randomness to make a token from".to_owned())?;
    let bearer = Bearer::new(&token).ok_or_else(|| "a new token is no header".to_owned())?;
    Ok((bearer, (TokenHash::of(token.as_bytes()), Caller { name: identifier(name)?, powers })))
}

fn identifier(text: &str) -> Result<Identifier, String> {
    Identifier::parse(text).map_err(|problem| problem.to_string())
}
