//! Making a connection: who says how, and what a session of ours is like.

use super::options::{Address, PostgresOptions, TlsMode};
use super::refusals::OpenError;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection, raw_sql};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use zeroize::Zeroizing;

/// A password is no longer than this.
const LONGEST_PASSWORD: u64 = 16 * 1024;
/// The same, and what reading needs to find the end.
const ROOM: usize = 16 * 1024 + 64;
/// How often the server looks whether a client is still there while it runs a statement of its.
const LOOK_FOR_CLIENT: &str = "SET client_connection_check_interval = '1s'";

/// How connections are made. What the server may have in its own settings for a role holds in none of them where a
/// promise depends on it.
pub(super) struct Connector {
    place: String,
    user: String,
    database: String,
    options: Mutex<PgConnectOptions>,
    password_file: Option<std::path::PathBuf>,
    acquire_timeout: Duration,
    answer_timeout: Duration,
    session: String,
    migrating: String,
}

/// Without the password.
impl std::fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connector").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Connector {
    /// How to reach the database of these options. A migration waits for locks for at most `migration_patience`.
    pub(super) async fn of(options: &PostgresOptions, migration_patience: Duration) -> Result<Self, OpenError> {
        options.check()?;
        let address = Address::parse(&options.url)?;
        let mut connect = PgConnectOptions::new_without_pgpass();
        if let Some(variable) = inherited(&connect, options) {
            return Err(OpenError::Environment { variable });
        }
        connect = connect
            .host(&address.host)
            .port(address.port)
            .username(&address.user)
            .database(&address.database)
            .application_name("countersign")
            // Not known to every proxy, and nothing here is a float.
            .extra_float_digits(None)
            .ssl_mode(ssl_mode(&address, options.tls))
            // A statement's text may have in it what is nobody's business; what is slow shows in the durations.
            .disable_statement_logging();
        if let Some(folder) = address.socket() {
            connect = connect.socket(folder);
        }
        if let Some(root) = &options.root_certificate {
            readable(root).await?;
            has_certificate(root).await?;
            connect = connect.ssl_root_cert(root);
        }
        if let Some((certificate, key)) = &options.client_certificate {
            readable(certificate).await?;
            readable(key).await?;
            connect = connect.ssl_client_cert(certificate).ssl_client_key(key);
        }
        let password = match &options.password_file {
            Some(path) => read_password(path).await?,
            None => options.password.clone().unwrap_or_default(),
        };
        // Also where there is none: the environment's would be taken.
        connect = connect.password(&password);
        Ok(Self {
            place: address.place(),
            user: address.user,
            database: address.database,
            options: Mutex::new(connect),
            password_file: options.password_file.clone(),
            acquire_timeout: options.acquire_timeout,
            answer_timeout: options.statement_timeout.saturating_add(options.acquire_timeout),
            session: session(options.statement_timeout),
            migrating: migrating(migration_patience),
        })
    }

    /// A connection for operations. How long that may take is the caller's to say.
    pub(super) async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = self.connect_bare().await?;
        self.begin_session(&mut connection).await?;
        Ok(connection)
    }

    /// A connection for a migration: its statements take the time that they take.
    pub(super) async fn connect_to_migrate(&self) -> Result<PgConnection, OpenError> {
        let connecting = async {
            let mut connection = self.connect_bare().await?;
            raw_sql(AssertSqlSafe(self.migrating.clone())).execute(&mut connection).await?;
            Ok(connection)
        };
        self.in_time(self.acquire_timeout, connecting).await
    }

    /// A connection while the database is being opened: whatever is in the way is told at once, as it is.
    pub(super) async fn connect_first(&self) -> Result<PgConnection, OpenError> {
        self.in_time(self.acquire_timeout, self.connect()).await
    }

    /// How the driver's own listener connects, which then has to begin its session.
    pub(super) fn options(&self) -> PgConnectOptions {
        self.options.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes a connection's session one of ours.
    pub(super) async fn begin_session(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        raw_sql(AssertSqlSafe(self.session.clone())).execute(&mut *connection).await?;
        // A server that does not know it, or runs where it cannot be, does without.
        match raw_sql(LOOK_FOR_CLIENT).execute(connection).await {
            Err(sqlx::Error::Database(_)) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes in that the server refused the password: whether there is another one to try.
    pub(super) async fn has_new_password(&self, error: &sqlx::Error) -> bool {
        let refused = code(error).is_some_and(|code| matches!(code.as_str(), "28P01" | "28000"));
        let Some(path) = self.password_file.as_deref().filter(|_| refused) else { return false };
        match read_password(path).await {
            Ok(password) => {
                let mut options = self.options.lock().unwrap_or_else(PoisonError::into_inner);
                let next = options.clone().password(&password);
                // The driver tells nobody which one it has; trying the same once more is all that it costs.
                *options = next;
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the database refuses the password, and its file cannot be read");
                false
            }
        }
    }

    async fn connect_bare(&self) -> Result<PgConnection, sqlx::Error> {
        match self.options().connect().await {
            Err(error) if self.has_new_password(&error).await => self.options().connect().await,
            connected => connected,
        }
    }

    /// What the database is asked while it is being opened, if it answers at all: also where something in between hangs.
    pub(super) async fn answered<T>(&self, asked: impl Future<Output = Result<T, OpenError>>) -> Result<T, OpenError> {
        tokio::time::timeout(self.answer_timeout, asked).await.unwrap_or_else(|_| Err(self.late(self.answer_timeout)))
    }

    async fn in_time(
        &self,
        span: Duration,
        connecting: impl Future<Output = Result<PgConnection, sqlx::Error>>,
    ) -> Result<PgConnection, OpenError> {
        match tokio::time::timeout(span, connecting).await {
            Ok(connected) => connected.map_err(|error| self.refusal(&error)),
            Err(_) => Err(self.late(span)),
        }
    }

    fn late(&self, span: Duration) -> OpenError {
        OpenError::Unreachable { place: self.place.clone(), cause: format!("no answer within {} ms", span.as_millis()) }
    }

    /// What an error means while connecting for the first time.
    fn refusal(&self, error: &sqlx::Error) -> OpenError {
        let (place, cause) = (self.place.clone(), error.to_string());
        match (error, code(error).as_deref()) {
            (_, Some("28P01" | "28000")) => OpenError::Refused { user: self.user.clone(), cause },
            (_, Some("3D000" | "42501")) => OpenError::NoSuchDatabase { database: self.database.clone(), cause },
            (_, Some(code)) if is_broken(code) || code == "53300" => OpenError::Unreachable { place, cause },
            (sqlx::Error::Tls(_), _) => OpenError::NotSecure { place, cause },
            // The handshake's own errors come as invalid data of the socket.
            (sqlx::Error::Io(io), _) if io.kind() == std::io::ErrorKind::InvalidData => {
                OpenError::NotSecure { place, cause }
            }
            (sqlx::Error::Io(_), _) => OpenError::Unreachable { place, cause },
            _ => OpenError::Failed { cause },
        }
    }
}

/// The code of what the server said.
pub(super) fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
}

/// Whether a code means that the connection is of no more use.
pub(super) fn is_broken(code: &str) -> bool {
    // Shutting down, crashed, starting, dropped, or idle for too long; a server that takes no more writes: whoever connects
    // anew may find the one that does; statements that it no longer knows, or whose rows are others since.
    let known = ["57P01", "57P02", "57P03", "57P04", "57P05", "25006", "25P02", "25P03", "26000", "0A000", "40003"]
        .contains(&code);
    known || code.starts_with("08")
}

fn ssl_mode(address: &Address, tls: TlsMode) -> PgSslMode {
    if address.socket().is_some() {
        return PgSslMode::Disable;
    }
    match address.tls.unwrap_or(tls) {
        TlsMode::Disable => PgSslMode::Disable,
        TlsMode::Prefer => PgSslMode::Prefer,
        TlsMode::Require => PgSslMode::Require,
        TlsMode::VerifyCa | TlsMode::VerifyFull => PgSslMode::VerifyFull,
    }
}

/// The variable that the driver has taken something from which no setting of ours takes the place of.
fn inherited(connect: &PgConnectOptions, options: &PostgresOptions) -> Option<&'static str> {
    if connect.get_options().is_some() {
        return Some("PGOPTIONS");
    }
    // Of what it holds, the driver tells the certificates in this form alone; a name of a host may not fit into it.
    let url = connect.clone().host("localhost").username("anyone").password("").to_url_lossy();
    let has = |name: &str| url.query_pairs().any(|(found, _)| found == name);
    if has("sslrootcert") && options.root_certificate.is_none() {
        return Some("PGSSLROOTCERT");
    }
    if options.client_certificate.is_some() {
        return None;
    }
    ["sslcert", "sslkey"].into_iter().zip(["PGSSLCERT", "PGSSLKEY"]).find(|(name, _)| has(name)).map(|(_, name)| name)
}

