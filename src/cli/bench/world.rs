//! What is measured on: a folder with a configuration, a policy and databases that are filled before any server starts.

use crate::app;
use crate::auth::AgentBounds;
use crate::auth::token::{TokenHash, mint};
use crate::clock::SystemClock;
use crate::config::{Config, Overrides, StoreSettings, beside};
use crate::domain::approval::{Answer, Approval, Person, Verdict};
use crate::domain::arguments::{Arguments, DEFAULT_MAX_ARGUMENTS_BYTES};
use crate::domain::ids::ApprovalId;
use crate::domain::invocation::{Invocation, Said};
use crate::domain::pattern::Pattern;
use crate::domain::text::Identifier;
use crate::engine::{AgentCaller, Asked, Question};
use crate::proto;
use crate::secrets::{Keys, ServerSecret};
use crate::storage::postgres::PostgresStore;
use crate::storage::sqlite::{SqliteOptions, SqliteStore};
use crate::storage::{ApprovalCopy, Store, StoreError};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use uuid::Uuid;
use zeroize::Zeroizing;

const POLICY: &str = include_str!("policy.yaml");
/// No background work, and no limit that what is there could reach.
const QUIET: &str = "[sweeper]\nevery = \"1h\"\n[limits]\nopen_per_principal = 1000000\nopen_per_agent = 1000000\n\
                     open_per_action = 1000000\nasked_per_principal = 0\n";
/// The bytes of each call's arguments.
const ARGUMENTS: usize = 400;
/// Copies of one transaction: well within the time that a write may take.
const SEEDED_AT_ONCE: usize = 5_000;
/// The last of the calls that no copy is about.
const UNCOPIED: usize = 999_999_999;
/// How long people have where they are to miss it.
const SOON: Duration = Duration::from_secs(1);
/// The variable of the environment that has the password of a Postgres server.
pub(super) const PASSWORD: &str = "COUNTERSIGN_POSTGRES_PASSWORD";
/// The agent's caller.
pub(super) const CALLER: &str = "runtime";
/// On whose behalf everything is done.
pub(super) const PRINCIPAL: &str = "dana";
const AGENT: &str = "assistant";
const ACCOUNT: &str = "work-mailbox-a";
const ACTION: &str = "SEND_EMAIL";
/// The connector whose actions people are asked about.
pub(super) const ASKED: &str = "asked";

/// A folder, removed with everything in it when dropped.
pub(super) struct World {
    folder: PathBuf,
    /// Where work that waits is done.
    pub(super) runtime: Runtime,
    /// The agent's token.
    pub(super) agent_token: Zeroizing<String>,
    /// The approver's.
    pub(super) approver_token: Zeroizing<String>,
}

impl Drop for World {
    fn drop(&mut self) {
        // What cannot be removed stays where such things are looked for.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Where a database is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// A file, whose secret is beside it.
    File(PathBuf),
    /// A database of a Postgres server.
    Server {
        /// Its url.
        url: String,
        /// The file of the server secret.
        secret: PathBuf,
    },
}

impl Place {
    /// What is said over the configuration for this database.
    fn overrides(&self) -> Overrides {
        match self {
            Self::File(path) => Overrides { sqlite: Some(path.clone()), ..Overrides::default() },
            Self::Server { url, secret } => Overrides {
                postgres: Some(url.as_str().into()),
                postgres_password: std::env::var_os(PASSWORD).map(Into::into),
                secret_file: Some(secret.clone()),
                ..Overrides::default()
            },
        }
    }

    /// The file of the server secret.
    fn secret(&self) -> PathBuf {
        match self {
            Self::File(path) => beside(path, "secret"),
            Self::Server { secret, .. } => secret.clone(),
        }
    }
}

/// A database with approvals in it.
pub(super) struct Database {
    /// Where it is.
    pub(super) place: Place,
    /// The approval that all others are copies of.
    pub(super) template: Approval,
    /// The copies, about call 0, 1, 2 and so on.
    pub(super) copies: Vec<ApprovalId>,
    /// What makes their tokens.
    pub(super) keys: Keys,
}

impl World {
    /// A new folder within `place`.
    pub(super) fn make(place: &Path) -> io::Result<Self> {
        let folder = place.join(format!("countersign-bench-{}", Uuid::new_v4().simple()));
        DirBuilder::new().mode(0o700).create(&folder)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let token = || mint().map_err(io::Error::other);
        let world = Self { folder, runtime, agent_token: token()?, approver_token: token()? };
        let hash = |token: &str| TokenHash::of(token.as_bytes()).to_string();
        let config = format!(
            "listen = \"127.0.0.1:0\"\nhealth_listen = \"127.0.0.1:0\"\npolicy = \"policy.yaml\"\n\
             [log]\nformat = \"json\"\nfilter = \"info\"\n\
             [[callers]]\nname = \"{CALLER}\"\nrole = \"agent\"\ntoken_sha256 = \"{}\"\nagents = [\"*\"]\n\
             principals = [\"*\"]\n\
             [[callers]]\nname = \"chat\"\nrole = \"approver\"\ntoken_sha256 = \"{}\"\nasserts_principal = [\"*\"]\n",
            hash(&world.agent_token),
            hash(&world.approver_token),
        );
        world.write("countersign.toml", &config)?;
        world.write("quiet.toml", &format!("{config}{QUIET}"))?;
        world.write("unheard.toml", &format!("{config}[store.postgres]\nnotify = false\n"))?;
        world.write("policy.yaml", POLICY)?;
        Ok(world)
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let mut open = OpenOptions::new();
        open.write(true).create_new(true).mode(0o600).open(self.folder.join(name))?.write_all(text.as_bytes())
    }

