//! Calling a sidecar from the command line: where it is, whose token goes along, and what its refusals mean here.

mod tls;

pub(super) use tls::TlsFlags;

use super::exit::Exit;
use super::terminal::safe;
use crate::address::Address;
use crate::client::Bearer;
use crate::domain::span::parse_span;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::time::Duration;
use tonic::transport::{Channel, Uri};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use zeroize::Zeroizing;

/// A token is one line.
const TOKEN_BYTES: u64 = 4096;
/// The token itself, where no file has it. There is no flag for it: flags can be read by every process of the machine.
const TOKEN_VARIABLE: &str = "COUNTERSIGN_TOKEN";

/// Where the sidecar is and who calls.
#[derive(Args, Debug)]
pub(super) struct Connection {
    /// The sidecar's doors: `HOST:PORT`, `https://HOST:PORT` over TLS, or `unix:/PATH` of a Unix socket.
    #[arg(
        long,
        global = true,
        value_name = "ADDRESS",
        env = "COUNTERSIGN_SERVER",
        default_value = "127.0.0.1:7400",
        value_parser = server,
    )]
    server: String,
    /// The file with the caller's bearer token; without it the environment's COUNTERSIGN_TOKEN is the token.
    #[arg(long, global = true, value_name = "FILE", env = "COUNTERSIGN_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsFlags,
}

impl Connection {
    /// The caller's credential.
    ///
    /// # Errors
    /// How the command ends, and what to say: there is no usable token.
    pub(super) fn credential(&self) -> Result<Bearer, (Exit, String)> {
        let (place, token) = match (&self.token_file, std::env::var(TOKEN_VARIABLE)) {
            (Some(path), _) => {
                let mut text = Zeroizing::new(String::with_capacity(4096 + 64));
                let read = File::open(path).and_then(|file| file.take(TOKEN_BYTES).read_to_string(&mut text));
                let place = path.display().to_string();
                read.map_err(|cause| (Exit::Unreachable, format!("{place}: {cause}")))?;
                (place, Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()))
            }
            (None, Ok(token)) => (TOKEN_VARIABLE.to_owned(), Zeroizing::new(token)),
            (None, Err(_)) => {
                let line = format!("who calls? Give --token-file FILE, or the token in {TOKEN_VARIABLE}");
                return Err((Exit::Usage, line));
            }
        };
        let visible = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        let bearer = if visible { Bearer::new(&token) } else { None };
        bearer.ok_or_else(|| {
            (Exit::Unreachable, format!("{place}: the token is not one line of visible ASCII characters"))
        })
    }

    /// A channel to the sidecar, to be made where the calls are run.
    ///
    /// # Errors
    /// It has no form that can be called, or cannot be called over TLS in the way that is said.
    pub(super) fn channel(&self) -> Result<Channel, Refused> {
        self.tls.channel_to(&self.server)
    }

    /// Where it is, for messages.
    pub(super) fn server(&self) -> &str {
        &self.server
    }
}

/// A call that was refused or never answered. Its texts are as the sidecar sent them; `Display` makes them safe.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    /// The status code.
    pub(super) code: Code,
    /// The stable reason; empty if the answer carried none, as when no sidecar answered.
    pub(super) reason: String,
    /// What happened, and what to do about it.
    pub(super) message: String,
    /// The message's dynamic values.
    metadata: BTreeMap<String, String>,
}

impl Refused {
    /// What a status says.
    pub(super) fn of(status: &Status) -> Self {
        let info = status.get_details_error_info();
        let (reason, metadata) = match info {
            Some(info) => (info.reason, info.metadata.into_iter().collect()),
            None => (String::new(), BTreeMap::new()),
        };
        let mut message = status.message().to_owned();
        if reason.is_empty() {
            // A connection's failure says little by itself; what lies below it says why.
            let mut source = std::error::Error::source(status);
            while let Some(cause) = source {
                let text = cause.to_string();
                if !message.contains(&text) {
                    message = format!("{message}: {text}");
                }
                source = cause.source();
            }
            if let Some(advice) = tls::advice(&message) {
                message = format!("{message}; {advice}");
            }
        }
        Self { code: status.code(), reason, message, metadata }
    }

    /// No sidecar can be called at all.
    pub(super) fn unreachable(cause: &dyn std::error::Error) -> Self {
        Self { code: Code::Unavailable, reason: String::new(), message: cause.to_string(), metadata: BTreeMap::new() }
    }

    /// It was not asked at all, since it was to be asked wrongly.
    fn asked_wrongly(message: String) -> Self {
        Self { code: Code::InvalidArgument, reason: String::new(), message, metadata: BTreeMap::new() }
    }

    /// Nothing was answered within this time.
    pub(super) fn no_answer(within: Duration) -> Self {
        Self {
            code: Code::DeadlineExceeded,
            reason: String::new(),
            message: format!("no answer within {within:?}"),
            metadata: BTreeMap::new(),
        }
    }

    /// Whether it was not asked at all.
    pub(super) fn is_usage(&self) -> bool {
        self.code == Code::InvalidArgument && self.reason.is_empty()
    }

    /// A file that calling needs cannot be used.
    fn without_file(message: String) -> Self {
        Self { code: Code::Unavailable, reason: String::new(), message, metadata: BTreeMap::new() }
    }

