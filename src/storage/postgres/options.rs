//! What a database is named and reached by.

use super::refusals::OpenError;
use crate::clock::Clock;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// How a connection is secured, as `sslmode` says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Never.
    Disable,
    /// If the server can, without looking whose certificate it has.
    Prefer,
    /// Always, without looking whose certificate it has.
    Require,
    /// Always, with a certificate of an authority that is trusted, for whatever host. Refused: public authorities are
    /// always among those that are trusted, and so anybody's certificate would do.
    VerifyCa,
    /// Always, with a certificate of an authority that is trusted, for the very host. Default.
    #[default]
    VerifyFull,
}

impl TlsMode {
    /// Every mode, by its name.
    const ALL: [(&'static str, Self); 5] = [
        ("disable", Self::Disable),
        ("prefer", Self::Prefer),
        ("require", Self::Require),
        ("verify-ca", Self::VerifyCa),
        ("verify-full", Self::VerifyFull),
    ];

    /// Reads what `sslmode` says; none if it says none of these.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(name, _)| *name == text).map(|(_, mode)| mode)
    }
}

/// How a Postgres store is opened. Nothing else says where it is: no variable of the environment, no file of passwords.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Where it is: `postgres://USER@HOST:PORT/DATABASE`, without a password; a host that begins with a slash
    /// (percent-encoded) is the folder of a Unix socket. `?sslmode=` may follow and takes the place of `tls`.
    pub url: String,
    /// The password, if the server wants one.
    pub password: Option<Zeroizing<String>>,
    /// The file that the password is read from, again whenever the server refuses it: it may be changed while this process
    /// runs. A line break at its end is no part of it. It goes before `password`.
    pub password_file: Option<PathBuf>,
    /// How connections are secured. Default: [`TlsMode::VerifyFull`]; of no meaning on a Unix socket.
    pub tls: TlsMode,
    /// Certificates (PEM) of authorities that are trusted beside the public ones.
    pub root_certificate: Option<PathBuf>,
    /// The certificate and the key (PEM) that this client shows.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Connections at most, beside one that listens and one that tells. Default: 8.
    pub connections: u32,
    /// How long an operation waits for a connection, and a connection for the server. Default: 2 s.
    pub acquire_timeout: Duration,
    /// How long a statement may take. Default: 5 s. To be the same on every sidecar of a table: for as long as this, and a
    /// little more, changes are looked for that others may still be about to commit.
    pub statement_timeout: Duration,
    /// How often changes of other sidecars are looked for while anybody watches, whatever they tell. Default: 1 s.
    pub poll_every: Duration,
    /// Whether to tell other sidecars of changes, and to listen to them. Default: yes. Without it changes are found by
    /// looking alone.
    pub notify: bool,
    /// Whether to bring the schema up to date. Default: yes. Otherwise one that is behind is refused.
    pub migrate: bool,
    /// What takes the place of the database's clock. For tests: no configuration sets it.
    pub clock: Option<Arc<dyn Clock>>,
}

impl PostgresOptions {
    /// The defaults for the database at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            password: None,
            password_file: None,
            tls: TlsMode::default(),
            root_certificate: None,
            client_certificate: None,
            connections: 8,
            acquire_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(5),
            poll_every: Duration::from_secs(1),
            notify: true,
            migrate: true,
            clock: None,
        }
    }

    /// Whether the settings make sense, without connecting.
    ///
    /// # Errors
    /// [`OpenError::Settings`].
    pub fn check(&self) -> Result<(), OpenError> {
        let address = Address::parse(&self.url)?;
        let tls = address.tls.unwrap_or(self.tls);
        if address.socket().is_none() && tls == TlsMode::VerifyCa {
            return Err(settings(
                "sslmode verify-ca lets anybody in who has a certificate of a public authority: write verify-full",
            ));
        }
        if self.connections == 0 {
            return Err(settings("at least one connection is needed"));
        }
        let too_short = |span: Duration| span < Duration::from_millis(10);
        if too_short(self.acquire_timeout) || too_short(self.statement_timeout) || too_short(self.poll_every) {
            return Err(settings("time-outs and intervals are 10 ms at least"));
        }
        Ok(())
    }
}

/// Without the password, also where somebody wrote one into the url.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = Address::parse(&self.url).map_or_else(|_| "(none)".to_owned(), |address| address.place());
        formatter.debug_struct("PostgresOptions").field("place", &place).finish_non_exhaustive()
    }
}

/// What a url says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) user: String,
    /// A name, an address without brackets, or the folder of a Unix socket.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: String,
    pub(super) tls: Option<TlsMode>,
}