    /// The configuration of every sidecar.
    pub(super) fn config(&self) -> PathBuf {
        self.folder.join("countersign.toml")
    }

    /// The same, with these lines, under another name.
    pub(super) fn config_with(&self, name: &str, lines: &str) -> io::Result<PathBuf> {
        let config = std::fs::read_to_string(self.config())?;
        self.write(name, &format!("{config}{lines}"))?;
        Ok(self.folder.join(name))
    }

    /// The same, but for the background work, which does not begin.
    pub(super) fn config_without_sweeps(&self) -> PathBuf {
        self.folder.join("quiet.toml")
    }

    /// The configuration of sidecars that tell each other of changes, or that do not.
    pub(super) fn config_that_notifies(&self, notify: bool) -> PathBuf {
        if notify { self.config() } else { self.folder.join("unheard.toml") }
    }

    /// The folder, for what else is needed.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// How a database of this name is opened.
    pub(super) fn options(&self, path: &Path) -> SqliteOptions {
        SqliteOptions::new(path, Arc::new(SystemClock::new()))
    }

    /// Where a file of this name is, or is to be.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A new file with `count` approvals, each about a call of its own: open ones, or such as are approved and may be used.
    pub(super) fn database(&self, name: &str, count: usize, approved: bool) -> io::Result<Database> {
        self.filled(Place::File(self.file(name)), count, approved)
    }

    /// Where a database of a Postgres server is, with a server secret that is made for it.
    pub(super) fn served(&self, url: &str) -> io::Result<Place> {
        let secret = self.folder.join(format!("secret-{}", Uuid::new_v4().simple()));
        ServerSecret::generate().and_then(|made| made.write(&secret)).map_err(io::Error::other)?;
        Ok(Place::Server { url: url.to_owned(), secret })
    }

    /// An empty database with such approvals put into it.
    pub(super) fn filled(&self, place: Place, count: usize, approved: bool) -> io::Result<Database> {
        let config = Config::load(Some(&self.config()), &place.overrides()).map_err(io::Error::other)?;
        self.runtime.block_on(async {
            let template = ask(&config, UNCOPIED, approved, None).await?;
            let seeds = Seeds::open(&config.store).await?;
            let seeded = seeds.seed(template.id, count).await;
            seeds.close().await;
            let secret = ServerSecret::read(&place.secret()).map_err(io::Error::other)?;
            let secret = secret.ok_or_else(|| io::Error::other("the sidecar made no secret"))?;
            let keys = secret.keys().map_err(io::Error::other)?;
            Ok(Database { template, copies: seeded.map_err(io::Error::other)?, keys, place })
        })
    }

    /// Adds `count` approvals that nobody has answered in time, and waits until that is so.
    pub(super) fn overdue(&self, database: &Database, count: usize) -> io::Result<()> {
        let overrides = database.place.overrides();
        let config = Config::load(Some(&self.config_without_sweeps()), &overrides).map_err(io::Error::other)?;
        self.runtime.block_on(async {
            let template = ask(&config, UNCOPIED - 1, false, Some(SOON)).await?;
            let seeds = Seeds::open(&config.store).await?;
            // One of them is the template.
            let seeded = seeds.seed(template.id, count.saturating_sub(1)).await;
            while seeds.store().time().await.is_ok_and(|now| now < template.decide_by) {
                tokio::time::sleep(SOON).await;
            }
            seeds.close().await;
            seeded.map(|_| ()).map_err(io::Error::other)
        })
    }
}

/// A store that can be filled.
enum Seeds {
    File(SqliteStore),
    Server(PostgresStore),
}

impl Seeds {
    async fn open(settings: &StoreSettings) -> io::Result<Self> {
        Ok(match settings {
            StoreSettings::Sqlite(settings) => {
                let options = settings.options(Arc::new(SystemClock::new()));
                Self::File(SqliteStore::open(options).await.map_err(io::Error::other)?)
            }
            StoreSettings::Postgres(settings) => {
                Self::Server(PostgresStore::open(settings.options()).await.map_err(io::Error::other)?)
            }
        })
    }

    fn store(&self) -> &dyn Store {
        match self {
            Self::File(store) => store,
            Self::Server(store) => store,
        }
    }

