use super::*;
use clap::Parser;
use std::fs;
use std::path::Path;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    command: TestCommand,
}

/// A folder with a policy `p.yaml` and what a test puts there, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("countersign-policy-test-{}", uuid::Uuid::new_v4()));
        fs::create_dir_all(path.join("tests")).unwrap();
        let folder = Self(path);
        folder.put("p.yaml", POLICY);
        folder
    }

    fn put(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).unwrap();
        self.0.join(name).display().to_string()
    }

    /// Runs the command here; names in the output are relative to the folder.
    fn run(&self, arguments: &[&str]) -> (Exit, String, String) {
        let line = Line::try_parse_from([&["test"], arguments].concat()).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let exit = run(&line.command, &mut out, &mut err).unwrap();
        let relative = |text| String::from_utf8(text).unwrap().replace(&format!("{}/", self.0.display()), "");
        (exit, relative(out), relative(err))
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

const POLICY: &str = "version: countersign.policy/v1\n\
    connectors: { mail: { ceiling: write, actions: { SEND: { scope: write, curated: true } } } }\n";

fn tests(decision: &str) -> String {
    format!(
        "version: countersign.tests/v1\npolicy: ../p.yaml\n\
         call: {{ principal: dana, agent: a, connector: mail, account: m, action: SEND }}\n\
         cases:\n\
         \x20 - {{ name: sending, want: {{ decision: {decision}, reason: CONFIRMATION_BY_MODE }} }}\n\
         \x20 - {{ name: what is unknown, call: {{ action: DROP }}, want: {{ decision: DENY }} }}\n"
    )
}

#[test]
fn all_answers_as_wanted_is_done() {
    let folder = Folder::new();
    folder.put("tests/a.yaml", &tests("CONFIRMATION_REQUIRED"));
    let (exit, out, err) = folder.run(&[&folder.path("tests")]);
    assert_eq!((exit, out.as_str(), err.as_str()), (Exit::Done, "2 cases: 2 passed, 0 failed\n", ""));
}

#[test]
fn a_deliberately_wrong_case_is_a_no_on_one_line() {
    let folder = Folder::new();
    let file = folder.put("tests/a.yaml", &tests("ALLOW"));
    let (exit, out, _) = folder.run(&[&file]);
    assert_eq!((exit, exit.code()), (Exit::No, 1));
    assert_eq!(
        out,
        "tests/a.yaml:5: sending: decision: want ALLOW, got CONFIRMATION_REQUIRED\n2 cases: 1 passed, 1 failed\n"
    );
    let (exit, out, _) = folder.run(&[&file, "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(exit, Exit::No);
    assert_eq!((&report["cases"], &report["passed"], &report["failed"]), (&json!(2), &json!(1), &json!(1)));
    let difference = json!({ "key": "decision", "want": "ALLOW", "got": "CONFIRMATION_REQUIRED" });
    assert_eq!(report["failures"][0]["differences"], json!([difference]));
}

#[test]
fn another_policy_can_be_put_to_the_same_tests() {
    let folder = Folder::new();
    let file = folder.put("tests/a.yaml", &tests("CONFIRMATION_REQUIRED"));
    let lax = folder.put("lax.yaml", &POLICY.replace("ceiling: write", "ceiling: write, confirm: never"));
    let (exit, out, _) = folder.run(&["--policy", &lax, &file]);
    assert!(exit == Exit::No && out.contains("reason: want CONFIRMATION_BY_MODE, got ALLOWED"), "{out}");
}

#[test]
fn what_cannot_be_read_is_told_apart_from_what_is_malformed() {
    let folder = Folder::new();
    let good = folder.put("tests/a.yaml", &tests("CONFIRMATION_REQUIRED"));
    let malformed = folder.put("malformed.yaml", &tests("MAYBE"));
    let (exit, out, err) = folder.run(&[&good, &malformed]);
    assert!(exit == Exit::Usage && err.starts_with("malformed.yaml:5:") && err.lines().count() == 1, "{err}");
    assert_eq!(out, "2 cases: 2 passed, 0 failed; not everything was run\n");

    let nowhere = folder.put("nowhere.yaml", &tests("ALLOW").replace("policy: ../p.yaml\n", ""));
    folder.put("p.yaml", &POLICY.replace("curated: true", "curated: perhaps"));
    let (exit, _, err) = folder.run(&[&good, &good]);
    assert!(exit == Exit::Unreachable && err.contains("curated") && err.lines().count() == 1, "said once: {err}");
    fs::create_dir(folder.0.join("empty")).unwrap();
    fs::write(folder.0.join("latin.yaml"), b"version: \xe9").unwrap();
    for (arguments, part) in [
        (vec![folder.path("missing.yaml")], "missing.yaml: does not exist"),
        (vec![folder.path("latin.yaml")], "latin.yaml: is no UTF-8 text"),
        (vec![folder.path("empty")], "empty: has no `*.yaml`"),
        (vec![nowhere], "names no `policy`"),
        (vec!["--policy".to_owned(), folder.path("gone.yaml"), good], "gone.yaml: does not exist"),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (exit, _, err) = folder.run(&arguments);
        assert!(exit == Exit::Unreachable && err.contains(part), "{part}: {err}");
    }
    assert!(Line::try_parse_from(["test"]).is_err(), "a file is needed");
}

#[test]
fn a_folder_is_its_own_files_and_a_run_goes_on_after_a_bad_one() {
    let folder = Folder::new();
    folder.put("tests/a.yaml", "version: nonsense\n");
    folder.put("tests/b.yaml", &tests("CONFIRMATION_REQUIRED"));
    folder.put("tests/notes.md", "no tests");
    fs::create_dir(Path::new(&folder.path("tests")).join("deeper")).unwrap();
    folder.put("tests/deeper/c.yaml", &tests("ALLOW"));
    let (exit, out, err) = folder.run(&[&folder.path("tests")]);
    assert_eq!((exit, out.as_str()), (Exit::Usage, "2 cases: 2 passed, 0 failed; not everything was run\n"), "{err}");
}
