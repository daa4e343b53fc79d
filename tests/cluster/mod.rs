//! A real Postgres for tests: a cluster of this process's own, made from the machine's binaries in a temporary folder, and
//! gone when the process is, however it ends. `COUNTERSIGN_TEST_POSTGRES_URL` names another server to make databases in.

// Each test target uses its own part of this.
#![allow(dead_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Row as _};
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// Names a server to use in place of a cluster of this process's own: a URL of a role that may create databases.
const ANOTHER: &str = "COUNTERSIGN_TEST_POSTGRES_URL";

/// What every cluster begins with. Nothing that is tested here rests on what only a power cut would lose.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "off"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "off"),
    ("max_connections", "1000"),
    ("shared_buffers", "64MB"),
    ("max_wal_size", "4GB"),
    ("deadlock_timeout", "100ms"),
    ("log_min_messages", "warning"),
    // It would look at each of hundreds of databases that live for a second, and at the template that they are made from.
    ("autovacuum", "off"),
    ("timezone", "UTC"),
];

/// A server that runs for tests.
#[derive(Debug)]
pub enum Server {
    /// A cluster of this process's own.
    Own(Cluster),
    /// The one that the environment names.
    Another(String),
}

impl Server {
    /// The server that all tests of this process share, started by the first.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| match std::env::var(ANOTHER) {
            Ok(url) if !url.is_empty() => Self::Another(url),
            _ => Self::Own(Cluster::start()),
        })
    }

    /// The URL of one of its databases, with the password if there is one.
    fn full_url(&self, database: &str) -> String {
        match self {
            Self::Own(cluster) => cluster.url(database),
            Self::Another(url) => {
                let (server, options) = url.split_once('?').unwrap_or((url, ""));
                let authority = server.find("://").map_or(0, |scheme| scheme + 3);
                let end = server[authority..].find('/').map_or(server.len(), |slash| authority + slash);
                let question = if options.is_empty() { "" } else { "?" };
                format!("{}/{database}{question}{options}", &server[..end])
            }
        }
    }

    /// A connection to one of its databases, as the role that owns it.
    pub async fn connect(&self, database: &str) -> PgConnection {
        connect(&self.full_url(database)).await
    }
}

/// A cluster of this process's own. Dropping it, or the end of the process in whatever way, stops it and removes it.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    port: u16,
    /// Stops the server and removes the folder once its standard input ends.
    supervisor: Child,
}

impl Cluster {
    /// One with nothing but what every cluster begins with.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// One with these settings as well.
    pub fn start_with(settings: &[(&str, &str)]) -> Self {
        let folder = new_folder();
        let supervisor = supervise(&folder);
        let cluster = Self { folder, port: 0, supervisor };
        let data = cluster.data();
        let made = cluster.run(
            "initdb",
            &["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D"]
                .map(OsStr::new)
                .into_iter()
                .chain([data.as_os_str()])
                .collect::<Vec<_>>(),
        );
        assert!(made, "initdb failed:\n{}", cluster.log());
        let written = fs::OpenOptions::new().append(true).open(data.join("postgresql.conf"));
        let mut file = written.expect("the cluster's settings are written");
        for (name, value) in SETTINGS.iter().chain(settings) {
            writeln!(file, "{name} = '{value}'").unwrap();
        }
        writeln!(file, "listen_addresses = '127.0.0.1'").unwrap();
        cluster.started_first()
    }

    /// One that follows another, and takes what that one writes.
    pub fn standby_of(primary: &Self) -> Self {
        let folder = new_folder();
        let supervisor = supervise(&folder);
        let cluster = Self { folder, port: 0, supervisor };
        let (data, url) = (cluster.data(), primary.tcp_url("postgres"));
        let copied = cluster.run(
            "pg_basebackup",
            &["--no-sync", "-c", "fast", "-X", "stream", "-R", "-d", &url, "-D"]
                .map(OsStr::new)
                .into_iter()
                .chain([data.as_os_str()])
                .collect::<Vec<_>>(),
        );
        assert!(copied, "pg_basebackup failed:\n{}", cluster.log());
        cluster.started_first()
    }

    /// Lets one that follows another take writes of its own.
    pub fn promote(&self) {
        self.control(&["promote", "-w", "-t", "60"]);
    }

    /// Starts it for the first time, in its own place.
    fn started_first(mut self) -> Self {
        let written = fs::OpenOptions::new().append(true).open(self.data().join("postgresql.conf"));
        let mut file = written.expect("the cluster's settings are written");
        writeln!(file, "unix_socket_directories = '{}'", self.folder.display()).unwrap();
        // A free port may be taken by another before the server has it.
        for _ in 0..5 {
            self.port = free_port();
            writeln!(file, "port = {}", self.port).unwrap();
            if self.try_start() {
                return self;
            }
        }
        panic!("Postgres does not start:\n{}", self.log());
    }

