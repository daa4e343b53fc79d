//! Which door is on which listener: a door has one of its own, or is on the common one.

use super::tls::{self, TlsSection, TlsSettings};
use super::{Config, listen};
use crate::address::Address;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// A door: one gRPC service, for one kind of caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// `AgentService`.
    Agent,
    /// `ApproverService`.
    Approver,
    /// `OperatorService`.
    Operator,
}

impl Door {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Agent, Self::Approver, Self::Operator];

    /// As the configuration spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Approver => "approver",
            Self::Operator => "operator",
        }
    }

    /// The key of its own address.
    const fn listen_key(self) -> &'static str {
        match self {
            Self::Agent => "doors.agent.listen",
            Self::Approver => "doors.approver.listen",
            Self::Operator => "doors.operator.listen",
        }
    }
}

/// `[doors]`, as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DoorsSection {
    agent: Option<DoorSection>,
    approver: Option<DoorSection>,
    operator: Option<DoorSection>,
}

/// `[doors.DOOR]`, as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct DoorSection {
    listen: Option<String>,
    socket_mode: Option<String>,
    tls: Option<TlsSection>,
}

/// The listener that a door has for itself, or shares with another that says the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnListener {
    /// Where it listens.
    pub address: Address,
    /// The mode of its socket's file, where it is one.
    pub socket_mode: u32,
    /// Its TLS; none: plaintext.
    pub tls: Option<TlsSettings>,
}

/// The doors that have a listener of their own. The others are on the common one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnListeners {
    /// Of `AgentService`.
    pub agent: Option<OwnListener>,
    /// Of `ApproverService`.
    pub approver: Option<OwnListener>,
    /// Of `OperatorService`.
    pub operator: Option<OwnListener>,
}

impl OwnListeners {
    /// That of this door.
    pub const fn of(&self, door: Door) -> Option<&OwnListener> {
        match door {
            Door::Agent => self.agent.as_ref(),
            Door::Approver => self.approver.as_ref(),
            Door::Operator => self.operator.as_ref(),
        }
    }
}

/// A listener that is to be opened, with the doors on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSettings {
    /// The key that says where it listens.
    pub key: &'static str,
    /// Where it listens.
    pub address: Address,
    /// The mode of its socket's file, where it is one.
    pub socket_mode: u32,
    /// Its TLS; none: plaintext.
    pub tls: Option<TlsSettings>,
    /// Which doors are reached through it, never none.
    pub doors: Vec<Door>,
}

