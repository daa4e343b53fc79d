//! Doors on a Unix socket, and commands that call through it.

use crate::support::{Countersign, Folder, GMAIL, Serving, question, run};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

fn kill(serving: &Serving, signal: &str) {
    // The shell's own: not every machine has the program.
    let sent = Command::new("sh").args(["-c", &format!("kill {signal} {}", serving.pid())]).status().unwrap();
    assert!(sent.success());
}

/// A second sidecar over the same socket, with everything else of its own.
fn another(serving: &Serving) -> crate::support::Ran {
    let arguments = ["serve", "--dev", "--dev-dir", "other", "--health-listen", "127.0.0.1:0"];
    Countersign::new(&arguments).env("COUNTERSIGN_LISTEN", "unix:x.sock").within(&serving.folder).run()
}

#[test]
fn every_command_that_calls_a_sidecar_calls_it_through_its_socket() {
    let serving = Serving::on("socket-calls", "unix:x.sock");
    assert_eq!(serving.address, "unix:x.sock");
    assert!(!serving.log().contains("plaintext"), "{}", serving.log());
    let absolute = format!("unix:{}", serving.folder.path("x.sock").display());
    for address in [&absolute, &absolute.replacen("unix:", "unix://", 1)] {
        let ran = run(&["health", "--address", address, "--service", "countersign.v1.AgentService"]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "SERVING\n"), "{ran:?}");
    }
    let ran = Countersign::new(&["health", "--address", "unix:x.sock", "--json"]).within(&serving.folder).run();
    assert_eq!((ran.code, &ran.json()["address"]), (0, &"unix:x.sock".into()));

    let asked = serving.ask_at(&absolute, [question(r#"{"recipient_email":"kim@acme.com"}"#, "")]).remove(0);
    let approvals = |arguments: &[&str]| {
        Countersign::new(&[&["approvals"], arguments, &["--as", "dana", "--json"]].concat())
            .within(&serving.folder)
            .env("COUNTERSIGN_SERVER", "unix:x.sock")
            .env("COUNTERSIGN_TOKEN_FILE", serving.token_file("approver"))
            .run()
    };
    let listed = approvals(&["list"]);
    assert!(listed.code == 0 && listed.out.contains(&asked.id), "{listed:?}");
    assert_eq!(approvals(&["approve", &asked.id, "--yes"]).code, 0);
    assert!(approvals(&["show", &asked.id]).out.to_lowercase().contains("approved"));
}

#[test]
fn a_socket_that_is_not_there_is_three_and_one_that_cannot_be_is_two() {
    let folder = Folder::new("socket-absent");
    let ran = Countersign::new(&["health", "--address", "unix:x.sock"]).within(&folder).run();
    assert_eq!((ran.code, ran.out.as_str()), (3, "UNREACHABLE\n"), "{ran:?}");
    assert!(ran.err.contains("unix:x.sock") && ran.err.contains("No such file"), "{ran:?}");
    for wrong in
        ["unix:", "unix:@x", "unix-abstract:x", "unix:/x/", "unix://x/y", &format!("unix:/{}", "x".repeat(107))]
    {
        for arguments in [&["health", "--address", wrong][..], &["approvals", "list", "--server", wrong]] {
            assert_eq!(run(arguments).code, 2, "{arguments:?}");
        }
    }
}

#[test]
fn a_socket_is_its_owners_alone_and_goes_with_an_orderly_stop() {
    let mut serving = Serving::on("socket-mode", "unix:x.sock");
    let path = serving.folder.path("x.sock");
    assert_eq!(mode(&path), 0o600);
    kill(&serving, "-TERM");
    assert_eq!(serving.ends(), Some(0));
    assert!(fs::symlink_metadata(&path).is_err(), "nothing stays");
}

#[test]
fn a_live_socket_is_refused_by_name_and_a_dead_one_replaced() {
    let mut serving = Serving::on("socket-stale", "unix:x.sock");
    let path = serving.folder.path("x.sock");
    let ran = another(&serving);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("cannot listen on unix:x.sock: another process answers there"), "{ran:?}");
    assert!(UnixStream::connect(&path).is_ok(), "the first still answers");
    kill(&serving, "-KILL");
    serving.ends();
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket(), "nobody tidied up");
    let again = serving.again();
    assert!(again.log().contains("was replaced"), "{}", again.log());
    let ran = Countersign::new(&["health", "--address", "unix:x.sock"]).within(&again.folder).run();
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn a_file_in_a_sockets_place_stays_and_refuses_the_start() {
    let folder = Folder::new("socket-file");
    let file = folder.write("x.sock", "precious");
    let arguments = ["serve", "--dev", "--dev-dir", "dev", "--listen", "unix:x.sock", "--health-listen", "127.0.0.1:0"];
    let ran = Countersign::new(&arguments).within(&folder).run();
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("unix:x.sock: what is there is no socket"), "{ran:?}");
    assert_eq!(fs::read_to_string(file).unwrap(), "precious");
}