    /// The URL of a database, over the Unix socket.
    pub fn url(&self, database: &str) -> String {
        let folder = self.folder.to_str().expect("the temporary folder has a name of UTF-8").replace('/', "%2F");
        format!("postgres://postgres@{folder}:{}/{database}", self.port)
    }

    /// The URL of a database, over TCP.
    pub fn tcp_url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The port of 127.0.0.1 that it listens at.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops it as a crash does: nothing is finished, nothing is flushed.
    pub fn stop_immediate(&self) {
        self.control(&["stop", "-m", "immediate"]);
    }

    /// Stops it in order: connections are ended, everything is flushed.
    pub fn stop_fast(&self) {
        self.control(&["stop", "-m", "fast"]);
    }

    /// Starts it after it was stopped, at the same port.
    pub fn start_again(&self) {
        // The port may be held for a moment by what it served.
        let until = Instant::now() + Duration::from_secs(60);
        while !self.try_start() {
            assert!(Instant::now() < until, "Postgres does not start again:\n{}", self.log());
        }
    }

    /// Stops it in order and starts it again.
    pub fn restart(&self) {
        self.stop_fast();
        self.start_again();
    }

    /// Kills one of its processes, by the id that `pg_backend_pid()` told: the server then ends all others and recovers.
    pub fn kill_backend(&self, pid: i32) {
        let pid = rustix::process::Pid::from_raw(pid).expect("a process has an id");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("the backend is killed");
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn try_start(&self) -> bool {
        self.run_control(&["start", "-w", "-t", "60"])
    }

    fn control(&self, arguments: &[&str]) {
        assert!(self.run_control(arguments), "pg_ctl {arguments:?} failed:\n{}", self.log());
    }

    fn run_control(&self, arguments: &[&str]) -> bool {
        let (data, log) = (self.data(), self.folder.join("log"));
        let mut all: Vec<&OsStr> = vec![OsStr::new("-D"), data.as_os_str(), OsStr::new("-l"), log.as_os_str()];
        all.extend(arguments.iter().map(OsStr::new));
        self.run("pg_ctl", &all)
    }

    fn run(&self, program: &str, arguments: &[&OsStr]) -> bool {
        let log = fs::OpenOptions::new().append(true).create(true).open(self.folder.join("log")).unwrap();
        owned_by_server(&self.folder.join("log"));
        let mut command = Command::new(binaries().join(program));
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        // A control-C in the terminal is for the tests; what they started ends after them.
        as_server_user(&mut command).process_group(0);
        command.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

/// A database of its own, dropped when this is.
#[derive(Debug)]
pub struct Database {
    server: &'static Server,
    name: String,
}

impl Database {
    /// An empty one.
    pub async fn empty() -> Self {
        Self::made_from("template0").await
    }

    /// One as `prepare` makes it of an empty one, whose URL it is given and which it lets go of. It is called once in a
    /// process: what it made is copied from then on. On a server that others use no such original is left behind: there
    /// the database is empty.
    pub async fn fresh(prepare: impl AsyncFnOnce(String)) -> Self {
        static TEMPLATE: OnceCell<Database> = OnceCell::const_new();
        let server = Server::shared();
        if matches!(server, Server::Another(_)) {
            return Self::empty().await;
        }
        let template = TEMPLATE.get_or_init(|| async {
            let template = Self::empty().await;
            prepare(template.url()).await;
            template.alone().await;
            template
        });
        Self::made_from(&template.await.name).await
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its URL, without a password: over the Unix socket where it is of this process's own cluster.
    pub fn url(&self) -> String {
        let full = self.server.full_url(&self.name);
        match full.split_once("://").and_then(|(_, rest)| rest.split_once('@')) {
            Some((user, rest)) => format!("postgres://{}@{rest}", user.split(':').next().unwrap_or_default()),
            None => full,
        }
    }

    /// The password of its URL, if it has one.
    pub fn password(&self) -> Option<String> {
        let full = self.server.full_url(&self.name);
        let (user, _) = full.split_once("://")?.1.split_once('@')?;
        user.split_once(':').map(|(_, password)| decoded(password))
    }

    /// A connection of the test's own.
    pub async fn connect(&self) -> PgConnection {
        self.server.connect(&self.name).await
    }

    /// The same, where it may be shut.
    pub async fn try_connect(&self) -> Result<PgConnection, sqlx::Error> {
        PgConnectOptions::from_str(&self.server.full_url(&self.name))?.disable_statement_logging().connect().await
    }

    /// Lets nobody in any more, and ends whoever is in.
    pub async fn shut(&self) {
        let name = &self.name;
        self.administer(format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")).await;
        self.administer(format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"))
            .await;
    }

    /// Lets everybody in again.
    pub async fn open_again(&self) {
        self.administer(format!("ALTER DATABASE {} WITH ALLOW_CONNECTIONS true", self.name)).await;
    }

    async fn administer(&self, statement: String) {
        let mut connection = self.server.connect("postgres").await;
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    async fn made_from(template: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = Server::shared();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("countersign_test_{}_{number}", std::process::id());
        let mut connection = server.connect("postgres").await;
        // The pages are copied through the log: the other strategy flushes everything, twice.
        let strategy = match connection.server_version_num() {
            Some(version) if version >= 150_000 => " STRATEGY wal_log",
            _ => "",
        };
        let create = format!("CREATE DATABASE {name} TEMPLATE {template}{strategy}");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut connection).await.expect("a database is made");
        connection.close().await.unwrap();
        Self { server, name }
    }

    /// Waits until nobody is connected to it: what is to be copied may have no connections.
    async fn alone(&self) {
        let mut connection = self.server.connect("postgres").await;
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let query = sqlx::query("SELECT count(*) FROM pg_stat_activity WHERE datname = $1").bind(&self.name);
            let connected: i64 = query.fetch_one(&mut connection).await.unwrap().get(0);
            if connected == 0 {
                break;
            }
            assert!(Instant::now() < until, "somebody stays connected to the database that is to be copied");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        connection.close().await.unwrap();
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (admin, name) = (self.server.full_url("postgres"), self.name.clone());
        // On a thread of its own: this may be one that runs futures.
        let dropping = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let drop = AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
                if let Ok(options) = PgConnectOptions::from_str(&admin)
                    && let Ok(mut connection) = options.connect().await
                {
                    let _ = sqlx::raw_sql(drop).execute(&mut connection).await;
                }
            });
        });
        // A server that stays is left as it was found. Our own goes with all that is in it.
        if matches!(self.server, Server::Another(_)) {
            let _ = dropping.join();
        }
    }
}

/// Where Postgres' programs are: the newest of those that Debian's packages put side by side, else those in `PATH`.
fn binaries() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let mut versions: Vec<(u32, PathBuf)> = installed
            .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
            .collect();
        versions.sort();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let newest_first = versions.into_iter().rev().map(|(_, folder)| folder);
        let complete = |folder: &PathBuf| ["initdb", "pg_ctl", "postgres"].iter().all(|name| folder.join(name).is_file());
        newest_first.chain(std::env::split_paths(&path)).find(complete).unwrap_or_else(|| {
            panic!(
                "tests need Postgres: its programs (initdb, pg_ctl, postgres) are neither below /usr/lib/postgresql nor in \
                 PATH. Install them (on Debian or Ubuntu: apt-get install postgresql), or name a server to make databases \
                 in: {ANOTHER}=postgres://USER:PASSWORD@HOST:PORT/postgres"
            )
        })
    })
}

