//! A real sidecar on a real database and free ports, with clocks that tests move, and clients for each door.

use crate::backend;
use crate::secrecy::{self, Listening, Search, Secrets};
use countersign::app::{self, Running, StartError};
use countersign::auth::token::TokenHash;
use countersign::auth::{AgentBounds, Caller, Callers, Powers};
use countersign::client::{self, Authenticated, Bearer};
use countersign::clock::{Clock, ManualClock};
use countersign::config::{Config, Overrides};
use countersign::domain::audit::AuditedEvaluations;
use countersign::domain::pattern::Pattern;
use countersign::domain::text::Identifier;
use countersign::domain::time::Timestamp;
use countersign::metrics::Format;
use countersign::proto::agent_service_client::AgentServiceClient;
use countersign::proto::approver_service_client::ApproverServiceClient;
use countersign::proto::operator_service_client::OperatorServiceClient;
use countersign::proto::{
    Approval, AuditRecord, ConsumeRequest, ConsumeResponse, DecideRequest, Invocation, ListAuditRecordsRequest,
    Objective, RequestApprovalRequest, RequestApprovalResponse, Verdict,
};
use countersign::sweeper::Report;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use uuid::Uuid;

/// The start of every test's time: 2026-01-01T00:00:00Z.
pub const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// Reads run, writes ask the owner, admin asks two of finance; mail that leaves asks the owner and one of finance.
pub const POLICY: &str = r#"
version: countersign.policy/v1
groups: { finance: [dana, eve, finn], security: [sam] }
connectors:
  gmail:
    agents: [assistant, "other-*"]
    ceiling: admin
    actions:
      GMAIL_FETCH_EMAILS: { scope: read, curated: true, tags: [readOnlyHint] }
      GMAIL_SEND_EMAIL: { scope: write, curated: true, tags: [createHint] }
      GMAIL_REPLY: { scope: write, curated: true, tags: [createHint] }
      GMAIL_DELETE_EMAIL: { scope: admin, curated: true, tags: [destructiveHint] }
    rules:
      - name: never-to-the-press
        actions: ["GMAIL_SEND_*"]
        when: "has(args.to) && args.to.endsWith('@press.example')"
        effect: deny
      - name: deletion
        actions: [GMAIL_DELETE_EMAIL]
        effect: confirm
        approvers: [{ any_of: ["group:finance"], quorum: 2 }]
  outlook:
    ceiling: write
    actions:
      GMAIL_SEND_EMAIL: { scope: write, curated: true }
  calendar:
    ceiling: write
    confirm: never
    accounts: none
    actions:
      ADD_EVENT: { scope: write, curated: true }
  off:
    enabled: false
"#;

/// The name of the database's file, where it is one, and the beginning of the name of what is beside it.
pub const DATABASE: &str = "countersign.db";
/// The name of the first server secret of every sidecar of the harness.
pub const SECRET: &str = "countersign.db.secret";

/// A folder of its own for each test, and the database that belongs to it, removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        Self::of(backend::prepare)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// One whose database this makes.
    pub fn of(database: impl FnOnce(&Path)) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("countersign-grpc-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        database(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        backend::forget(&self.0);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A sidecar under test. The callers: `runtime` (any agent and principal), `tenant-a` and `tenant-b` (the agent
/// `assistant` for one principal each), `chat` (asserts anybody), `dana` and `eve` (persons), `team` (asserts `team-*`),
/// `ops`.
pub struct Sidecar {
    pub clock: Arc<ManualClock>,
    folder: Arc<Folder>,
    policy: String,
    limits: (u32, u32),
    evaluations: AuditedEvaluations,
    /// Where the policy is, if the test itself puts it there.
    watched: Option<PathBuf>,
    running: Option<Running>,
    channel: OnceLock<Channel>,
    secrets: Mutex<Secrets>,
    /// Whether the test itself has put some where they must not be.
    planted: AtomicBool,
    listening: Listening,
}

/// The callers of the harness.
const CALLERS: [&str; 10] =
    ["runtime", "runtime-2", "tenant-a", "tenant-b", "nobody", "chat", "team", "dana", "eve", "ops"];

/// The token of a caller of the harness.
pub fn token(caller: &str) -> String {
    format!("cst_test_token_of_{caller}_0123456789")
}

/// Every caller of the harness.
pub fn callers() -> Callers {
    let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::new(text)).collect::<Vec<_>>();
    let id = |text: &str| Identifier::parse(text).unwrap();
    let agent = |agents: &[&str], principals: &[&str]| {
        Powers::Agent(Arc::new(AgentBounds { agents: patterns(agents), principals: patterns(principals) }))
    };
    let all = [
        ("runtime", agent(&["*"], &["*"])),
        ("runtime-2", agent(&["*"], &["*"])),
        ("tenant-a", agent(&["assistant"], &["tenant-a"])),
        ("tenant-b", agent(&["assistant"], &["tenant-b"])),
        ("nobody", agent(&[], &[])),
        ("chat", Powers::Asserts(patterns(&["*"]))),
        ("team", Powers::Asserts(patterns(&["team-*"]))),
        ("dana", Powers::Person(id("dana"))),
        ("eve", Powers::Person(id("eve"))),
        ("ops", Powers::Operator),
    ];
    Callers::new(
        all.into_iter()
            .map(|(name, powers)| (TokenHash::of(token(name).as_bytes()), Caller { name: id(name), powers }))
            .collect(),
    )
}

