//! `countersign serve --dev`: what it writes it writes into a folder of one's own.

use crate::support::{Countersign, Folder, Serving, question, runtime};
use countersign::client::{self, Bearer};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use tonic::Code;

const DEV: [&str; 8] =
    ["serve", "--dev", "--dev-dir", "dev", "--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"];

#[test]
fn a_folder_that_others_can_reach_is_no_dev_folder() {
    let folder = Folder::new("dev-open");
    std::fs::create_dir(folder.path("dev")).unwrap();
    std::fs::set_permissions(folder.path("dev"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let ran = Countersign::new(&DEV).within(&folder).run();
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("must be a folder of yours alone"), "{ran:?}");
    assert_eq!(std::fs::read_dir(folder.path("dev")).unwrap().count(), 0, "nothing was written into it");
}

#[test]
fn nothing_is_written_through_a_link() {
    for planted in ["dev.lock", "policy.yaml", "countersign.db", "countersign.db.lock", "agent.token"] {
        let folder = Folder::new("dev-link");
        let victim = folder.write("victim", "precious");
        std::fs::create_dir(folder.path("dev")).unwrap();
        std::fs::set_permissions(folder.path("dev"), std::fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&victim, folder.path("dev").join(planted)).unwrap();
        let ran = Countersign::new(&DEV).within(&folder).run();
        assert_eq!(ran.code, 3, "{planted}: {ran:?}");
        assert!(ran.err.contains("is a link"), "{planted}: {ran:?}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious", "{planted}");
    }
}

#[test]
fn a_second_sidecar_leaves_the_tokens_of_the_first() {
    let serving = Serving::start("dev-twice");
    let token = std::fs::read(serving.token_file("agent")).unwrap();
    let ran = Countersign::new(&DEV).within(&serving.folder).run();
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("another sidecar runs in this folder"), "{ran:?}");
    assert_eq!(std::fs::read(serving.token_file("agent")).unwrap(), token);
    for name in ["agent.token", "policy.yaml", "countersign.db", "countersign.db.secret", "dev.lock"] {
        let mode = std::fs::metadata(serving.folder.path("dev").join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_log_that_nobody_takes_any_more_costs_its_lines_and_nothing_else() {
    let folder = Folder::new("dev-deaf");
    let arguments =
        ["serve", "--dev", "--dev-dir", "dev", "--listen", "unix:doors.sock", "--health-listen", "127.0.0.1:0"];
    let mut child = Countersign::new(&arguments).within(&folder).spawn();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(log.any(|line| line.unwrap().contains("serving")), "it does not start");
    // From here on every line that it writes fails.
    drop(log);
    let server = format!("unix:{}", folder.path("doors.sock").display());
    let token = std::fs::read_to_string(folder.path("dev/agent.token")).unwrap();
    runtime().block_on(async {
        for bearer in ["not-a-token", token.trim(), "not-a-token", token.trim()] {
            let channel = client::channel_to(&server).unwrap();
            let mut agent = client::agent(channel, Bearer::new(bearer).unwrap());
            let asked = agent.request_approval(question("{}", "")).await;
            match bearer {
                // A refused credential is a line of the log.
                "not-a-token" => assert_eq!(asked.unwrap_err().code(), Code::Unauthenticated),
                _ => assert!(asked.unwrap().into_inner().approval.is_some()),
            }
        }
    });
    for signal in ["-HUP", "-TERM"] {
        assert!(Command::new("kill").arg(signal).arg(child.id().to_string()).status().unwrap().success());
    }
    assert_eq!(child.wait().unwrap().code(), Some(0), "a stop in order, as if somebody listened");
}