impl ListenerSettings {
    /// The names of its doors.
    pub fn names(&self) -> String {
        self.doors.iter().map(|door| door.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Whether what goes through it can be read on a network.
    pub fn is_exposed(&self) -> bool {
        self.tls.is_none() && self.address.tcp().is_some_and(|tcp| !tcp.ip().is_loopback())
    }
}

impl Config {
    /// Every listener of the doors that is to be opened, in the order of its first door. The common one is among them if
    /// any door is on it.
    pub fn listeners(&self) -> Vec<ListenerSettings> {
        let mut listeners: Vec<ListenerSettings> = Vec::new();
        for door in Door::ALL {
            let settings = match self.doors.of(door) {
                Some(own) => ListenerSettings {
                    key: door.listen_key(),
                    address: own.address.clone(),
                    socket_mode: own.socket_mode,
                    tls: own.tls.clone(),
                    doors: vec![door],
                },
                None => ListenerSettings {
                    key: "listen",
                    address: self.listen.clone(),
                    socket_mode: self.socket_mode,
                    tls: self.tls.clone(),
                    doors: vec![door],
                },
            };
            let shared = listeners.iter_mut().find(|other| {
                (other.key == "listen" && settings.key == "listen") || is_one_place(&other.address, &settings.address)
            });
            match shared {
                Some(other) => other.doors.push(door),
                None => listeners.push(settings),
            }
        }
        listeners
    }
}

/// Port 0 is another one each time.
fn is_one_place(one: &Address, other: &Address) -> bool {
    one == other && one.tcp().is_none_or(|tcp| tcp.port() != 0)
}

/// What the section comes to.
pub(super) fn resolve(section: DoorsSection, folder: &Path, problems: &mut Vec<String>) -> OwnListeners {
    let DoorsSection { agent, approver, operator } = section;
    let mut own = |door: Door, section: Option<DoorSection>| {
        let DoorSection { listen, socket_mode, tls } = section?;
        let key = format!("doors.{}", door.as_str());
        let Some(listen) = listen else {
            let said = [("socket_mode", socket_mode.is_some()), ("tls", tls.is_some())];
            for (name, _) in said.into_iter().filter(|(_, said)| *said) {
                problems.push(format!(
                    "{key}.{name}: says nothing without {key}.listen: the door is on the common listener"
                ));
            }
            return None;
        };
        let address = listen::own_address(door.listen_key(), &listen, folder, problems);
        let socket_mode = listen::socket_mode(&format!("{key}.socket_mode"), socket_mode.as_deref(), problems);
        let tls = tls.and_then(|section| tls::resolve(section, &format!("{key}.tls"), folder, problems));
        Some(OwnListener { address, socket_mode, tls })
    };
    OwnListeners {
        agent: own(Door::Agent, agent),
        approver: own(Door::Approver, approver),
        operator: own(Door::Operator, operator),
    }
}

/// What keeps the listeners of a configuration from standing side by side.
pub(super) fn clashes(config: &Config, problems: &mut Vec<String>) {
    let all: Vec<(&'static str, OwnListener)> = Door::ALL
        .into_iter()
        .filter_map(|door| Some((door.listen_key(), config.doors.of(door)?.clone())))
        .chain(Door::ALL.into_iter().any(|door| config.doors.of(door).is_none()).then(|| {
            let (address, socket_mode, tls) = (config.listen.clone(), config.socket_mode, config.tls.clone());
            ("listen", OwnListener { address, socket_mode, tls })
        }))
        .collect();
    for (index, (key, listener)) in all.iter().enumerate() {
        if listener.tls.is_some() && listener.address.tcp().is_none() {
            let tls = key.strip_suffix("listen").unwrap_or_default();
            problems.push(format!("{tls}tls: a Unix socket has none: who may connect is its file's mode"));
        }
        for (earlier_key, earlier) in all.iter().take(index) {
            if is_one_place(&earlier.address, &listener.address) {
                if earlier != listener {
                    problems.push(format!(
                        "{earlier_key} and {key} are both {}: then their tls and socket_mode are to be the same",
                        listener.address
                    ));
                }
            } else if overlap(&earlier.address, &listener.address) {
                let (one, other) = (&earlier.address, &listener.address);
                problems.push(format!("{earlier_key} and {key} are in each other's way: {one} and {other}"));
            }
        }
        if *key != "listen" && overlap(&listener.address, &Address::Tcp(config.health_listen)) {
            problems.push(format!(
                "{key} and health_listen are in each other's way: {} and {}",
                listener.address, config.health_listen
            ));
        }
    }
    if config.tls.is_some() && !all.iter().any(|(key, _)| *key == "listen") {
        problems.push(
            "tls: guards nothing: every door has a listener of its own; say it there, as `[doors.DOOR.tls]`".to_owned(),
        );
    }
}

/// Whether two addresses cannot both be listened on, though they may differ.
fn overlap(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Tcp(one), Address::Tcp(other)) => ports_overlap(*one, *other),
        (Address::Unix(one), Address::Unix(other)) => resolved(one) == resolved(other),
        (Address::Tcp(_), Address::Unix(_)) | (Address::Unix(_), Address::Tcp(_)) => false,
    }
}

fn ports_overlap(one: SocketAddr, other: SocketAddr) -> bool {
    // A listener on all addresses of IPv6 hears those of IPv4 too.
    let all = |wide: IpAddr, narrow: IpAddr| wide.is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4());
    let (one_ip, other_ip) = (one.ip(), other.ip());
    one.port() == other.port()
        && one.port() != 0
        && (one_ip == other_ip || all(one_ip, other_ip) || all(other_ip, one_ip))
}

/// The same file has one path here, whichever links lead to its folder.
fn resolved(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        (Some(_) | None, _) => path.to_owned(),
    }
}
