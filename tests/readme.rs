//! What the README claims is so: its samples are read by the product, and its tables are complete.

#![allow(clippy::unwrap_used, clippy::panic)]

use countersign::address::Address;
use countersign::config::{ClientCertificates, Config, Overrides, PostgresSettings, StoreSettings};
use countersign::domain::approval::StateName;
use countersign::domain::audit::AuditKind;
use countersign::domain::decision::PolicyReason;
use countersign::domain::invocation::Binding;
use countersign::domain::permit::{CLAIMS, PermitRefusal};
use countersign::domain::wait::{Cause, WaitRefusal};
use countersign::metrics::{Format, Metrics};
use countersign::policy_files::load_policy;
use prost::Message as _;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn readme() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

fn blocks(language: &str) -> Vec<String> {
    let text = readme();
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// The sample of a configuration that has this line.
fn sample_with(line: &str) -> String {
    blocks("toml")
        .into_iter()
        .find(|sample| sample.lines().any(|known| known.split('#').next().unwrap().trim_end() == line))
        .unwrap()
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("countersign-readme-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn the_configuration_sample_holds_together_and_says_the_defaults() {
    let folder = folder("config");
    let samples = blocks("toml");
    std::fs::write(folder.join("countersign.toml"), &samples[1]).unwrap();
    for name in ["runtime", "dana", "chat", "ops"] {
        std::fs::write(folder.join(format!("{name}.token")), format!("cst_{name}_0123456789abcdef0123")).unwrap();
    }
    let config = Config::load(Some(&folder.join("countersign.toml")), &Overrides::default()).unwrap();
    std::fs::write(folder.join("empty.toml"), "").unwrap();
    let defaults = Config::load(Some(&folder.join("empty.toml")), &Overrides::default()).unwrap();
    assert_eq!(config.listen, defaults.listen);
    assert_eq!(config.socket_mode, defaults.socket_mode);
    assert_eq!(config.health_listen, defaults.health_listen);
    assert_eq!(config.policy, defaults.policy);
    assert_eq!(config.policy_settle, defaults.policy_settle);
    assert_eq!(config.grace_period, defaults.grace_period);
    let (sqlite, defaults_of_sqlite) = (config.store.sqlite().unwrap(), defaults.store.sqlite().unwrap());
    assert_eq!(sqlite.path, defaults_of_sqlite.path);
    assert_eq!(sqlite.readers, defaults_of_sqlite.readers);
    assert_eq!(sqlite.acquire_timeout, defaults_of_sqlite.acquire_timeout);
    assert_eq!(sqlite.statement_timeout, defaults_of_sqlite.statement_timeout);
    assert_eq!(config.secret_file, defaults.secret_file);
    assert_eq!(config.further_secret_files, defaults.further_secret_files);
    assert_eq!(config.arguments_bytes, defaults.arguments_bytes);
    assert_eq!(config.connections, defaults.connections);
    assert_eq!(config.handshake_timeout, defaults.handshake_timeout);
    assert_eq!(config.question_limits, defaults.question_limits);
    assert_eq!(config.message_bytes, defaults.message_bytes);
    assert_eq!(config.sweep_every, defaults.sweep_every);
    assert_eq!(config.retention, defaults.retention);
    assert_eq!(config.audited_evaluations, defaults.audited_evaluations);
    assert_eq!(config.permits, defaults.permits);
    assert_eq!(config.preview.max_string_graphemes, defaults.preview.max_string_graphemes);
    assert_eq!(config.preview.max_total_bytes, defaults.preview.max_total_bytes);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_sample_of_credentials_holds_together_and_says_the_defaults() {
    let folder = folder("callers");
    std::fs::write(folder.join("countersign.toml"), sample_with("[[issuers]]")).unwrap();
    std::fs::write(folder.join("id-ca.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    let config = Config::load(Some(&folder.join("countersign.toml")), &Overrides::default()).unwrap();
    assert_eq!(config.callers.iter().count(), 4);
    let said = config.callers.issuers().next().unwrap().settings().clone();
    std::fs::write(
        folder.join("less.toml"),
        "[[issuers]]\nname = \"corp\"\nissuer = \"x\"\naudience = \"countersign\"\njwks_url = \"https://x\"\n",
    )
    .unwrap();
    let config = Config::load(Some(&folder.join("less.toml")), &Overrides::default()).unwrap();
    let defaults = config.callers.issuers().next().unwrap().settings().clone();
    assert_eq!((&said.audience, &said.algorithms), (&defaults.audience, &defaults.algorithms));
    assert_eq!(said.tolerance, defaults.tolerance);
    assert_eq!(said.refresh_at_least_every, defaults.refresh_at_least_every);
    assert_eq!(said.refresh_at_most_every, defaults.refresh_at_most_every);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_sample_of_a_shared_table_holds_together_and_says_the_defaults() {
    let folder = folder("postgres");
    let sample = &sample_with("[store.postgres]");
    std::fs::write(folder.join("countersign.toml"), sample).unwrap();
    let config = Config::load(Some(&folder.join("countersign.toml")), &Overrides::default()).unwrap();
    let StoreSettings::Postgres(said) = &config.store else { panic!("{:?}", config.store) };
    let defaults = PostgresSettings::at("");
    assert_eq!((said.tls, said.connections), (defaults.tls, defaults.connections));
    assert_eq!((said.acquire_timeout, said.statement_timeout), (defaults.acquire_timeout, defaults.statement_timeout));
    assert_eq!((said.poll_every, said.migrate, said.notify), (defaults.poll_every, defaults.migrate, defaults.notify));
    assert_eq!(config.secret_file, folder.join("countersign.secret"));
    for (key, _) in PostgresSettings::KEYS {
        assert!(sample.lines().any(|line| line.starts_with(&format!("{key} = "))), "{key}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_sample_of_listeners_holds_together_and_says_what_is_so_by_itself() {
    let folder = folder("listeners");
    let sample = sample_with("[tls]");
    let loaded = |text: &str| {
        std::fs::write(folder.join("countersign.toml"), text).unwrap();
        Config::load(Some(&folder.join("countersign.toml")), &Overrides::default()).unwrap()
    };
    let config = loaded(&sample);
    let tls = config.tls.as_ref().unwrap();
    assert_eq!(tls.client_certificates, ClientCertificates::Required);
    assert_eq!(tls.client_ca_file, Some(folder.join("ca.pem")));
    assert_eq!(config.doors.operator.as_ref().unwrap().address, Address::Unix(folder.join("operator.sock")));
    let doors: Vec<String> = config.listeners().iter().map(|listener| listener.names()).collect();
    assert_eq!(doors, ["agent,approver", "operator"]);
    let unsaid =
        |line: &str| !["client_certificates", "crl_files", "socket_mode"].iter().any(|key| line.starts_with(key));
    let less: Vec<&str> = sample.lines().filter(|line| unsaid(line)).collect();
    let less = loaded(&less.join("\n"));
    assert_eq!((&less.tls, &less.doors), (&config.tls, &config.doors));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_policy_sample_loads() {
    let folder = folder("policy");
    let samples = blocks("yaml");
    assert_eq!(samples.len(), 1);
    std::fs::write(folder.join("policy.yaml"), &samples[0]).unwrap();
    let policy = load_policy(&folder.join("policy.yaml")).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(policy.connectors().count(), 1);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_table_of_metrics_names_what_is_exposed_and_nothing_else() {
    let page = Arc::new(Metrics::default()).text(Format::Prometheus);
    let exposed: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next().map(str::to_owned)).collect();
    let text = readme();
    let (_, section) = text.split_once("\n## Metrics").unwrap();
    let section = section.split("\n## ").next().unwrap();
    // The first column names them, labels in braces behind.
    let column: String = section.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next()).collect();
    let named = column.split('`').skip(1).step_by(2).map(|name| name.split('{').next().unwrap().to_owned());
    let named: BTreeSet<String> =
        named.filter(|name| name.starts_with("countersign_") || name.starts_with("process_")).collect();
    assert_eq!(named, exposed);
}

#[test]
fn every_reason_state_kind_and_rpc_stands_in_a_table() {
    let text = readme();
    let tables: String = text.lines().filter(|line| line.starts_with('|')).collect::<Vec<_>>().join("\n");
    let mut names: Vec<String> = Vec::new();
    names.extend(PolicyReason::ALL.map(|reason| reason.as_str().to_owned()));
    names.extend(Binding::ALL.map(|binding| binding.reason().to_owned()));
    names.extend(StateName::ALL.map(|state| state.reason().to_owned()));
    names.extend(WaitRefusal::REASONS.map(str::to_owned));
    names.push(Cause::Superseded.reason().to_owned());
    names.extend(AuditKind::ALL.map(|kind| kind.as_str().to_owned()));
    let set = prost_types::FileDescriptorSet::decode(countersign::proto::DESCRIPTORS).unwrap();
    let services = set.file.iter().filter(|file| file.package() == "countersign.v1").flat_map(|file| &file.service);
    for service in services {
        names.push(format!("countersign.v1.{}", service.name()));
        names.extend(service.method.iter().map(|method| method.name().to_owned()));
    }
    // The reasons that only the one file of errors knows.
    let errors: String = [
        "src/service/errors.rs",
        "src/service/errors/audit.rs",
        "src/service/errors/callers.rs",
        "src/service/errors/fatigue.rs",
    ]
    .map(|file| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap())
    .concat();
    let quoted = errors.split('"').skip(1).step_by(2);
    names.extend(
        quoted
            .filter(|text| text.len() > 3 && text.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_'))
            .map(str::to_owned),
    );
    assert!(names.len() > 60, "{}", names.len());
    for name in names {
        assert!(tables.contains(&format!("`{name}`")), "{name} stands in no table of the README");
    }
}

#[test]
fn the_tables_of_permits_say_what_is_signed_and_why_it_is_refused() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/permits.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let claims: BTreeSet<(&str, bool)> = rows
        .filter_map(|row| row.split_once("` | "))
        .filter_map(|(name, rest)| match rest.split(" | ").next() {
            Some("yes") => Some((name, true)),
            Some("no") => Some((name, false)),
            _ => None,
        })
        .collect();
    assert_eq!(claims, BTreeSet::from(CLAIMS));
    let tables: String = text.lines().filter(|line| line.starts_with('|')).collect();
    for reason in PermitRefusal::REASONS {
        assert!(tables.contains(&format!("`{reason}`")), "{reason}");
    }
    // The sample of its configuration is one.
    let sample = text.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = folder("permits");
    std::fs::write(folder.join("countersign.toml"), sample).unwrap();
    let config = Config::load(Some(&folder.join("countersign.toml")), &Overrides::default()).unwrap();
    assert_eq!(config.permits.unwrap().audiences.len(), 1);
    std::fs::remove_dir_all(folder).unwrap();
}