#[test]
fn a_start_that_fails_after_the_socket_was_made_leaves_none() {
    let folder = Folder::new("socket-health");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let health = taken.local_addr().unwrap().to_string();
    let arguments = ["serve", "--dev", "--dev-dir", "dev", "--listen", "unix:x.sock", "--health-listen", &health];
    let ran = Countersign::new(&arguments).within(&folder).run();
    assert!(ran.code == 3 && ran.err.contains(&health), "{ran:?}");
    assert_eq!(folder.names(), ["dev"]);
}

#[test]
fn a_configuration_says_where_the_socket_is_and_who_may_connect() {
    let folder = Folder::new("socket-config");
    folder.write("policy.yaml", fs::read(GMAIL).unwrap());
    fs::create_dir(folder.path("run")).unwrap();
    let config =
        "listen = 'unix:run/x.sock'\nsocket_mode = '0660'\nhealth_listen = '127.0.0.1:0'\npolicy = 'policy.yaml'\n";
    let config = folder.write("sidecar.toml", config);
    // From another folder, under a umask that would take the group's part away.
    let elsewhere = Folder::new("socket-elsewhere");
    let shell = "umask 077; exec \"$0\" \"$@\"";
    let mut serving = Serving::of(elsewhere, |command| {
        command.through(shell).arguments(&["serve", "--config", config.to_str().unwrap()])
    });
    let socket = folder.path("run/x.sock");
    assert_eq!(serving.address, format!("unix:{}", socket.display()));
    assert_eq!(mode(&socket), 0o660);
    kill(&serving, "-TERM");
    assert_eq!(serving.ends(), Some(0));
}

#[test]
fn check_names_what_is_wrong_with_a_socket() {
    let folder = Folder::new("socket-check");
    folder.write("policy.yaml", fs::read(GMAIL).unwrap());
    let check = |listen: &str, mode: &str| {
        let config = format!("listen = '{listen}'\nsocket_mode = '{mode}'\npolicy = 'policy.yaml'\n");
        folder.write("sidecar.toml", config);
        Countersign::new(&["check", "--config", "sidecar.toml"]).within(&folder).run()
    };
    folder.write("file", "");
    let long = format!("unix:{}", "x".repeat(108));
    for (listen, mode, says) in [
        ("unix:@countersign", "0600", "abstract namespace"),
        ("unix:none/x.sock", "0600", "listen: the folder none does not exist"),
        ("unix:file", "0600", "listen: file: what is there is no socket"),
        (&long, "0600", "a socket's path may have"),
        ("unix:x.sock", "0770", "socket_mode: \"0770\""),
        ("unix:x.sock", "rw", "socket_mode: \"rw\""),
        ("unix:x.sock", "0060", "socket_mode: \"0060\""),
    ] {
        let ran = check(listen, mode);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.out.contains("problem: configuration: ") && ran.out.contains(says), "{says}: {ran:?}");
    }
    let ran = check("unix:x.sock", "0660");
    assert!(ran.code == 0 && !ran.out.contains("listen"), "{ran:?}");
    assert!(!folder.path("x.sock").exists(), "nothing is made");
    let ran = check("unix:x.sock", "0666");
    assert!(ran.code == 0 && ran.out.contains("everybody on this machine may connect (mode 0666)"), "{ran:?}");
    let listener = UnixListener::bind(folder.path("x.sock")).unwrap();
    let ran = check("unix:x.sock", "0600");
    assert!(
        ran.code == 0 && ran.out.contains("warning: configuration: listen: x.sock: a process answers there"),
        "{ran:?}"
    );
    drop(listener);
    assert!(!check("unix:x.sock", "0600").out.contains("listen"), "a stale one will be replaced");
    fs::create_dir(folder.path("open")).unwrap();
    fs::set_permissions(folder.path("open"), fs::Permissions::from_mode(0o1777)).unwrap();
    let ran = check("unix:open/x.sock", "0600");
    assert!(ran.code == 0 && ran.out.contains("can put a socket of their own there"), "{ran:?}");
}
