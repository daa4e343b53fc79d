//! What happens to a policy's files on disks: renames, links that are led elsewhere, storms, files that go and come back.

use crate::grpc::harness::*;
use crate::grpc::reload::{FILE, put, watching};
use countersign::domain::policy::FILE_BYTES;
use countersign::proto::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The folder of a sidecar that watches one.
const FOLDER: &str = "policy";

fn connector(name: &str) -> String {
    format!("version: countersign.policy/v1\nconnectors: {{ {name}: {{}} }}\n")
}

fn groups() -> String {
    "version: countersign.policy/v1\ngroups: { finance: [dana] }\n".to_owned()
}

/// A sidecar that watches a folder with these files.
async fn watching_folder(files: &[(&str, String)]) -> Sidecar {
    Sidecar::watching(FOLDER, |folder| {
        files.iter().for_each(|(name, text)| write(&folder.join(FOLDER).join(name), text));
    })
    .await
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn at(sidecar: &Sidecar, name: &str) -> PathBuf {
    sidecar.folder().join(FOLDER).join(name)
}

fn names(told: &GetPolicyResponse) -> Vec<&str> {
    told.connectors.iter().map(|connector| connector.name.as_str()).collect()
}

async fn obeys(sidecar: &Sidecar, connectors: &[&str]) {
    let told = sidecar.obeys(&sidecar.folder().join(FOLDER)).await;
    assert_eq!(names(&told), connectors);
}

#[tokio::test]
async fn files_of_a_folder_come_go_and_are_renamed() {
    let sidecar = watching_folder(&[("a.yaml", connector("a"))]).await;
    write(&at(&sidecar, "b.yaml"), &connector("b"));
    obeys(&sidecar, &["a", "b"]).await;
    fs::rename(at(&sidecar, "a.yaml"), at(&sidecar, "a.yaml.off")).unwrap();
    obeys(&sidecar, &["b"]).await;
    fs::rename(at(&sidecar, "a.yaml.off"), at(&sidecar, "c.yaml")).unwrap();
    obeys(&sidecar, &["a", "b"]).await;
    let told = sidecar.told().await;
    assert!(told.files[0].ends_with("/b.yaml") && told.files[1].ends_with("/c.yaml"), "{:?}", told.files);
    put(&at(&sidecar, "b.yaml"), &connector("d"));
    obeys(&sidecar, &["a", "d"]).await;
    fs::remove_file(at(&sidecar, "c.yaml")).unwrap();
    obeys(&sidecar, &["d"]).await;
}

#[tokio::test]
async fn a_swap_of_a_mounts_link_is_seen_with_all_its_files_at_once() {
    let link = |folder: &Path, version: &str| {
        symlink(version, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    };
    let sidecar = Sidecar::watching(FOLDER, |folder| {
        let folder = folder.join(FOLDER);
        write(&folder.join("..2026_1/a.yaml"), &connector("one"));
        write(&folder.join("..2026_1/g.yaml"), &groups());
        link(&folder, "..2026_1");
        for name in ["a.yaml", "g.yaml"] {
            symlink(Path::new("..data").join(name), folder.join(name)).unwrap();
        }
    })
    .await;
    obeys(&sidecar, &["one"]).await;
    for number in 2..5 {
        let (old, new) = (format!("..2026_{}", number - 1), format!("..2026_{number}"));
        let name = format!("c{number}");
        write(&at(&sidecar, &new).join("a.yaml"), &connector(&name));
        write(&at(&sidecar, &new).join("g.yaml"), &groups());
        link(&sidecar.folder().join(FOLDER), &new);
        fs::remove_dir_all(at(&sidecar, &old)).unwrap();
        obeys(&sidecar, &[&name]).await;
    }
    // A mount whose version is gone, as while it is made anew.
    fs::remove_file(at(&sidecar, "..data")).unwrap();
    let told = sidecar.refuses("a.yaml: does not exist").await;
    assert_eq!(names(&told), ["c4"]);
    link(&sidecar.folder().join(FOLDER), "..2026_4");
    obeys(&sidecar, &["c4"]).await;
}

#[tokio::test]
async fn the_link_to_a_policys_folder_may_lead_elsewhere() {
    let sidecar = Sidecar::watching(FOLDER, |folder| {
        write(&folder.join("one/a.yaml"), &connector("one"));
        write(&folder.join("two/a.yaml"), &connector("two"));
        symlink("one", folder.join(FOLDER)).unwrap();
    })
    .await;
    symlink("two", sidecar.folder().join("next")).unwrap();
    fs::rename(sidecar.folder().join("next"), sidecar.folder().join(FOLDER)).unwrap();
    obeys(&sidecar, &["two"]).await;
}

#[tokio::test]
async fn a_policy_that_is_gone_is_kept_until_another_comes() {
    let sidecar = watching_folder(&[("a.yaml", connector("a"))]).await;
    let folder = sidecar.folder().join(FOLDER);
    fs::remove_file(folder.join("a.yaml")).unwrap();
    assert_eq!(names(&sidecar.refuses("has no `*.yaml`").await), ["a"]);
    fs::remove_dir(&folder).unwrap();
    assert_eq!(names(&sidecar.refuses("policy: does not exist").await), ["a"]);
    write(&folder, &connector("file"));
    obeys(&sidecar, &["file"]).await;
    fs::remove_file(&folder).unwrap();
    assert_eq!(names(&sidecar.refuses("policy: does not exist").await), ["file"]);
    write(&folder.join("b.yaml"), &connector("b"));
    obeys(&sidecar, &["b"]).await;
}

#[tokio::test]
async fn a_file_that_is_gone_and_comes_back_is_read_again() {
    let sidecar = watching(&connector("a")).await;
    fs::remove_file(sidecar.policy_path()).unwrap();
    let told = sidecar.refuses("policy.yaml: does not exist").await;
    assert_eq!((told.problems.len(), names(&told)), (1, vec!["a"]));
    assert_eq!(names(&sidecar.comes_under(&connector("a")).await), ["a"]);
    assert_eq!(names(&sidecar.comes_under(&connector("b")).await), ["b"]);
}

#[tokio::test]
async fn a_file_written_in_place_piece_by_piece_ends_as_what_it_says() {
    let sidecar = watching(&connector("a")).await;
    for round in 0..5 {
        let text = format!("{}  # {}\n", POLICY.trim_end(), "x".repeat(round));
        let text = text.replace("  calendar:", &format!("  c{round}:"));
        let (mut file, half) = (fs::File::create(sidecar.policy_path()).unwrap(), text.len() / 2);
        std::io::Write::write_all(&mut file, &text.as_bytes()[..half]).unwrap();
        // As long as it takes to be seen by anybody who looks.
        tokio::task::yield_now().await;
        std::io::Write::write_all(&mut file, &text.as_bytes()[half..]).unwrap();
        drop(file);
        let told = sidecar.obeys(&sidecar.policy_path()).await;
        assert!(names(&told).contains(&format!("c{round}").as_str()));
    }
}

#[tokio::test]
async fn a_storm_of_changes_ends_in_the_last_state() {
    let sidecar = watching(&connector("start")).await;
    for number in 0..200 {
        let text = if number % 3 == 0 { "nonsense".to_owned() } else { connector(&format!("c{number}")) };
        if number % 2 == 0 {
            put(&sidecar.policy_path(), &text);
        } else {
            fs::write(sidecar.policy_path(), &text).unwrap();
        }
        if number % 10 == 0 {
            let answer = sidecar.evaluate(email()).await.unwrap();
            assert_eq!(answer.reason, "CONNECTOR_UNKNOWN", "it serves on");
        }
    }
    let told = sidecar.obeys(&sidecar.policy_path()).await;
    assert_eq!(names(&told), ["c199"]);
}

#[tokio::test]
async fn a_catalog_is_as_much_of_the_policy_as_its_own_files() {
    let catalog = |scope: &str| {
        format!("version: countersign.catalog/v1\nactions: {{ LIST: {{ scope: {scope}, curated: true }} }}\n")
    };
    let naming = "version: countersign.policy/v1\nconnectors: { hub: { catalog: { file: catalogs/hub.yaml } } }\n";
    let sidecar = watching_folder(&[("a.yaml", naming.to_owned()), ("catalogs/hub.yaml", catalog("read"))]).await;
    let list = || Invocation { connector: "hub".to_owned(), action: "LIST".to_owned(), ..email() };
    assert_eq!(sidecar.evaluate(list()).await.unwrap().reason, "ALLOWED");
    write(&at(&sidecar, "catalogs/hub.yaml"), &catalog("admin"));
    obeys(&sidecar, &["hub"]).await;
    assert_eq!(sidecar.evaluate(list()).await.unwrap().reason, "SCOPE_EXCEEDS_CEILING");
    fs::remove_dir_all(at(&sidecar, "catalogs")).unwrap();
    let told = sidecar.refuses("the catalog \"catalogs/hub.yaml\" does not exist").await;
    assert!(told.problems[0].contains("a.yaml:2:"), "{:?}", told.problems);
    assert_eq!(sidecar.evaluate(list()).await.unwrap().reason, "SCOPE_EXCEEDS_CEILING", "the last good one");
    write(&at(&sidecar, "catalogs/hub.yaml"), &catalog("raed"));
    sidecar.refuses("not \"raed\"").await;
    write(&at(&sidecar, "catalogs/hub.yaml"), &catalog("read"));
    obeys(&sidecar, &["hub"]).await;
    assert_eq!(sidecar.evaluate(list()).await.unwrap().reason, "ALLOWED");
}

#[tokio::test]
async fn files_that_cannot_be_read_as_a_policy_are_refused_as_they_stand() {
    let sidecar = watching_folder(&[("a.yaml", connector("a"))]).await;
    let intruder = at(&sidecar, "b.yaml");
    let refused = async |what: &str| {
        let told = sidecar.refuses(what).await;
        assert_eq!((names(&told), told.problems.len()), (vec!["a"], 1), "{:?}", told.problems);
        fs::remove_file(&intruder).unwrap();
        obeys(&sidecar, &["a"]).await;
    };
    symlink("/dev/zero", &intruder).unwrap();
    refused("b.yaml: is no regular file").await;
    symlink("b.yaml", &intruder).unwrap();
    refused("b.yaml: cannot be read").await;
    fs::write(&intruder, vec![b'#'; FILE_BYTES + 1]).unwrap();
    refused("b.yaml: is larger than 1048576 bytes").await;
    fs::write(&intruder, b"version: \xff\n").unwrap();
    refused("b.yaml: is no UTF-8 text").await;
    fs::write(&intruder, "").unwrap();
    refused("b.yaml").await;
    let made = std::process::Command::new("mkfifo").arg(&intruder).status().unwrap();
    assert!(made.success());
    refused("b.yaml: is no regular file").await;
    // Nothing of the name but the name: it is not passed over in silence.
    write(&at(&sidecar, "deny.yml"), &connector("d"));
    sidecar.refuses("deny.yml: is not read: rename it").await;
    fs::rename(at(&sidecar, "deny.yml"), at(&sidecar, "deny.yaml")).unwrap();
    obeys(&sidecar, &["a", "d"]).await;
}

#[tokio::test]
async fn a_file_that_became_a_folder_is_a_folder() {
    let sidecar = watching(&connector("a")).await;
    fs::remove_file(sidecar.folder().join(FILE)).unwrap();
    write(&sidecar.folder().join(FILE).join("b.yaml"), &connector("b"));
    let told = sidecar.obeys(&sidecar.policy_path()).await;
    assert_eq!(names(&told), ["b"]);
}

#[tokio::test]
async fn an_operator_is_told_of_many_problems_only_so_many() {
    let sidecar = watching(&connector("a")).await;
    let mut text = "version: countersign.policy/v1\nconnectors:\n".to_owned();
    for number in 0..500 {
        text.push_str(&format!("  \"c{number}{}\": {{ no: 1 }}\n", "x".repeat(900)));
    }
    put(&sidecar.policy_path(), &text);
    let told = sidecar.refuses("more: the log has them all").await;
    assert_eq!(told.problems.len(), 21);
    assert!(told.problems.iter().all(|problem| problem.len() <= 1_000));
}
