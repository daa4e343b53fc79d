//! `--dev`: everything in one folder, and one new token per role, so that a newcomer can call a sidecar at once. It is not an
//! unauthenticated mode: every call still needs its role's token.

use crate::auth::token::{TokenHash, mint};
use crate::auth::{AgentBounds, Caller, Callers, Powers};
use crate::config::{Config, Overrides};
use crate::domain::pattern::Pattern;
use crate::domain::text::Identifier;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

/// The policy that --dev serves where none is named.
const POLICY: &str = include_str!("../../../deploy/policy/gmail.yaml");

/// The configuration of `--dev`: the folder is made, with a policy unless one is named, and with new tokens.
/// Another sidecar in the same folder keeps its tokens: the folder is locked for as long as the returned file is open.
pub(super) fn config(folder: &Path, overrides: Overrides, err: &mut dyn Write) -> Result<(Config, File), String> {
    if overrides.postgres.is_some() {
        return Err("--dev keeps everything in one folder: leave out --postgres (COUNTERSIGN_POSTGRES)".to_owned());
    }
    let failed = |path: &Path, cause: std::io::Error| format!("{}: {cause}", path.display());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|cause| failed(folder, cause))?;
    is_ours(folder)?;
    let lock = folder.join("dev.lock");
    let mut open = OpenOptions::new();
    let held = open.write(true).create(true).truncate(false).mode(0o600).open(&lock);
    let held = held.map_err(|cause| failed(&lock, cause))?;
    held.try_lock().map_err(|_| format!("{}: another sidecar runs in this folder", folder.display()))?;
    let policy = match &overrides.policy {
        Some(policy) => policy.clone(),
        None => {
            let policy = folder.join("policy.yaml");
            if !policy.exists() {
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&policy)
                    .and_then(|mut file| file.write_all(POLICY.as_bytes()))
                    .map_err(|cause| failed(&policy, cause))?;
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
         policy: {}\n\
         decide with: countersign approvals list --token-file {} --as PERSON\n",
        config.policy.display(),
        folder.join("approver.token").display()
    );
    Ok((config, held))
}

/// Refuses a folder that somebody else may have prepared: one that others can reach, as a folder that came with a download
/// can be, or one with links in it, which would lead what is written elsewhere.
fn is_ours(folder: &Path) -> Result<(), String> {
    let failed = |cause: std::io::Error| format!("{}: {cause}", folder.display());
    let found = std::fs::symlink_metadata(folder).map_err(failed)?;
    if !found.is_dir() || found.permissions().mode() & 0o077 != 0 {
        return Err(format!(
            "{}: must be a folder of yours alone (mode 0700): remove it, or name another with --dev-dir",
            folder.display()
        ));
    }
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_symlink() {
            return Err(format!("{}: is a link, and --dev writes through none", entry.path().display()));
        }
    }
    Ok(())
}