    /// A stream ended, though it has no end of its own.
    pub(super) fn ended() -> Self {
        let message = "the stream ended".to_owned();
        Self { code: Code::Unavailable, reason: String::new(), message, metadata: BTreeMap::new() }
    }

    /// How a command ends that met it: 1 where the sidecar says no, 2 where it was asked wrongly, 3 where it did not
    /// answer or does not know who calls.
    pub(super) fn exit(&self) -> Exit {
        match self.code {
            Code::InvalidArgument => Exit::Usage,
            Code::NotFound
            | Code::FailedPrecondition
            | Code::PermissionDenied
            | Code::AlreadyExists
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::OutOfRange => Exit::No,
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
            | Code::Unauthenticated => Exit::Unreachable,
        }
    }

    /// The same for programs.
    pub(super) fn json(&self) -> Value {
        json!({
            "code": code_name(self.code),
            "reason": self.reason,
            "message": self.message,
            "metadata": self.metadata,
        })
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reason, message) = (safe(&self.reason), safe(&self.message));
        if self.reason.is_empty() {
            write!(formatter, "{} ({})", message, code_name(self.code))
        } else {
            write!(formatter, "{reason} ({}): {message}", code_name(self.code))
        }
    }
}

/// A code as the protocol's documents write it.
pub(super) const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// Runs calls to their end on this thread.
///
/// # Errors
/// The runtime cannot be made.
pub(super) fn block_on<T>(calls: impl Future<Output = T>) -> io::Result<T> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(calls))
}

/// Reads `host:port`, the same behind `https://`, or `unix:/path`.
pub(super) fn server(text: &str) -> Result<String, String> {
    if let Some(place) = text.strip_prefix("https://") {
        let sealed = host_and_port(place).map(|place| format!("https://{place}"));
        return sealed.ok_or_else(|| format!("{text:?} is no host and port, such as `https://localhost:7400`"));
    }
    if let Some(unix) = Address::unix(text) {
        let called = unix.and_then(|address| address.fits().map(|()| address.to_string()));
        return called.map_err(|problem| format!("{text:?} {problem}"));
    }
    let problem = || format!("{text:?} is no host and port, such as `127.0.0.1:7400`, nor a `unix:/PATH`");
    host_and_port(text).map(str::to_owned).ok_or_else(problem)
}

fn host_and_port(text: &str) -> Option<&str> {
    let uri: Uri = format!("http://{text}").parse().ok()?;
    let plain = uri.authority().is_some_and(|authority| authority.as_str() == text && !text.contains('@'));
    // Port 0 is where nobody can be called.
    (plain && uri.port_u16().is_some_and(|port| port > 0)).then_some(text)
}

/// Reads a span that is worth waiting.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    parse_span(text)
        .filter(|span| !span.is_zero() && *span <= Duration::from_secs(600))
        .ok_or_else(|| format!("{text:?} is no duration from 1ms to 10m, such as `5s`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_and_a_port_or_a_socket_and_nothing_else() {
        for text in ["127.0.0.1:7400", "localhost:1", "[::1]:7400", "sidecar.example:65535", "https://localhost:7400"] {
            assert_eq!(server(text).as_deref(), Ok(text));
        }
        for (text, called) in [("unix:/run/a.sock", "unix:/run/a.sock"), ("unix:///a", "unix:/a"), ("unix:a", "unix:a")]
        {
            assert_eq!(server(text).as_deref(), Ok(called));
        }
        assert!(server(&format!("unix:/{}", "a".repeat(200))).unwrap_err().contains("bytes"));
        for text in [
            "",
            ":",
            "localhost",
            "localhost:",
            ":7400x",
            "a:0",
            "a:65536",
            "a@b:1",
            "a:1/x",
            "a:1?x",
            "http://a:1",
            "https://",
            "https://a",
            "https://a:1/",
            "https://unix:/run/a.sock",
            "a b:1",
            "unix:",
            "unix:/run/",
            "unix:@a",
            "unix://a/b",
        ] {
            assert!(server(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_refusal_keeps_its_reason_and_is_harmless_on_a_terminal() {
        let details =
            tonic_types::ErrorDetails::with_error_info("WHY\u{1b}[2J", "d", [("k".to_owned(), "v".to_owned())]);
        let status = Status::with_error_details(Code::FailedPrecondition, "no\u{1b}]0;x\u{7}\nstate approved", details);
        let refused = Refused::of(&status);
        assert_eq!((refused.exit(), refused.metadata.get("k").map(String::as_str)), (Exit::No, Some("v")));
        let text = refused.to_string();
        assert!(text.chars().all(|character| !character.is_control()), "{text:?}");
        assert!(text.contains("FAILED_PRECONDITION"));
    }

    #[test]
    fn no_answer_and_no_identity_end_in_three() {
        for (code, exit) in [
            (Code::Unavailable, Exit::Unreachable),
            (Code::Unauthenticated, Exit::Unreachable),
            (Code::Internal, Exit::Unreachable),
            (Code::NotFound, Exit::No),
            (Code::PermissionDenied, Exit::No),
            (Code::InvalidArgument, Exit::Usage),
        ] {
            assert_eq!(Refused::of(&Status::new(code, "x")).exit(), exit);
        }
    }
}