/// The configuration of a sidecar with the callers of the harness, its policy and database in `folder`, on free ports.
pub fn config_in(folder: &Path) -> Config {
    let overrides = Overrides {
        listen: Some("127.0.0.1:0".to_owned()),
        health_listen: Some("127.0.0.1:0".to_owned()),
        policy: Some(folder.join("policy.yaml")),
        sqlite: Some(folder.join(DATABASE)),
        reflection: Some(true),
        ..Overrides::default()
    };
    let mut config = Config::load(None, &overrides).unwrap();
    backend::configure(&mut config, folder);
    config.callers = callers();
    // A test says when: see `Sidecar::sweep`.
    config.sweep_every = Duration::from_secs(60 * 60);
    config.sealing.seal_every = Duration::from_secs(60 * 60);
    config
}

/// Starts a sidecar that goes by this clock, whosever the time of its database is.
pub async fn serve(config: &Config, clock: Arc<dyn Clock>) -> Result<Running, StartError> {
    let mut config = config.clone();
    backend::keep_time(&mut config, Arc::clone(&clock));
    app::start(&config, clock).await
}

/// Every file in a folder and the folders in it, by name.
pub fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.is_file() {
            // A socket has no content.
            found.push((path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap()));
        }
    }
    found
}

/// What a test used that is secret must stand nowhere when it ends.
impl Drop for Sidecar {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.planted.load(Ordering::SeqCst) {
            secrecy::nothing(&self.told_secrets());
        }
    }
}

impl Sidecar {
    pub async fn start() -> Self {
        Self::under(POLICY).await
    }

    pub async fn under(policy: &str) -> Self {
        Self::with(policy, (100, 1_000)).await
    }

    /// One that audits these evaluations.
    pub async fn auditing(evaluations: AuditedEvaluations) -> Self {
        Self::of(POLICY, (100, 1_000), evaluations).await
    }

    pub async fn with(policy: &str, limits: (u32, u32)) -> Self {
        Self::of(policy, limits, AuditedEvaluations::default()).await
    }

    async fn of(policy: &str, limits: (u32, u32), evaluations: AuditedEvaluations) -> Self {
        let mut sidecar = Self::stopped(Folder::new(), Arc::new(ManualClock::at(START)));
        (sidecar.policy, sidecar.limits, sidecar.evaluations) = (policy.to_owned(), limits, evaluations);
        sidecar.run().await;
        sidecar
    }

    /// One that has not been started, with the database of this folder.
    pub fn stopped(folder: Folder, clock: Arc<ManualClock>) -> Self {
        Self {
            clock,
            folder: Arc::new(folder),
            policy: POLICY.to_owned(),
            limits: (100, 1_000),
            evaluations: AuditedEvaluations::default(),
            watched: None,
            running: None,
            channel: OnceLock::new(),
            secrets: Mutex::default(),
            planted: AtomicBool::new(false),
            listening: Listening::begin(),
        }
    }

    /// One whose policy is at `path` in its folder, as `prepare` puts it there, and need not hold still for long.
    pub async fn watching(path: &str, prepare: impl FnOnce(&Path)) -> Self {
        let folder = Folder::new();
        prepare(folder.path());
        let watched = Some(folder.path().join(path));
        let mut sidecar = Self::stopped(folder, Arc::new(ManualClock::at(START)));
        sidecar.watched = watched;
        sidecar.run().await;
        sidecar
    }

    async fn run(&mut self) {
        self.run_with(|_| {}).await.unwrap();
    }

    /// Starts it, or finds out why it does not start, under a changed configuration.
    async fn run_with(&mut self, change: impl FnOnce(&mut Config)) -> Result<(), StartError> {
        let folder = self.folder.path();
        let mut config = config_in(folder);
        match &self.watched {
            None => std::fs::write(folder.join("policy.yaml"), &self.policy).unwrap(),
            Some(path) => {
                config.policy.clone_from(path);
                config.policy_settle = Duration::from_millis(20);
            }
        }
        config.question_limits.per_principal = self.limits.0;
        config.question_limits.per_agent = self.limits.1;
        // Tests ask the same again and again; those of these limits say them.
        config.question_limits.asked = None;
        config.question_limits.per_action = u32::MAX;
        config.question_limits.cool_off = Duration::ZERO;
        config.audited_evaluations = self.evaluations;
        change(&mut config);
        let clock = Arc::<ManualClock>::clone(&self.clock);
        self.running = Some(serve(&config, clock).await?);
        self.channel = OnceLock::new();
        Ok(())
    }

