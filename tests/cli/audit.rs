//! `countersign audit`, against a real sidecar and from files alone.

use crate::support::{Ran, Serving, question, run, text};
use std::fs;
use std::path::Path;

const EMAIL: &str = r#"{"recipient_email":"eve@acme.com"}"#;

fn audit(serving: &Serving, arguments: &[&str]) -> Ran {
    let token = serving.token_file("operator");
    let connection = ["--server", &serving.address, "--token-file", text(&token)];
    run(&[&["audit"], arguments, &connection].concat())
}

/// The file with something else in it.
fn altered(path: &Path, from: &str, to: &str) -> std::path::PathBuf {
    let was = fs::read_to_string(path).unwrap();
    assert!(was.contains(from), "{from} is not in it");
    let altered = path.with_extension("altered");
    fs::write(&altered, was.replacen(from, to, 1)).unwrap();
    altered
}

#[test]
fn the_audit_is_exported_verified_and_proven_from_the_command_line() {
    let serving = Serving::start("audit");
    serving.ask([question(EMAIL, "")]);
    let signed = audit(&serving, &["checkpoint", "--now"]);
    assert_eq!(signed.code, 0, "{signed:?}");
    let folder = crate::support::Folder::new("audit-files");
    let kept = folder.write("kept", &signed.out);
    serving.ask([question(r#"{"recipient_email":"dan@acme.com"}"#, "")]);
    assert_eq!(
        audit(&serving, &["checkpoint", "--now", "--json"]).json()["note"].as_str().unwrap().lines().nth(1),
        Some("2")
    );
    let key = audit(&serving, &["key"]).out.trim().to_owned();
    assert_eq!(audit(&serving, &["key", "--json"]).json()["keys"][0], key.as_str());

    let verified = audit(&serving, &["verify", "--checkpoint", text(&kept), "--key", &key]);
    assert_eq!((verified.code, verified.err.as_str()), (0, ""), "{verified:?}");
    verified.in_order(&["countersign.v1/", "2, of which the first 2", "nothing was changed"]);
    let believed = audit(&serving, &["verify", "--json"]);
    assert!(believed.code == 0 && believed.err.contains("--key"), "{believed:?}");
    assert_eq!((&believed.json()["verified"], &believed.json()["keys_given"]), (&true.into(), &false.into()));

    let file = folder.path("audit.jsonl");
    let exported = audit(&serving, &["export", "--out", text(&file)]);
    assert_eq!((exported.code, exported.out.as_str()), (0, ""), "{exported:?}");
    // Nobody is asked: neither server nor token is there.
    let offline = |file: &Path| run(&["audit", "verify", "--file", text(file), "--key", &key, "--json"]);
    assert_eq!(offline(&file).json()["verified"], true);
    let changed = offline(&altered(&file, "approval.requested", "approval.approved"));
    assert_eq!(changed.code, 1, "{changed:?}");
    let findings = &changed.json()["findings"];
    assert_eq!((&findings[0]["kind"], &findings[0]["leaf"]), (&"record_changed".into(), &0.into()), "{findings}");
    let cut = fs::read_to_string(&file).unwrap();
    let cut = folder.write("cut", cut.rsplit_once("{\"kind\":\"end\"").unwrap().0);
    assert_eq!(offline(&cut).json()["findings"][0]["kind"], "export_incomplete");
    let nonsense = run(&["audit", "verify", "--file", text(&folder.write("nonsense", "{}\n"))]);
    assert_eq!((nonsense.code, nonsense.out.as_str()), (1, ""), "{nonsense:?}");
    assert_eq!(run(&["audit", "verify", "--file", text(&folder.path("absent"))]).code, 3);
    assert_eq!(run(&["audit", "verify", "--file", text(&file), "--key", "x+y+z"]).code, 2);

    let records = audit(&serving, &["export"]);
    let entry: serde_json::Value =
        serde_json::from_str(records.out.lines().find(|line| line.contains("\"kind\":\"entry\"")).unwrap()).unwrap();
    let id = entry["record_id"].as_str().unwrap();
    let proof = folder.path("proof.json");
    let proven = audit(&serving, &["prove", id, "--out", text(&proof)]);
    assert_eq!(proven.code, 0, "{proven:?}");
    let check = |file: &Path| run(&["audit", "verify", "--proof", text(file), "--key", &key]);
    let good = check(&proof);
    assert_eq!((good.code, good.err.as_str()), (0, ""), "{good:?}");
    good.in_order(&["proven, as leaf 0", "approval.requested"]);
    for (from, to) in
        [("approval.requested", "approval.approved"), ("\"leaf\": 0", "\"leaf\": 1"), ("\\n2\\n", "\\n3\\n")]
    {
        let bad = check(&altered(&proof, from, to));
        assert!(bad.code == 1 && bad.out.starts_with("not proven"), "{from}: {bad:?}");
    }
    let unknown = audit(&serving, &["prove", "0190b6c0-0000-7000-8000-000000000000"]);
    assert!(unknown.code == 1 && unknown.err.contains("AUDIT_RECORD_NOT_SEALED"), "{unknown:?}");
}