/// What every session of operations begins with. Said after connecting, so that a proxy that knows no start-up options
/// passes it on.
fn session(statement_timeout: Duration) -> String {
    let millis = statement_timeout.as_millis();
    // Whoever waits for a lock hears that it was the lock.
    let lock = millis.saturating_mul(4) / 5;
    // Between two statements of a transaction is only this process: one that stands still must not keep its locks.
    let idle = millis.saturating_mul(2).min(2_000);
    // Every statement reads few rows by their keys, whatever the statistics say, and is planned once.
    format!(
        "SET jit = off; SET plan_cache_mode = 'force_generic_plan'; \
         SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET statement_timeout = {millis}; SET lock_timeout = {lock}; \
         SET idle_in_transaction_session_timeout = {idle}; \
         SET default_transaction_isolation = 'read committed'; SET client_min_messages = 'warning'; \
         SET TimeZone = 'UTC'; \
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    )
}

fn migrating(patience: Duration) -> String {
    format!(
        "SET statement_timeout = 0; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = 0; \
         SET default_transaction_isolation = 'read committed'; SET client_min_messages = 'warning'; \
         SET TimeZone = 'UTC'",
        patience.as_millis()
    )
}

async fn readable(path: &Path) -> Result<(), OpenError> {
    let opened = path.to_owned();
    let read = tokio::task::spawn_blocking(move || std::fs::File::open(opened).map(|_| ())).await;
    read.unwrap_or_else(|error| Err(std::io::Error::other(error)))
        .map_err(|cause| OpenError::Unreadable { path: path.to_owned(), cause })
}

/// Refuses a file that no authority is in: the driver would pass over it.
async fn has_certificate(path: &Path) -> Result<(), OpenError> {
    let file = path.to_owned();
    let read = tokio::task::spawn_blocking(move || std::fs::read(file)).await;
    let bytes = read.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    let bytes = bytes.map_err(|cause| OpenError::Unreadable { path: path.to_owned(), cause })?;
    if String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE-----") {
        return Ok(());
    }
    let problem = format!("root_certificate_file: {} has no certificate in it (PEM)", path.display());
    Err(OpenError::Settings { problem })
}