    /// Stops it, if it runs, and starts it again over the same files under a changed configuration.
    pub async fn restart_with(&mut self, change: impl FnOnce(&mut Config)) -> Result<(), StartError> {
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
        self.run_with(change).await
    }

    /// Stops it in order and starts it again over the same files.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.run().await;
    }

    /// Stops it and starts it again over the same files, under another policy.
    pub async fn restart_under(&mut self, policy: &str) {
        self.policy = policy.to_owned();
        self.restart().await;
    }

    /// Starts it again over the same files after a stop.
    pub async fn restart_stopped(&mut self) {
        self.run().await;
    }

    pub async fn stop(&mut self) -> bool {
        secrecy::nothing(&self.page_secrets());
        self.running.take().unwrap().stop().await
    }

    /// Notes what must not be found anywhere once this sidecar has ended.
    pub fn is_secret(&self, what: &str, secret: impl AsRef<[u8]>) {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).add(what, secret);
    }

    /// Says that they are found because the test has put them there.
    pub fn secrets_were_planted(&self) {
        self.planted.store(true, Ordering::SeqCst);
    }

    /// Notes the token of an answer.
    pub fn noted(&self, answer: RequestApprovalResponse) -> RequestApprovalResponse {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).add_token(&answer.consume_token);
        answer
    }

    /// Everything that is secret in this test.
    fn secrets(&self) -> Secrets {
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for caller in CALLERS {
            secrets.add(format!("the bearer token of {caller}"), token(caller));
        }
        for password in backend::passwords(self.folder()) {
            secrets.add("the password of the database", password);
        }
        for (name, text) in files(self.folder()).into_iter().filter(|(name, _)| name.ends_with("secret")) {
            let digits = String::from_utf8_lossy(&text).trim().to_owned();
            let pairs = digits.as_bytes().as_chunks::<2>().0;
            let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
            if let Some(bytes) = pairs.iter().map(byte).collect::<Option<Vec<u8>>>() {
                secrets.add(format!("the server secret of {name}"), bytes);
            }
        }
        secrets
    }

    /// What is secret and stands on the page of figures.
    fn page_secrets(&self) -> BTreeSet<String> {
        let Some(running) = &self.running else { return BTreeSet::new() };
        let page = running.engine().metrics().text(Format::OpenMetrics);
        self.secrets().search().within("the metrics", page.as_bytes())
    }

    /// What is secret and stands in the log, on the page of figures or in the database.
    pub fn told_secrets(&self) -> BTreeSet<String> {
        let search = self.secrets().search();
        let mut found = search.within("the log", &self.listening.heard());
        found.extend(self.page_secrets());
        for (place, bytes) in backend::bytes_of(self.folder()) {
            found.extend(search.within(&format!("the database ({place})"), &bytes));
        }
        found
    }

    pub fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The one connection that all clients of this start of the sidecar share.
    pub fn channel(&self) -> Channel {
        self.channel.get_or_init(|| client::channel(self.running().address()).unwrap()).clone()
    }

    pub fn agent(&self) -> AgentServiceClient<Authenticated> {
        self.agent_as("runtime")
    }

    pub fn agent_as(&self, caller: &str) -> AgentServiceClient<Authenticated> {
        client::agent(self.channel(), Bearer::new(&token(caller)).unwrap())
    }

    pub fn approver(&self) -> ApproverServiceClient<Authenticated> {
        self.approver_as("chat")
    }

    pub fn approver_as(&self, caller: &str) -> ApproverServiceClient<Authenticated> {
        client::approver(self.channel(), Bearer::new(&token(caller)).unwrap())
    }

    pub fn operator(&self) -> OperatorServiceClient<Authenticated> {
        client::operator(self.channel(), Bearer::new(&token("ops")).unwrap())
    }

    /// Runs the background work until nothing is left for it; what it did.
    pub async fn sweep(&self) -> Report {
        let mut total = Report::default();
        loop {
            let report = self.running().sweeper().pass().await.unwrap();
            total.expired += report.expired;
            total.timed_out += report.timed_out;
            total.erased += report.erased;
            total.deleted += report.deleted;
            total.lag = total.lag.max(report.lag);
            if !report.more {
                return total;
            }
        }
    }

    pub fn advance(&self, span: Duration) {
        self.clock.advance(span);
    }

    /// Asks, and expects an approval with its token.
    pub async fn ask(&self, invocation: Invocation) -> (Approval, String) {
        let answer = self.request(invocation).await.unwrap();
        (answer.approval.unwrap(), answer.consume_token)
    }

    pub async fn request(&self, invocation: Invocation) -> Result<RequestApprovalResponse, Status> {
        let request = RequestApprovalRequest { invocation: Some(invocation), ..RequestApprovalRequest::default() };
        self.agent().request_approval(request).await.map(|answer| self.noted(answer.into_inner()))
    }

    pub async fn decide(&self, person: &str, approval: &str, verdict: Verdict) -> Result<Approval, Status> {
        let request = DecideRequest {
            approval_id: approval.to_owned(),
            principal: person.to_owned(),
            verdict: verdict.into(),
            ..DecideRequest::default()
        };
        Ok(self.approver().decide(request).await?.into_inner().approval.unwrap())
    }

    /// Asks, has the owner approve, and hands out approval and token.
    pub async fn approved(&self, invocation: Invocation) -> (Approval, String) {
        let owner = invocation.principal.clone();
        let (approval, token) = self.ask(invocation).await;
        let approval = self.decide(&owner, &approval.id, Verdict::Approve).await.unwrap();
        (approval, token)
    }

    pub async fn consume(&self, token: &str, invocation: Invocation) -> Result<ConsumeResponse, Status> {
        self.attempt(token, &new_attempt(), invocation).await
    }

    pub async fn attempt(&self, token: &str, attempt: &str, invocation: Invocation) -> Result<ConsumeResponse, Status> {
        let request = ConsumeRequest {
            consume_token: token.to_owned(),
            attempt_id: attempt.to_owned(),
            invocation: Some(invocation),
            retry_of: String::new(),
        };
        let answer = self.agent().consume(request).await?.into_inner();
        if let Some(permit) = &answer.permit {
            self.is_secret("a permit", &permit.permit_jwt);
        }
        Ok(answer)
    }

    /// The audit of one approval, oldest first.
    pub async fn audit_of(&self, approval: &str) -> Vec<AuditRecord> {
        let request =
            ListAuditRecordsRequest { approval_id: approval.to_owned(), page_size: 1_000, ..Default::default() };
        let mut records = self.operator().list_audit_records(request).await.unwrap().into_inner().records;
        records.reverse();
        records
    }

    /// The whole audit, oldest first.
    pub async fn audit(&self) -> Vec<AuditRecord> {
        self.audit_of("").await
    }
}

