//! `--dev`: everything in one folder, and one new token per role, so that a newcomer can call a sidecar at once. It is not an
//! unauthenticated mode: every call still needs its role's token.

use crate::auth::token::{TokenHash, mint};
use crate::auth::{AgentBounds, Caller, Callers, Powers};
use crate::config::{Config, Overrides};
use crate::domain::pattern::Pattern;
use crate::domain::text::Identifier;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

/// The policy that --dev serves where none is named.
const POLICY: &str = include_str!("../../../deploy/policy/gmail.yaml");

/// The configuration of `--dev`: the folder is made, with a policy unless one is named, and with new tokens.
/// Another sidecar in the same folder keeps its tokens: the folder is locked for as long as the returned file is open.
pub(super) fn config(folder: &Path, overrides: Overrides, err: &mut dyn Write) -> Result<(Config, File), String> {
    let failed = |path: &Path, cause: std::io::Error| format!("{}: {cause}", path.display());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|cause| failed(folder, cause))?;
    let lock = folder.join("dev.lock");
    let held = File::create(&lock).map_err(|cause| failed(&lock, cause))?;
    held.try_lock().map_err(|_| format!("{}: another sidecar runs in this folder", folder.display()))?;
    let policy = match &overrides.policy {
        Some(policy) => policy.clone(),
        None => {
            let policy = folder.join("policy.yaml");
            if !policy.exists() {
                std::fs::write(&policy, POLICY).map_err(|cause| failed(&policy, cause))?;
            }
            policy
        }
    };
    let sqlite = overrides.sqlite.clone().unwrap_or_else(|| folder.join("countersign.db"));
    let reflection = overrides.reflection.or(Some(true));
    let overrides = Overrides { policy: Some(policy), sqlite: Some(sqlite), reflection, ..overrides };
    let mut config = Config::load(None, &overrides).map_err(|problems| problems.to_string())?;

    let everyone = || vec![Pattern::new("*")];
    let agent = Powers::Agent(Arc::new(AgentBounds { agents: everyone(), principals: everyone() }));
    let mut callers = Vec::new();
    let mut shown = String::new();
    for (name, powers) in [("agent", agent), ("approver", Powers::Asserts(everyone())), ("operator", Powers::Operator)]
    {
        let token = mint().map_err(|_| "this machine has no randomness to make a token from".to_owned())?;
        let path = folder.join(format!("{name}.token"));
        // A token of an earlier run is of no use any more.
        let _ = std::fs::remove_file(&path);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| writeln!(file, "{}", *token))
            .map_err(|cause| failed(&path, cause))?;
        shown.push_str(&format!("  {name:<9} {}\n", path.display()));
        let name = Identifier::parse(&format!("dev-{name}")).map_err(|problem| problem.to_string())?;
        callers.push((TokenHash::of(token.as_bytes()), Caller { name, powers }));
    }
    config.callers = Callers::new(callers);
    // Nobody reads it: then nobody is told.
    let _ = write!(
        err,
        "*** --dev: whoever reads these files may act as anybody. For trying out, never for production. ***\n{shown}\
         policy: {}\n",
        config.policy.display()
    );
    Ok((config, held))
}