impl Address {
    /// Reads a url. What is refused is told without repeating it: a password may stand where none belongs.
    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        let rest = ["postgres://", "postgresql://"].into_iter().find_map(|scheme| url.strip_prefix(scheme));
        let rest = rest.ok_or_else(|| settings("the url has the form postgres://USER@HOST:PORT/DATABASE"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').ok_or_else(|| settings("the url names no database"))?;
        let (user, host) = authority.rsplit_once('@').ok_or_else(|| settings("the url names no user"))?;
        if user.contains(':') {
            return Err(settings(
                "the url has a password in it, where logs and process lists show it: put it into the password's file",
            ));
        }
        let (host, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            None => 5_432,
            Some(port) => match port.parse() {
                Ok(port) if port > 0 => port,
                Ok(_) | Err(_) => return Err(settings("the port of the url is no number from 1 to 65535")),
            },
        };
        let part = |name: &str, text: &str| match decoded(text) {
            Some(text) if !text.is_empty() && !text.contains('\0') => Ok(text),
            Some(_) => Err(settings(&format!("the url names no {name}"))),
            None => Err(settings(&format!("the {name} of the url is not rightly percent-encoded"))),
        };
        let mut tls = None;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=').unwrap_or((parameter, "")) {
                ("sslmode", mode) => {
                    let names = TlsMode::ALL.map(|(name, _)| name).join(", ");
                    let mode = TlsMode::parse(mode).ok_or_else(|| settings(&format!("sslmode is one of {names}")))?;
                    tls = Some(mode);
                }
                (name, _) => {
                    let name: String = name.chars().filter(char::is_ascii_graphic).take(64).collect();
                    let problem = format!("the url's parameter \"{name}\" is not known: it may have sslmode alone");
                    return Err(settings(&problem));
                }
            }
        }
        let (user, host) = (part("user", user)?, part("host", host)?);
        let database = part("database", database)?;
        if host.contains('/') && !host.starts_with('/') {
            return Err(settings("a host that is the folder of a Unix socket begins with a slash"));
        }
        Ok(Self { user, host, port, database, tls })
    }

    /// The folder of the Unix socket, if it is one.
    pub(super) fn socket(&self) -> Option<&str> {
        self.host.starts_with('/').then_some(self.host.as_str())
    }

    /// Where it is, for people.
    pub(super) fn place(&self) -> String {
        format!("{}:{}/{}", self.host, self.port, self.database)
    }
}

fn settings(problem: &str) -> OpenError {
    OpenError::Settings { problem: problem.to_owned() }
}

/// A text without its percent-encoding; none if that is not right.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
        bytes.push(high << 4 | low);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(url: &str) -> String {
        PostgresOptions::new(url).check().unwrap_err().to_string()
    }

    #[test]
    fn a_url_says_who_where_and_which() {
        let address = Address::parse("postgres://app@db.example:6432/approvals?sslmode=require").unwrap();
        let want = Address {
            user: "app".to_owned(),
            host: "db.example".to_owned(),
            port: 6_432,
            database: "approvals".to_owned(),
            tls: Some(TlsMode::Require),
        };
        assert_eq!(address, want);
        assert_eq!(Address::parse("postgresql://app@db/x").unwrap().port, 5_432);
        assert_eq!(Address::parse("postgres://app@[::1]:7/x").unwrap().host, "::1");
        let socket = Address::parse("postgres://a%40b@%2Frun%2Fpostgresql/x%2Fy").unwrap();
        assert_eq!((socket.user.as_str(), socket.socket()), ("a@b", Some("/run/postgresql")));
        assert_eq!(socket.database, "x/y");
    }

    #[test]
    fn what_a_url_lacks_is_named() {
        for (url, wanted) in [
            ("mysql://a@b/c", "postgres://USER@HOST"),
            ("db", "postgres://USER@HOST"),
            ("postgres://a@b", "no database"),
            ("postgres://a@b/", "no database"),
            ("postgres://b/c", "no user"),
            ("postgres://@b/c", "no user"),
            ("postgres://a@/c", "no host"),
            ("postgres://a@b:0/c", "port"),
            ("postgres://a@b:http/c", "port"),
            ("postgres://a@b%2Fd/c", "begins with a slash"),
            ("postgres://a@b/c%00", "no database"),
            ("postgres://a%zz@b/c", "percent-encoded"),
            ("postgres://a%ff@b/c", "percent-encoded"),
            ("postgres://a%é@b/c", "percent-encoded"),
            ("postgres://a@b/c?sslmode=maybe", "verify-full"),
            ("postgres://a@b/c?options=-csearch_path%3Dx", "\"options\""),
            ("postgres://a@b/c?sslmode=require&host=elsewhere", "\"host\""),
            ("postgres://a@b/c?sslmode=verify-ca", "write verify-full"),
        ] {
            let problem = problem(url);
            assert!(problem.contains(wanted), "{url}: {problem}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_refused_and_never_repeated() {
        for url in [
            "postgres://app:s3cret@db/x",
            "postgres://app:s3c/ret@db/x",
            "postgres://app:s3c?ret@db/x",
            "postgres://app:s3cret@db/x?password=s3cret",
            "postgres://app@db/x?password=s3cret",
            "postgres://app:s3cret",
        ] {
            let mut options = PostgresOptions::new(url);
            options.password = Some(Zeroizing::new("s3cret".to_owned()));
            let told = format!("{} {options:?}", problem(url));
            assert!(!told.contains("s3c"), "{told}");
        }
        assert!(problem("postgres://app:s3cret@db/x").contains("password's file"));
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let change: [fn(&mut PostgresOptions); 4] = [
            |options| options.connections = 0,
            |options| options.acquire_timeout = Duration::ZERO,
            |options| options.statement_timeout = Duration::from_millis(9),
            |options| options.poll_every = Duration::ZERO,
        ];
        for change in change {
            let mut options = PostgresOptions::new("postgres://a@b/c");
            options.check().unwrap();
            change(&mut options);
            assert!(matches!(options.check(), Err(OpenError::Settings { .. })));
        }
    }
}
