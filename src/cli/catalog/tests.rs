use super::*;
use clap::Parser;
use std::os::unix::fs::{PermissionsExt as _, symlink};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    command: CatalogCommand,
}

/// A folder of its own, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("countersign-catalog-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn put(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn run_import(arguments: &[&str]) -> (Exit, String, String) {
    let line = Line::try_parse_from([&["catalog", "import"], arguments].concat()).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = run(&line.command, &mut out, &mut err).unwrap();
    (exit, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

const LIST: &str = r#"{"tools":[
    {"name":"send","annotations":{"destructiveHint":false}},
    {"name":"fetch","annotations":{"readOnlyHint":true}},
    {"name":"drop"}
]}"#;

#[test]
fn without_a_target_the_catalog_goes_to_the_output_and_the_report_beside_it() {
    let folder = Folder::new();
    let (exit, out, err) = run_import(&[&folder.put("list.json", LIST)]);
    assert_eq!(exit, Exit::Done);
    assert!(out.starts_with("version: countersign.catalog/v1\nactions:\n  drop:\n    scope: admin\n"), "{out}");
    assert_eq!(
        err,
        "3 actions: 1 read, 1 write, 1 admin.\n\
         Not reviewed: 3. Read each, correct its scope and tags, and set `curated: true`.\n"
    );
}

