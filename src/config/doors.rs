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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ClientCertificates;
    use crate::config::tests::load;

    /// The listeners of a configuration: the key, the place and the doors of each.
    fn listeners(text: &str) -> Vec<String> {
        let config = load(text).unwrap_or_else(|problems| panic!("{text}: {problems}"));
        let shown = |listener: &ListenerSettings| format!("{} {} {}", listener.key, listener.address, listener.names());
        config.listeners().iter().map(shown).collect()
    }

    #[test]
    fn a_door_is_on_the_common_listener_or_on_its_own() {
        assert_eq!(listeners(""), ["listen 127.0.0.1:7400 agent,approver,operator"]);
        assert_eq!(
            listeners("[doors.approver]\nlisten = \"127.0.0.1:7402\""),
            ["listen 127.0.0.1:7400 agent,operator", "doors.approver.listen 127.0.0.1:7402 approver"]
        );
        assert_eq!(
            listeners(
                "doors.agent.listen = \"unix:a\"\ndoors.approver.listen = \"[::1]:1\"\ndoors.operator.listen = \"[::1]:1\""
            ),
            ["doors.agent.listen unix:/etc/countersign/a agent", "doors.approver.listen [::1]:1 approver,operator"]
        );
        assert_eq!(
            listeners("doors.agent.listen = \"127.0.0.1:7400\"").len(),
            1,
            "one that names the common listener is on it"
        );
        let free =
            "listen = \"127.0.0.1:0\"\ndoors.agent.listen = \"127.0.0.1:0\"\ndoors.operator.listen = \"127.0.0.1:0\"";
        assert_eq!(listeners(free).len(), 3, "a free port is another one each time");
    }

    #[test]
    fn what_cannot_stand_side_by_side_is_named() {
        let tls = "tls = { certificate_file = \"c\", key_file = \"k\" }";
        for (text, says) in [
            ("doors.agent.listen = \"localhost:1\"", "doors.agent.listen: \"localhost:1\": is no address and port"),
            ("doors.agent.socket_mode = \"0660\"", "doors.agent.socket_mode: says nothing without doors.agent.listen"),
            ("doors.agent = { listen = \"unix:a\", socket_mode = \"0777\" }", "doors.agent.socket_mode: \"0777\""),
            (&format!("[doors.operator]\n{tls}"), "doors.operator.tls: says nothing without"),
            (&format!("[doors.operator]\nlisten = \"unix:a\"\n{tls}"), "doors.operator.tls: a Unix socket has none"),
            (&format!("listen = \"unix:a\"\n{tls}"), "tls: a Unix socket has none"),
            (
                &format!("doors.agent.listen = \"127.0.0.1:1\"\n[doors.operator]\nlisten = \"127.0.0.1:1\"\n{tls}"),
                "doors.agent.listen and doors.operator.listen are both 127.0.0.1:1: then their tls",
            ),
            (&format!("doors.agent.listen = \"127.0.0.1:7400\"\n{tls}"), "doors.agent.listen and listen are both"),
            (
                "doors.agent.listen = \"0.0.0.0:7400\"",
                "doors.agent.listen and listen are in each other's way: 0.0.0.0:7400 and 127.0.0.1:7400",
            ),
            ("doors.agent.listen = \"[::]:7401\"", "doors.agent.listen and health_listen are in each other's way"),
            ("doors.agent.listen = \"127.0.0.1:7401\"", "doors.agent.listen and health_listen"),
            (
                "doors.agent.listen = \"unix:/usr/../usr/a\"\ndoors.approver.listen = \"unix:/usr/a\"",
                "doors.agent.listen and doors.approver.listen are in each other's way",
            ),
            (
                &format!(
                    "{tls}\ndoors.agent.listen = \"[::1]:1\"\ndoors.approver.listen = \"[::1]:2\"\ndoors.operator.listen = \"[::1]:3\""
                ),
                "tls: guards nothing",
            ),
        ] {
            let problems = load(text).unwrap_err().0;
            assert!(problems.len() == 1 && problems[0].starts_with(says), "{text}: {problems:?}");
        }
        for text in ["doors.agent.listen = \"[::1]:7400\"", "doors.agent.listen = \"127.0.0.2:7400\""] {
            assert_eq!(listeners(text).len(), 2);
        }
    }

    #[test]
    fn tls_needs_its_files_and_says_whom_it_asks() {
        let own = "certificate_file = \"c.pem\"\nkey_file = \"/k.pem\"\n";
        let tls = |more: &str| load(&format!("[tls]\n{own}{more}")).map(|config| config.tls.unwrap());
        let plain = tls("").unwrap();
        assert_eq!(
            (plain.certificate_file.to_str(), plain.key_file.to_str()),
            (Some("/etc/countersign/c.pem"), Some("/k.pem"))
        );
        assert_eq!(plain.client_certificates, ClientCertificates::None);
        assert_eq!(tls("client_ca_file = \"a\"").unwrap().client_certificates, ClientCertificates::Required);
        let optional = tls("client_ca_file = \"a\"\nclient_certificates = \"optional\"\ncrl_files = [\"r\"]").unwrap();
        assert_eq!((optional.client_certificates, optional.crl_files.len()), (ClientCertificates::Optional, 1));
        for (more, says) in [
            ("client_certificates = \"required\"", "tls.client_certificates: \"required\" needs client_ca_file"),
            ("client_certificates = \"maybe\"", "tls.client_certificates: \"maybe\" is none of"),
            ("client_ca_file = \"a\"\nclient_certificates = \"none\"", "tls.client_certificates: \"none\" beside"),
            ("crl_files = [\"r\"]", "tls.crl_files: takes back what no client_ca_file"),
            ("ciphers = \"all\"", "tls.ciphers: is no key"),
        ] {
            let problems = tls(more).unwrap_err().0;
            assert!(problems.len() == 1 && problems[0].starts_with(says), "{more}: {problems:?}");
        }
        let problems = load("[doors.agent]\nlisten = \"[::1]:1\"\ntls = {}").unwrap_err().0;
        assert!(problems.len() == 2 && problems[0].starts_with("doors.agent.tls.certificate_file: "), "{problems:?}");
    }

    #[test]
    fn plaintext_where_others_can_read_is_known() {
        let exposed = |text: &str| load(text).unwrap().listeners().iter().filter(|one| one.is_exposed()).count();
        let tls = "tls = { certificate_file = \"c\", key_file = \"k\" }";
        assert_eq!(exposed(""), 0);
        assert_eq!(exposed("listen = \"0.0.0.0:7400\""), 1);
        assert_eq!(exposed(&format!("listen = \"0.0.0.0:7400\"\n{tls}")), 0);
        assert_eq!(exposed(&format!("listen = \"0.0.0.0:7400\"\n{tls}\ndoors.agent.listen = \"10.0.0.1:1\"")), 1);
    }
}
