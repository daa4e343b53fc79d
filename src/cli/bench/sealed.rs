//! What TLS costs: `Evaluate` over a connection that is there, and a connection that is made, each against plaintext.

use super::Plan;
use super::evaluate::PATH;
use super::load::Caller;
use super::process::Server;
use super::report::Part;
use super::world::{World, message};
use crate::proto;
use prost::Message as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Connections a second of a measurement; each is a handshake on both sides.
const CONNECTIONS: u32 = 100;

/// One way to call.
struct Way {
    name: &'static str,
    server: Server,
    /// None: plaintext.
    tls: Option<Arc<ClientConfig>>,
}

impl Way {
    fn connect(&self, token: &str) -> io::Result<Caller> {
        match &self.tls {
            None => Caller::connect(self.server.address, PATH, Some(token)),
            Some(tls) => Caller::sealed(self.server.address, PATH, Some(token), tls),
        }
    }
}

/// Measures it, with the certificates in this folder.
pub(super) fn run(world: &World, plan: &Plan, certificates: &Path) -> io::Result<Part> {
    let folder = std::path::absolute(certificates)?;
    let own = |more: &str| {
        let at = |name: &str| format!("{:?}", folder.join(name).display().to_string());
        let (certificate, key) = (at("sidecar.pem"), at("sidecar.key"));
        let more = if more.is_empty() { String::new() } else { format!("client_ca_file = {}\n", at(more)) };
        format!("[tls]\ncertificate_file = {certificate}\nkey_file = {key}\n{more}")
    };
    let sidecar = |config: &Path, database: &str| -> io::Result<Server> {
        Server::sidecar(config, &world.database(database, 0, false)?.place)
    };
    let ways = [
        Way { name: "plaintext", server: sidecar(&world.config(), "plain.db")?, tls: None },
        Way {
            name: "TLS",
            server: sidecar(&world.config_with("tls.toml", &own(""))?, "tls.db")?,
            tls: Some(client(&folder, false)?),
        },
        Way {
            name: "mutual TLS",
            server: sidecar(&world.config_with("mutual.toml", &own("ca.pem"))?, "mutual.db")?,
            tls: Some(client(&folder, true)?),
        },
    ];
    let token = world.agent_token.as_str();
    let request = proto::EvaluateRequest { invocation: Some(message("plain", 1)), explain: false }.encode_to_vec();
    let mut callers = ways.iter().map(|way| way.connect(token)).collect::<io::Result<Vec<_>>>()?;
    for caller in &mut callers {
        caller.call_once(&request)?;
    }
    let mut part = Part::new("tls");
    for round in 0..=plan.rounds {
        // The first round warms up, and is not counted.
        let mut counted = |name: String, unit, value| {
            if round > 0 {
                part.add(name, unit, value);
            }
        };
        for in_flight in [64, 1] {
            let mut plain = None;
            for (way, caller) in ways.iter().zip(&mut callers) {
                let before = way.server.cpu()?;
                let sample = caller.run(in_flight, plan.span, std::iter::repeat(request.as_slice()))?;
                let cpu = way.server.cpu()?.saturating_sub(before);
                let each = cpu.as_secs_f64() * 1e6 / f64::from(sample.answered.max(1));
                let name = way.name;
                counted(format!("evaluate over {name}, {in_flight} in flight: CPU"), "us/call", each);
                counted(format!("evaluate over {name}, {in_flight} in flight: p50"), "us", sample.latency_us(0.5));
                let above = each - *plain.get_or_insert(each);
                if way.tls.is_some() {
                    counted(format!("{name} above plaintext, {in_flight} in flight: CPU"), "us/call", above);
                }
            }
        }
        let connections = plan.count(CONNECTIONS);
        let mut plain = None;
        for way in &ways {
            let before = way.server.cpu()?;
            for _ in 0..connections {
                way.connect(token)?.call_once(&request)?;
            }
            let cpu = way.server.cpu()?.saturating_sub(before);
            let connections = u32::try_from(connections).unwrap_or(u32::MAX);
            let each = cpu.as_secs_f64() * 1e6 / f64::from(connections);
            let name = way.name;
            counted(format!("a connection with one call over {name}: CPU"), "us", each);
            let above = each - *plain.get_or_insert(each);
            if way.tls.is_some() {
                counted(format!("a handshake of {name}: CPU"), "us", above);
            }
        }
    }
    Ok(part)
}

/// A client that believes the authority in this folder, and shows the certificate there if it is to.
fn client(folder: &Path, shows: bool) -> io::Result<Arc<ClientConfig>> {
    let failed = |path: &Path, cause: &dyn std::fmt::Display| io::Error::other(format!("{}: {cause}", path.display()));
    let mut roots = RootCertStore::empty();
    let authority = folder.join("ca.pem");
    let read = CertificateDer::from_pem_file(&authority).map_err(|cause| failed(&authority, &cause))?;
    roots.add(read).map_err(|cause| failed(&authority, &cause))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(io::Error::other)?.with_root_certificates(roots);
    let mut config = if shows {
        let (certificate, key) = (folder.join("chat.pem"), folder.join("chat.key"));
        let chain = CertificateDer::pem_file_iter(&certificate).and_then(Iterator::collect);
        let chain: Vec<CertificateDer<'static>> = chain.map_err(|cause| failed(&certificate, &cause))?;
        let read = PrivateKeyDer::from_pem_file(&key).map_err(|cause| failed(&key, &cause))?;
        builder.with_client_auth_cert(chain, read).map_err(|cause| failed(&key, &cause))?
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}
