//! Where a Postgres database is: `postgres://USER@HOST:PORT/DATABASE`. Whoever writes one may have put a password into it, so
//! no problem repeats any of the text.

use crate::storage::postgres::TlsMode;
use zeroize::Zeroizing;

/// More is no address.
const URL_BYTES: usize = 2048;
/// What the database listens on where nothing is said.
const PORT: u16 = 5432;

/// A database, and who connects to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    /// The URL without what is told apart from it.
    pub(super) url: String,
    /// How connections are secured, if the URL says so.
    pub(super) tls: Option<TlsMode>,
    /// A name, an address, or a folder of Unix sockets.
    pub(super) host: String,
    /// The port.
    pub(super) port: u16,
    /// Its name.
    pub(super) database: String,
}

/// What is wrong with a URL. Never a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// It has another form.
    Form,
    /// A password is in it.
    Password,
    /// `sslmode` is none that there is, or is said twice.
    TlsMode,
    /// A file is named in it that has a key of its own.
    File(&'static str),
    /// It has a parameter that is not taken.
    Parameter,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Form => formatter.write_str(
                "is no `postgres://USER@HOST:PORT/DATABASE` (it is not repeated here, since it may hold a password): user, \
                 host and database are required, special characters are percent-encoded, and the host of a Unix socket is \
                 its folder, as in `postgres://countersign@%2Frun%2Fpostgresql/countersign`",
            ),
            Self::Password => formatter.write_str(
                "has a password in it, which is not taken from there: put it into a file and name that file in \
                 `store.postgres.password_file` (--postgres-password-file), or into COUNTERSIGN_POSTGRES_PASSWORD",
            ),
            Self::TlsMode => {
                formatter.write_str("sslmode is one of `disable`, `prefer`, `require`, `verify-full`, once")
            }
            Self::File(key) => write!(formatter, "names a file of TLS, which `store.postgres.{key}` does"),
            Self::Parameter => formatter.write_str(
                "has a parameter other than `sslmode` (it is not repeated here, since it may hold a password)",
            ),
        }
    }
}

/// Reads a URL.
pub(super) fn parse(text: &str) -> Result<Location, Problem> {
    let (scheme, rest) = text.split_once("://").ok_or(Problem::Form)?;
    // Looked for before anything is taken apart: a password may hold whatever would end a part.
    if rest.split_once('@').is_some_and(|(user, _)| user.contains(':')) {
        return Err(Problem::Password);
    }
    let plain = text.len() <= URL_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.contains('#');
    if !plain || !matches!(scheme, "postgres" | "postgresql") {
        return Err(Problem::Form);
    }
    let (user, rest) = rest.split_once('@').ok_or(Problem::Form)?;
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (place, name) = rest.split_once('/').ok_or(Problem::Form)?;
    let part = |text: &str| {
        let whole = !text.is_empty() && !text.contains(['/', '?', ':', '@', '[', ']']);
        decoded(text).filter(|_| whole).ok_or(Problem::Form)
    };
    part(user)?;
    let database = part(name)?;
    let (host, port) = host_and_port(place)?;
    let tls = parameters(query)?;
    let url = format!("postgres://{user}@{place}/{name}");
    Ok(Location { url, tls, host, port, database })
}

/// Whether this is meant as such a URL: where something else is expected, it is not to be repeated.
pub(super) fn is_one(text: &str) -> bool {
    text.starts_with("postgres:") || text.starts_with("postgresql:")
}

fn host_and_port(place: &str) -> Result<(String, u16), Problem> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(Problem::Form)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| Problem::Form)?;
            (format!("[{host}]"), port)
        }
        None => {
            let end = place.find(':').unwrap_or(place.len());
            let (host, port) = place.split_at_checked(end).ok_or(Problem::Form)?;
            let host = decoded(host).ok_or(Problem::Form)?;
            let name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            if host.is_empty() || !(host.starts_with('/') || host.bytes().all(name)) {
                return Err(Problem::Form);
            }
            (host, port)
        }
    };
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok((host, PORT)),
        Some(digits) if !digits.starts_with('+') => match digits.parse() {
            Ok(port) if port != 0 => Ok((host, port)),
            Ok(_) | Err(_) => Err(Problem::Form),
        },
        None | Some(_) => Err(Problem::Form),
    }
}

fn parameters(query: Option<&str>) -> Result<Option<TlsMode>, Problem> {
    let mut tls = None;
    for parameter in query.into_iter().flat_map(|query| query.split('&')) {
        let (name, value) = parameter.split_once('=').ok_or(Problem::Parameter)?;
        match name {
            "password" | "sslpassword" => return Err(Problem::Password),
            "sslmode" if tls.is_none() => tls = Some(TlsMode::parse(value).ok_or(Problem::TlsMode)?),
            "sslmode" => return Err(Problem::TlsMode),
            "sslrootcert" => return Err(Problem::File("root_certificate_file")),
            "sslcert" => return Err(Problem::File("client_certificate_file")),
            "sslkey" => return Err(Problem::File("client_key_file")),
            _ => return Err(Problem::Parameter),
        }
    }
    Ok(tls)
}