    /// Copies an approval, about call 0, 1, 2 and so on.
    async fn seed(&self, template: ApprovalId, count: usize) -> Result<Vec<ApprovalId>, StoreError> {
        let mut ids = Vec::with_capacity(count);
        let mut copies = Vec::with_capacity(SEEDED_AT_ONCE.min(count));
        for number in 0..count {
            let call =
                invocation(ASKED, number).map_err(|cause| StoreError::Inconsistent { cause: cause.to_string() })?;
            let id = ApprovalId::new(Uuid::now_v7());
            let (fingerprint, arguments) = (call.subject.fingerprint, call.subject.arguments_digest);
            copies.push(ApprovalCopy { id, fingerprint, arguments });
            ids.push(id);
            if copies.len() == SEEDED_AT_ONCE {
                self.copy(template, &copies).await?;
                copies.clear();
            }
        }
        self.copy(template, &copies).await?;
        if let Self::Server(store) = self {
            store.analyse().await?;
        }
        Ok(ids)
    }

    async fn copy(&self, template: ApprovalId, copies: &[ApprovalCopy]) -> Result<(), StoreError> {
        match self {
            Self::File(store) => store.seed(template, copies).await,
            Self::Server(store) => store.seed(template, copies).await,
        }
    }

    async fn close(&self) {
        self.store().close().await;
    }
}

/// A call of number `number`, by this connector.
pub(super) fn invocation(connector: &str, number: usize) -> Result<Invocation, io::Error> {
    let said = Said {
        principal: identifier(PRINCIPAL)?,
        agent: identifier(AGENT)?,
        conversation: Some(identifier("chat-1")?),
        connector: identifier(connector)?,
        account: Some(identifier(ACCOUNT)?),
        connection: None,
        action: identifier(ACTION)?,
        objective: None,
        tool_definition_digest: None,
        labels: BTreeMap::new(),
    };
    let arguments = Arguments::parse(&arguments(number), DEFAULT_MAX_ARGUMENTS_BYTES).map_err(unexpected)?;
    Ok(Invocation::new(said, arguments))
}

/// The same, as an agent says it.
pub(super) fn message(connector: &str, number: usize) -> proto::Invocation {
    proto::Invocation {
        principal: PRINCIPAL.to_owned(),
        agent: AGENT.to_owned(),
        conversation: "chat-1".to_owned(),
        connector: connector.to_owned(),
        account: ACCOUNT.to_owned(),
        action: ACTION.to_owned(),
        arguments_json: arguments(number),
        ..proto::Invocation::default()
    }
}

/// The name of the agent's caller, as an identifier.
pub(super) fn caller() -> Result<Identifier, io::Error> {
    identifier(CALLER)
}

/// An email, in members that are in no order, with white space as a client's library writes it.
fn arguments(number: usize) -> String {
    let filled = |body: &str| {
        format!(
            "{{\"recipient_email\": \"kim@acme.com\", \"subject\": \"Report {number:09}\", \"is_html\": false, \
             \"body\": \"{body}\", \"attachment\": {{\"name\": \"figures.csv\", \"bytes\": 20481}}, \
             \"cc\": [\"lee@acme.com\", \"max@acme.com\"], \"priority\": 1.5}}"
        )
    };
    let sentence = "The figures of last week are attached. \\u00dcberall gr\u{fc}n. ";
    let room = ARGUMENTS.saturating_sub(filled("").len());
    let mut body = sentence.repeat(room / sentence.len());
    body.push_str(&".".repeat(room.saturating_sub(body.len())));
    filled(&body)
}

/// Asks about a call that is none of those that are copied later, and approves it if so told.
async fn ask(config: &Config, call: usize, approved: bool, decide_within: Option<Duration>) -> io::Result<Approval> {
    let running = app::start(config, Arc::new(SystemClock::new())).await.map_err(io::Error::other)?;
    let everyone = || vec![Pattern::new("*")];
    let bounds = Arc::new(AgentBounds { agents: everyone(), principals: everyone() });
    let agent = AgentCaller { name: caller()?, bounds };
    let question = Question {
        invocation: invocation(ASKED, call)?,
        request_id: None,
        retry_of: None,
        wait: None,
        agent_note: None,
        decide_within,
    };
    let asked = running.engine().request_approval(&agent, question).await.map_err(unexpected)?;
    let Asked::Open { approval, .. } = asked else { return Err(io::Error::other("nobody was asked")) };
    let approval = if approved {
        let person = Person {
            id: identifier(PRINCIPAL)?,
            groups: Default::default(),
            vouched: Default::default(),
            caller: identifier("chat")?,
        };
        let fingerprint = approval.question.subject.fingerprint;
        let answer = Answer { verdict: Verdict::Approve, reason: None, shown_fingerprint: Some(fingerprint) };
        running.engine().decide(&person, approval.id, &answer).await.map_err(unexpected)?
    } else {
        *approval
    };
    running.stop().await;
    Ok(approval)
}

fn identifier(text: &str) -> Result<Identifier, io::Error> {
    Identifier::parse(text).map_err(unexpected)
}

fn unexpected(cause: impl Debug) -> io::Error {
    io::Error::other(format!("{cause:?}"))
}