/// The user that a server runs as, where this process is root, which a server refuses to be.
fn server_user() -> Option<(u32, u32)> {
    static USER: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *USER.get_or_init(|| {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let find = |name: &str| {
            let mut fields =
                users.lines().map(|line| line.split(':')).find(|fields| fields.clone().next() == Some(name))?;
            Some((fields.nth(2)?.parse().ok()?, fields.next()?.parse().ok()?))
        };
        Some(find("postgres").or_else(|| find("nobody")).expect("root needs another user to run Postgres as"))
    })
}

fn as_server_user(command: &mut Command) -> &mut Command {
    if let Some((user, group)) = server_user() {
        command.uid(user).gid(group);
    }
    command.current_dir("/")
}

fn owned_by_server(path: &Path) {
    if let Some((user, group)) = server_user() {
        chown(path, Some(user), Some(group)).expect("the server is given what is its own");
    }
}

fn new_folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("countersign-postgres-{}-{number}", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&folder).expect("a folder for the cluster is made");
    owned_by_server(&folder);
    folder
}

/// Starts what outlives this process for as long as it takes to stop the server and to remove the folder.
fn supervise(folder: &Path) -> Child {
    let script = "trap '' HUP INT QUIT TERM; read -r line; \
        \"$1/pg_ctl\" stop -D \"$2/data\" -m immediate -w -t 30; rm -rf \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "supervisor"]).arg(binaries()).arg(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    as_server_user(&mut command).process_group(0).spawn().expect("a supervisor for the cluster is started")
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

async fn connect(url: &str) -> PgConnection {
    let options = PgConnectOptions::from_str(url).expect("the URL of a server");
    let connected = options.disable_statement_logging().connect().await;
    connected.unwrap_or_else(|error| panic!("the Postgres of the tests does not answer: {error}"))
}

/// A text of a URL without its percent-encoding.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).expect("two digits after each percent sign");
        bytes.push(u8::from_str_radix(code, 16).expect("hexadecimal digits after each percent sign"));
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).expect("a text of UTF-8")
}