async fn read_password(path: &Path) -> Result<Zeroizing<String>, OpenError> {
    let file = path.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        use std::io::Read as _;
        // Room for all that is read: a text that has to move leaves a copy behind.
        let mut text = Zeroizing::new(String::with_capacity(ROOM));
        std::fs::File::open(file)?.take(LONGEST_PASSWORD).read_to_string(&mut text)?;
        Ok(text)
    });
    let text = read.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    let text = text.map_err(|cause| OpenError::Unreadable { path: path.to_owned(), cause })?;
    let password = Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned());
    let refused =
        |what: &str| Err(OpenError::Settings { problem: format!("the password file {} {what}", path.display()) });
    if password.is_empty() {
        return refused("is empty");
    }
    if password.contains(['\r', '\n', '\0']) {
        return refused("has more than one line: the password is one, and nothing else");
    }
    Ok(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> PostgresOptions {
        PostgresOptions::new("postgres://a@b/c")
    }

    fn bare() -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
    }

    #[test]
    fn what_the_driver_takes_from_the_environment_is_named() {
        let options_taken = bare().options([("search_path", "x")]);
        assert_eq!(inherited(&options_taken, &options()), Some("PGOPTIONS"));
        assert_eq!(inherited(&bare().ssl_root_cert("x"), &options()), Some("PGSSLROOTCERT"));
        assert_eq!(inherited(&bare().ssl_client_cert("x"), &options()), Some("PGSSLCERT"));
        assert_eq!(inherited(&bare().ssl_client_key("x"), &options()), Some("PGSSLKEY"));
        let mut ours = options();
        ours.root_certificate = Some("ours".into());
        ours.client_certificate = Some(("ours".into(), "ours".into()));
        let all = bare().ssl_root_cert("x").ssl_client_cert("x").ssl_client_key("x");
        assert_eq!(inherited(&all, &ours), None, "ours takes its place");
    }

    #[tokio::test]
    async fn a_file_that_is_not_there_is_named() {
        let nowhere = std::path::PathBuf::from("nowhere.pem");
        let change: [fn(&mut PostgresOptions, std::path::PathBuf); 3] = [
            |options, path| options.password_file = Some(path),
            |options, path| options.root_certificate = Some(path),
            |options, path| options.client_certificate = Some((path.clone(), path)),
        ];
        for change in change {
            let mut options = options();
            change(&mut options, nowhere.clone());
            let error = Connector::of(&options, Duration::from_secs(1)).await.unwrap_err();
            assert!(error.to_string().starts_with("nowhere.pem cannot be read"), "{error}");
        }
    }

    #[test]
    fn a_lock_is_given_up_before_its_statement() {
        let session = session(Duration::from_secs(5));
        assert!(session.contains("statement_timeout = 5000;") && session.contains("lock_timeout = 4000;"), "{session}");
    }
}