#[test]
fn an_update_keeps_lists_and_writes_the_file_as_a_whole() {
    let folder = Folder::new();
    let (list, catalog) = (folder.put("list.json", LIST), folder.path("c.yaml").display().to_string());
    assert_eq!(run_import(&[&list, "--out", &catalog, "--curated"]).0, Exit::Done);
    let reviewed = folder.text("c.yaml").replace("scope: admin", "scope: write # seen by Ana");
    folder.put("c.yaml", &reviewed);
    fs::set_permissions(&catalog, fs::Permissions::from_mode(0o640)).unwrap();
    let (exit, out, err) = run_import(&[&list, "--into", &catalog]);
    assert_eq!((exit, out.as_str()), (Exit::Done, ""));
    assert!(err.ends_with("c.yaml is up to date.\n"), "{err}");
    assert_eq!(folder.text("c.yaml"), reviewed);

    folder.put(
        "list.json",
        &LIST.replace("\"send\"", "\"send\",\"description\":\"Sends more.\"").replace("fetch", "read"),
    );
    let (exit, _, err) = run_import(&[&list, "--into", &catalog, "--check"]);
    assert_eq!((exit, folder.text("c.yaml")), (Exit::No, reviewed));
    assert!(err.ends_with("c.yaml would change.\n"), "{err}");

    let (exit, _, err) = run_import(&[&list, "--into", &catalog]);
    assert_eq!(exit, Exit::Done);
    assert_eq!(
        err,
        format!(
            "3 actions: 1 read, 2 write, 0 admin.\nKept as reviewed: 1.\nNew: 1\n  read (read)\n\
             Changed: 1\n  send (write, reviewed) -> write\nRemoved: 1\n  fetch (read, reviewed)\n\
             Not reviewed: 2. Read each, correct its scope and tags, and set `curated: true`.\nWritten to {catalog}.\n"
        )
    );
    assert!(folder.text("c.yaml").contains("scope: write # seen by Ana"));
    assert_eq!(fs::metadata(&catalog).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(folder.names(), ["c.yaml", "list.json"], "no temporary file is left");
    assert_eq!(run_import(&[&list, "--into", &catalog, "--check"]).0, Exit::Done);
}

#[test]
fn a_file_that_is_there_is_not_overwritten_by_a_first_import() {
    let folder = Folder::new();
    let (list, catalog) = (folder.put("list.json", LIST), folder.put("c.yaml", "my review"));
    let (exit, _, err) = run_import(&[&list, "--out", &catalog]);
    assert_eq!(exit, Exit::No);
    assert!(err.contains("is there already; update it with --into"), "{err}");
    assert_eq!(folder.text("c.yaml"), "my review");
    assert_eq!(run_import(&[&list, "--out", &catalog, "--check"]).0, Exit::No);
    fs::remove_file(&catalog).unwrap();
    assert_eq!(run_import(&[&list, "--out", &catalog]).0, Exit::Done);
    assert_eq!(run_import(&[&list, "--out", &catalog]).0, Exit::Done, "the same again is no change");
}

#[test]
fn into_one_file_and_out_to_another_leaves_the_first_alone() {
    let folder = Folder::new();
    let list = folder.put("list.json", LIST);
    let catalog =
        folder.put("c.yaml", "version: countersign.catalog/v1\nactions:\n  gone: {scope: read, curated: true}\n");
    let other = folder.path("new.yaml").display().to_string();
    let (exit, _, err) = run_import(&[&list, "--into", &catalog, "--out", &other]);
    assert!(exit == Exit::Done && err.contains("Removed: 1\n  gone (read, reviewed)"), "{err}");
    assert!(folder.text("c.yaml").contains("gone") && folder.text("new.yaml").contains("drop"));
}

#[test]
fn a_link_stays_a_link() {
    let folder = Folder::new();
    let list = folder.put("list.json", LIST);
    folder.put("real.yaml", "version: countersign.catalog/v1\nactions:\n  gone: {scope: read, curated: true}\n");
    symlink(folder.path("real.yaml"), folder.path("c.yaml")).unwrap();
    assert_eq!(run_import(&[&list, "--into", &folder.path("c.yaml").display().to_string()]).0, Exit::Done);
    assert!(fs::symlink_metadata(folder.path("c.yaml")).unwrap().is_symlink());
    assert!(folder.text("real.yaml").contains("drop"));
}

#[test]
fn a_refused_list_or_catalog_changes_nothing_and_names_every_problem() {
    let folder = Folder::new();
    let catalog = folder.put("c.yaml", "version: countersign.catalog/v1\nactions: {a: {scope: raed}}\n");
    let list = folder.put("list.json", r#"{"tools":[{"name":"a"},{"name":"a"},{"name":1}],"nextCursor":"x"}"#);
    let (exit, out, err) = run_import(&[&list, "--into", &catalog]);
    assert_eq!((exit, out.as_str(), err.lines().count()), (Exit::No, "", 3), "{err}");
    assert!(err.lines().all(|line| line.starts_with(&format!("{list}: /"))), "{err}");
    folder.put("list.json", LIST);
    let (exit, _, err) = run_import(&[&list, "--into", &catalog]);
    assert!(exit == Exit::No && err.contains("c.yaml:2:") && err.contains("raed"), "{err}");
    let (exit, out, err) = run_import(&[&list, "--into", &catalog, "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(exit == Exit::No && err.is_empty() && report["problems"].as_array().unwrap().len() > 1, "{out}");
    assert!(folder.text("c.yaml").contains("raed"));
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let folder = Folder::new();
    let list = folder.put("list.json", LIST);
    let missing = folder.path("no/such").display().to_string();
    fs::write(folder.path("latin.json"), b"{\"tools\":[{\"name\":\"\xe9\"}]}").unwrap();
    let (latin, here) = (folder.path("latin.json").display().to_string(), folder.0.display().to_string());
    let huge = folder.put("huge.json", &" ".repeat(3 * MAX_BYTES));
    for (arguments, exit, what) in [
        (vec![missing.as_str()], Exit::Unreachable, "cannot be read: "),
        (vec![latin.as_str()], Exit::Unreachable, "cannot be read: "),
        (vec![huge.as_str()], Exit::No, "longer than"),
        (vec![list.as_str(), "--into", missing.as_str()], Exit::Unreachable, "does not exist"),
        (vec![list.as_str(), "--into", huge.as_str()], Exit::Unreachable, "is larger than"),
        (vec![list.as_str(), "--into", latin.as_str()], Exit::Unreachable, "is no UTF-8 text"),
        (vec![list.as_str(), "--out", missing.as_str()], Exit::Unreachable, "cannot be written: "),
        (vec![list.as_str(), "--out", here.as_str()], Exit::Unreachable, "is no regular file"),
    ] {
        let (got, _, err) = run_import(&arguments);
        assert!(got == exit && err.contains(what) && err.lines().count() == 1, "{arguments:?}: {err}");
    }
    assert_eq!(run_import(&[&list, "--check"]).0, Exit::Usage);
    assert!(Line::try_parse_from(["catalog", "import"]).is_err(), "a list is needed");
}

#[test]
fn the_report_as_json_carries_the_catalog_where_no_file_does() {
    let folder = Folder::new();
    let list = folder.put("list.json", LIST);
    let (exit, out, err) = run_import(&[&list, "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((exit, err.as_str()), (Exit::Done, ""));
    assert_eq!(report["scopes"], json!({ "read": 1, "write": 1, "admin": 1 }));
    assert_eq!(report["not_curated"], json!(["drop", "fetch", "send"]));
    assert_eq!((&report["changes"], &report["written"]), (&json!(false), &json!(false)));
    assert!(report["catalog"].as_str().unwrap().starts_with("version:"));
    let target = folder.path("c.yaml").display().to_string();
    let report: serde_json::Value = serde_json::from_str(&run_import(&[&list, "--json", "--out", &target]).1).unwrap();
    assert_eq!((&report["written"], report.get("catalog")), (&json!(true), None));
}
