//! TLS as the README has it: its commands make the certificates, its sample is the configuration, and its flags call.

use crate::support::{Countersign, Folder, Ran, Serving, text};
use std::fs;
use std::process::Command;

fn token(name: &str) -> String {
    format!("cst_test_token_of_{name}_0123456789")
}

/// The block in this language of the README's section on TLS.
fn block(language: &str) -> String {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let section = readme.split("\n## TLS and listeners\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let block = section.split(&format!("```{language}\n")).nth(1).unwrap();
    block.split("```").next().unwrap().to_owned()
}

/// A folder with what the README's commands make, and its sample with callers, on free ports.
fn prepared(name: &str) -> Folder {
    let folder = Folder::new(name);
    let ran = Command::new("sh").args(["-e", "-c", &block("sh")]).current_dir(folder.path("")).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    folder.write("policy.yaml", "version: countersign.policy/v1\nconnectors: { gmail: {} }\n");
    folder.write("chat.token", token("chat"));
    folder.write("ops.token", token("ops"));
    let sample = block("toml");
    assert!(sample.contains("listen = \"0.0.0.0:7400\""));
    let first = "health_listen = \"127.0.0.1:0\"\npolicy = \"policy.yaml\"\npolicy_settle = \"10ms\"\n";
    let callers = "\n[[callers]]\nname = \"chat\"\nrole = \"approver\"\ntoken_file = \"chat.token\"\nasserts_principal = [\"*\"]\n\
                   [[callers]]\nname = \"ops\"\nrole = \"operator\"\ntoken_file = \"ops.token\"\n";
    folder.write("countersign.toml", format!("{first}{}{callers}", sample.replace("0.0.0.0:7400", "127.0.0.1:0")));
    folder
}

/// `approvals list` as dana, with the chat backend's token.
fn list(serving: &Serving, server: &str, flags: &[(&str, &str)]) -> Ran {
    let mut arguments = vec!["approvals", "list", "--as", "dana", "--server", server];
    let token_file = serving.folder.path("chat.token");
    arguments.extend(["--token-file", text(&token_file)]);
    let flags: Vec<(&str, String)> = flags
        .iter()
        .map(|(flag, value)| {
            let file = *flag != "--tls-server-name";
            (*flag, if file { text(&serving.folder.path(value)).to_owned() } else { (*value).to_owned() })
        })
        .collect();
    for (flag, value) in &flags {
        arguments.extend([*flag, value.as_str()]);
    }
    Countersign::new(&arguments).run()
}

#[test]
fn certificates_of_the_readmes_commands_are_served_and_called_with_its_flags() {
    let folder = prepared("tls");
    let checked = Countersign::new(&["check", "--config", "countersign.toml"]).within(&folder).run();
    assert_eq!(checked.code, 0, "{checked:?}");
    let serving = Serving::of(folder, |command| {
        command.arguments(&["serve", "--config", "countersign.toml", "--log-format", "human"])
    });
    let port = serving.address.rsplit(':').next().unwrap();
    let localhost = format!("https://localhost:{port}");
    let shows = [("--client-certificate", "chat.pem"), ("--client-key", "chat.key")];
    let believes = ("--tls-ca", "ca.pem");
    let with = |more: &[(&'static str, &'static str)]| [&[believes][..], more].concat();
    // With and without `https://`, by any of its names.
    for server in [localhost.as_str(), &serving.address] {
        let ran = list(&serving, server, &with(&shows));
        assert_eq!(ran.code, 0, "{server}: {ran:?}");
    }
    let named = with(&[shows[0], shows[1], ("--tls-server-name", "localhost")]);
    assert_eq!(list(&serving, &serving.address, &named).code, 0);
    let health = |address: &str, ca: &str| {
        let arguments =
            ["health", "--address", address, "--tls-ca", ca, shows[0].0, shows[0].1, shows[1].0, shows[1].1];
        Countersign::new(&arguments).within(&serving.folder).run()
    };
    assert_eq!(health(&localhost, "ca.pem").code, 0);
    assert_eq!(
        health(&serving.health_address, "ca.pem").code,
        0,
        "plaintext stays plaintext, whatever is said beside it"
    );

    for (server, flags, code, says) in [
        (localhost.as_str(), with(&[]), 3, "--client-certificate FILE"),
        (&localhost, vec![], 2, "--tls-ca FILE"),
        (&localhost, with(&[shows[0]]), 2, "go together"),
        (
            &localhost,
            with(&[("--client-certificate", "sidecar.pem"), ("--client-key", "sidecar.key")]),
            3,
            "client's certificate",
        ),
        (
            &localhost,
            with(&[("--client-certificate", "chat.pem"), ("--client-key", "ca.key")]),
            3,
            "chat.pem with its key: ",
        ),
        (&localhost, [&[("--tls-ca", "chat.pem")][..], &shows].concat(), 3, "no authority in --tls-ca"),
        (&localhost, [&[("--tls-ca", "chat.key")][..], &shows].concat(), 3, "chat.key: has no certificate"),
        (&localhost, with(&[shows[0], shows[1], ("--tls-server-name", "sidecar")]), 3, "--tls-server-name"),
        (&serving.address, vec![], 3, "--tls-ca FILE"),
        (&serving.address, shows.to_vec(), 2, "means nothing without TLS"),
        (&serving.health_address, with(&shows), 3, "speaks no TLS"),
        ("unix:operator.sock", with(&shows), 2, "a Unix socket has no TLS"),
    ] {
        let ran = list(&serving, server, &flags);
        assert!(ran.code == code && ran.err.contains(says), "{server} {flags:?}: {ran:?}");
    }
    let log = serving.log();
    assert!(log.contains("client_certificates=\"required\"") && log.contains("operator.sock"), "{log}");
    assert!(!log.contains("plaintext"), "{log}");
}

#[test]
fn check_names_what_is_wrong_with_the_files_of_tls() {
    let folder = prepared("tls-check");
    fs::copy(folder.path("ca.key"), folder.path("sidecar.key")).unwrap();
    folder.write("ca.pem", "");
    let checked = Countersign::new(&["check", "--config", "countersign.toml"]).within(&folder).run();
    assert_eq!(checked.code, 1, "{checked:?}");
    for says in [
        "problem: tls: sidecar.key: is not the key of the certificate in sidecar.pem",
        "problem: tls: ca.pem: has no certificate",
    ] {
        assert!(checked.out.contains(says), "{says}: {checked:?}");
    }
    let started = Countersign::new(&["serve", "--config", "countersign.toml"]).within(&folder).run();
    assert!(started.code == 3 && started.err.contains("sidecar.key: is not the key"), "{started:?}");
}

#[test]
fn what_tls_costs_is_measured_with_those_certificates() {
    let folder = prepared("tls-bench");
    let tiny = ["bench", "--seconds", "0.01", "--rounds", "1", "--dir", ".", "--only", "tls"];
    let ran = Countersign::new(&tiny).arguments(&["--certificates", "."]).within(&folder).run();
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.in_order(&[
        "evaluate over plaintext, 64 in flight: CPU",
        "mutual TLS above plaintext, 64 in flight: CPU",
        "a handshake of TLS: CPU",
        "a handshake of mutual TLS: CPU",
    ]);
    let without = Countersign::new(&tiny).within(&folder).run();
    assert!(without.code == 3 && without.err.contains("--certificates"), "{without:?}");
}
