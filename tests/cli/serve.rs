//! `countersign serve --dev`: what it writes it writes into a folder of one's own.

use crate::support::{Countersign, Folder, Serving};
use std::os::unix::fs::{PermissionsExt as _, symlink};

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