pub fn new_attempt() -> String {
    Uuid::new_v4().to_string()
}

/// The reviewed email of the vectors, asked by `olga`'s assistant.
pub fn email() -> Invocation {
    Invocation {
        principal: "olga".to_owned(),
        agent: "assistant".to_owned(),
        conversation: "conversation-1".to_owned(),
        connector: "gmail".to_owned(),
        account: "work-mailbox-a".to_owned(),
        connection: "connection-1".to_owned(),
        action: "GMAIL_SEND_EMAIL".to_owned(),
        arguments_json: r#"{"to":"a@example.com","body":"Hello"}"#.to_owned(),
        objective: Some(Objective { transcript: "t1".to_owned(), id: "input-1".to_owned(), revision: 1 }),
        tool_definition_digest: String::new(),
        labels: [("ticket".to_owned(), "T-1".to_owned())].into(),
    }
}

/// An invocation that the policy allows as it is.
pub fn fetch() -> Invocation {
    Invocation { action: "GMAIL_FETCH_EMAILS".to_owned(), ..email() }
}

/// An invocation that asks two of finance.
pub fn deletion() -> Invocation {
    Invocation { action: "GMAIL_DELETE_EMAIL".to_owned(), ..email() }
}

/// The stable reason of a refusal. Every one has one.
pub fn reason(status: &Status) -> String {
    let info = status.get_details_error_info().unwrap_or_else(|| panic!("no ErrorInfo in {status:?}"));
    assert_eq!(info.domain, "countersign.v1");
    static SEARCH: OnceLock<Search> = OnceLock::new();
    let search = SEARCH.get_or_init(|| {
        let mut secrets = Secrets::default();
        CALLERS.iter().for_each(|caller| secrets.add(format!("the bearer token of {caller}"), token(caller)));
        secrets.search()
    });
    let said = [status.message().as_bytes(), status.details(), format!("{:?}", status.metadata()).as_bytes()].concat();
    secrecy::nothing(&search.within("an error", &said));
    info.reason
}

/// One dynamic value of a refusal.
pub fn told(status: &Status, key: &str) -> String {
    status.get_details_error_info().unwrap().metadata.get(key).cloned().unwrap_or_default()
}

/// Checks that a call was refused with this code and reason.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, why: &str) -> Status {
    let status = result.expect_err(why);
    assert_eq!((status.code(), reason(&status).as_str()), (code, why), "{status:?}");
    status
}