/// The text behind percent-encoding; none where that is wrong, or hides what is no text of one line.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match byte {
            b'%' => bytes.push(digit(rest.next())? * 16 + digit(rest.next())?),
            other => bytes.push(other),
        }
    }
    let text = std::str::from_utf8(&bytes).ok()?.to_owned();
    (!text.chars().any(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_named_by_user_host_and_name() {
        for (text, url, host, port, database) in [
            ("postgres://u@db/cs", "postgres://u@db/cs", "db", 5432, "cs"),
            ("postgresql://u@db.internal:6432/cs", "postgres://u@db.internal:6432/cs", "db.internal", 6432, "cs"),
            ("postgres://u@[::1]:5433/cs", "postgres://u@[::1]:5433/cs", "[::1]", 5433, "cs"),
            ("postgres://u@[::1]/cs", "postgres://u@[::1]/cs", "[::1]", 5432, "cs"),
            ("postgres://u%40x@%2Frun%2Fpg/c%20s", "postgres://u%40x@%2Frun%2Fpg/c%20s", "/run/pg", 5432, "c s"),
            ("postgres://u@db/cs?sslmode=require", "postgres://u@db/cs", "db", 5432, "cs"),
        ] {
            let found = parse(text).unwrap();
            let tls = text.contains("sslmode").then_some(TlsMode::Require);
            let (host, database) = (host.to_owned(), database.to_owned());
            assert_eq!(found, Location { url: url.to_owned(), tls, host, port, database }, "{text}");
            assert_eq!(parse(&found.url).map(|again| again.url), Ok(found.url), "what is handed on is read as well");
        }
    }

    #[test]
    fn a_password_is_found_whatever_it_is_made_of() {
        for text in [
            "postgres://u:hunter2@db/cs",
            "postgres://u:@db/cs",
            "postgres://:hunter2@db/cs",
            "postgres://u:hun@ter2@db/cs",
            "postgres://u:hun/ter2@db/cs",
            "postgres://u:hun?ter2@db/cs",
            "postgres://u:hun#ter2@db/cs",
            "postgres://u:hun ter2@db/cs",
            "postgres://u:5432/hunter2@db/cs",
            "mysql://u:hunter2@db/cs",
            "postgres://u@db/cs?password=hunter2",
            "postgres://u@db/cs?sslmode=require&password=hunter2",
        ] {
            assert_eq!(parse(text), Err(Problem::Password), "{text}");
        }
    }

    #[test]
    fn what_is_no_such_url_is_refused_and_never_repeated() {
        for (text, problem) in [
            ("", Problem::Form),
            ("hunter2", Problem::Form),
            ("postgres:u@hunter2/cs", Problem::Form),
            ("mysql://u@hunter2/cs", Problem::Form),
            ("postgres://hunter2/cs", Problem::Form),
            ("postgres://u@hunter2", Problem::Form),
            ("postgres://u@hunter2/", Problem::Form),
            ("postgres://@hunter2/cs", Problem::Form),
            ("postgres://u@/hunter2", Problem::Form),
            ("postgres://u@:5432/hunter2", Problem::Form),
            ("postgres://u@db:/hunter2", Problem::Form),
            ("postgres://u@db:0/hunter2", Problem::Form),
            ("postgres://u@db:+1/hunter2", Problem::Form),
            ("postgres://u@db:65536/hunter2", Problem::Form),
            ("postgres://u@hunter2@db/cs", Problem::Form),
            ("postgres://u@db/cs/hunter2", Problem::Form),
            ("postgres://u@db/hunter2@x", Problem::Form),
            ("postgres://u@db/cs#hunter2", Problem::Form),
            ("postgres://u@db/hunter2%", Problem::Form),
            ("postgres://u@db/hunter2%0a", Problem::Form),
            ("postgres://u@db/hunter2%ff", Problem::Form),
            ("postgres://u@[hunter2]/cs", Problem::Form),
            ("postgres://u@d\u{fc}/hunter2", Problem::Form),
            ("postgres://u@db/cs?hunter2", Problem::Parameter),
            ("postgres://u@db/cs?hunter2=x", Problem::Parameter),
            ("postgres://u@db/cs?application_name=x", Problem::Parameter),
            ("postgres://u@db/cs?sslmode=hunter2", Problem::TlsMode),
            ("postgres://u@db/cs?sslmode=require&sslmode=require", Problem::TlsMode),
            ("postgres://u@db/cs?sslrootcert=hunter2", Problem::File("root_certificate_file")),
        ] {
            assert_eq!(parse(text), Err(problem), "{text}");
            assert!(!problem.to_string().contains("hunter2"));
        }
    }
}
