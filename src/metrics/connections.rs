//! Connections: how many are open on each listener, why some were not let in, and what became of the files of TLS.

use super::cells::{Counter, CounterBy, Gauge, Label};
use std::sync::atomic::{AtomicBool, Ordering};

/// A listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerName {
    /// The one of all doors that have none of their own.
    Common,
    /// The agent's door's own, whoever shares it.
    Agent,
    /// The approver's door's own, which it does not share with the agent's.
    Approver,
    /// The operator's door's own, which it shares with no other.
    Operator,
    /// The plaintext health listener.
    Health,
}

impl Label for ListenerName {
    const ALL: &'static [Self] = &[Self::Common, Self::Agent, Self::Approver, Self::Operator, Self::Health];

    fn text(self) -> &'static str {
        match self {
            Self::Common => "common",
            Self::Agent => "agent",
            Self::Approver => "approver",
            Self::Operator => "operator",
            Self::Health => "health",
        }
    }
}

/// Why a connection was not let in, or ended before its first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRefusal {
    /// The listener has as many as it may.
    Limit,
    /// The TLS handshake failed, by what the client sent or did not have.
    Handshake,
    /// The handshake, or the first bytes of HTTP, took too long.
    Timeout,
}

impl Label for ConnectionRefusal {
    const ALL: &'static [Self] = &[Self::Limit, Self::Handshake, Self::Timeout];

    fn text(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Handshake => "handshake",
            Self::Timeout => "timeout",
        }
    }
}

/// One listener's own.
#[derive(Debug)]
pub struct ListenerFigures {
    pub(super) name: ListenerName,
    opened: AtomicBool,
    /// Connections that are open, those that are not let in yet included.
    pub open: Gauge,
    /// When its certificate ends, in seconds of Unix time; 0: it has none.
    pub certificate_ends: Gauge,
}

/// Every connection.
#[derive(Debug)]
pub struct Connections {
    listeners: Vec<ListenerFigures>,
    /// Those that were not let in.
    pub refused: CounterBy<ConnectionRefusal>,
    /// Files of TLS that were read and taken.
    pub tls_loaded: Counter,
    /// Files of TLS that did not hold together, or could not be read.
    pub tls_refused: Counter,
}

impl Default for Connections {
    fn default() -> Self {
        let listeners = ListenerName::ALL.iter().map(|name| ListenerFigures {
            name: *name,
            opened: AtomicBool::new(false),
            open: Gauge::default(),
            certificate_ends: Gauge::default(),
        });
        Self {
            listeners: listeners.collect(),
            refused: CounterBy::default(),
            tls_loaded: Counter::default(),
            tls_refused: Counter::default(),
        }
    }
}

impl Connections {
    /// This listener is there, though nobody has connected yet.
    pub fn opened(&self, name: ListenerName) {
        self.with(name, |listener| listener.opened.store(true, Ordering::Relaxed));
    }

    /// A connection more, or less.
    pub fn open(&self, name: ListenerName, more: i64) {
        self.with(name, |listener| listener.open.add(more));
    }

    /// The certificate of this listener ends then, in seconds of Unix time.
    pub fn certificate_ends(&self, name: ListenerName, at: i64) {
        self.with(name, |listener| listener.certificate_ends.set(at));
    }

    fn with(&self, name: ListenerName, does: impl FnOnce(&ListenerFigures)) {
        if let Some(listener) = self.listeners.iter().find(|listener| listener.name == name) {
            does(listener);
        }
    }

    /// Those that are there.
    pub(super) fn listeners(&self) -> impl Iterator<Item = &ListenerFigures> {
        self.listeners.iter().filter(|listener| listener.opened.load(Ordering::Relaxed))
    }
}
