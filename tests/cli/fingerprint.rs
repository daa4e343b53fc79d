//! `countersign fingerprint` against the published vectors.

use crate::support::{Countersign, Folder, Ran, run, text};
use serde_json::Value;

const VECTORS: &str = include_str!("../vectors/canonical-and-fingerprint.json");

fn vectors(kind: &str) -> Vec<Value> {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    vectors[kind].as_array().unwrap().clone()
}

fn canonical(input: impl AsRef<[u8]>) -> Ran {
    Countersign::new(&["fingerprint", "--canonical", "-"]).input(input).run()
}

/// A call's three names, for where they do not matter.
const CALL: [&str; 6] = ["--connector", "c", "--account", "a", "--action", "x"];

#[test]
fn every_canonical_vector_is_reproduced_or_refused() {
    let vectors = vectors("canonical_json");
    assert!(vectors.len() >= 35);
    for vector in vectors {
        let ran = canonical(vector["arguments_json"].as_str().unwrap());
        match vector["canonical"].as_str() {
            Some(want) => assert_eq!((ran.code, ran.out), (0, format!("{want}\n")), "{}", vector["name"]),
            None => {
                assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", vector["name"]);
                assert!(!ran.err.is_empty(), "{}", vector["name"]);
            }
        }
    }
}

#[test]
fn every_fingerprint_vector_is_reproduced() {
    let vectors = vectors("fingerprint");
    assert!(vectors.len() >= 12);
    for vector in vectors {
        let said = |name: &str| vector[name].as_str().unwrap();
        let mut command = Countersign::new(&["fingerprint", "-"]).input(said("arguments_json")).arguments(&[
            "--connector",
            said("connector"),
            "--account",
            said("account"),
            "--action",
            said("action"),
        ]);
        if let Value::Object(objective) = &vector["objective"] {
            command = command.arguments(&[
                "--objective-transcript",
                objective["transcript"].as_str().unwrap(),
                "--objective-id",
                objective["id"].as_str().unwrap(),
                "--objective-revision",
                &objective["revision"].to_string(),
            ]);
        }
        let ran = command.run();
        assert_eq!((ran.code, ran.out), (0, format!("{}\n", said("fingerprint"))), "{}", vector["name"]);
    }
}

#[test]
fn a_file_and_standard_input_are_the_same() {
    let folder = Folder::new("fingerprint");
    let path = folder.write("arguments.json", "{\"b\":2, \"a\":1}\n");
    let from_file = run(&["fingerprint", "--canonical", text(&path)]);
    assert_eq!((from_file.code, from_file.out.as_str()), (0, "{\"a\":1,\"b\":2}\n"));
    let of_file = Countersign::new(&["fingerprint", text(&path)]).arguments(&CALL).run();
    let of_input = Countersign::new(&["fingerprint", "-"]).arguments(&CALL).input("{\"a\":1.0,\"b\":2}").run();
    assert_eq!((of_file.code, of_file.out), (0, of_input.out));
    assert_eq!(run(&["fingerprint", "--canonical", "/does/not/exist"]).code, 3);
}

#[test]
fn what_is_no_json_object_is_refused_at_its_place() {
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    for (input, says) in [
        (&b"{\"a\":\xff}"[..], "UTF-8"),
        (b"\xff", "UTF-8"),
        (b"\n", "byte 1"),
        (b"{\"a\":{\"b\":1,\"b\":2}}", "/a"),
        (large.as_bytes(), "1048576"),
    ] {
        for mode in [&["--canonical"][..], &CALL] {
            let ran = Countersign::new(&["fingerprint", "-"]).arguments(mode).input(input).run();
            assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
            assert!(ran.err.contains(says), "{says} in {}", ran.err);
        }
    }
    let ran = Countersign::new(&["fingerprint", "--canonical", "--json", "-"]).input("{\"a\":[1,01]}").run();
    assert_eq!(ran.code, 1);
    assert_eq!(ran.json()["refused"]["pointer"], "/a/1");
    assert_eq!(ran.json()["refused"]["code"], "INVALID_NUMBER");
}

#[test]
fn names_may_be_any_text() {
    let strange = ["--connector", "-c\n\u{2028}", "--account", "", "--action", "--action"];
    let ran = Countersign::new(&["fingerprint", "-"]).arguments(&strange).run();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.starts_with("v1:") && ran.out.len() == 3 + 64 + 1, "{ran:?}");
}

#[test]
fn a_call_and_an_objective_are_whole_or_it_is_a_usage_error() {
    let objective = [("--objective-transcript", "t"), ("--objective-id", "i"), ("--objective-revision", "1")];
    for left_out in 0..3 {
        let mut call = CALL.to_vec();
        call.drain(left_out * 2..left_out * 2 + 2);
        assert_eq!(Countersign::new(&["fingerprint", "-"]).arguments(&call).run().code, 2, "{call:?}");
        let mut command = Countersign::new(&["fingerprint", "-"]).arguments(&CALL);
        for (_, (flag, value)) in objective.iter().enumerate().filter(|(index, _)| *index != left_out) {
            command = command.arguments(&[flag, value]);
        }
        assert_eq!(command.run().code, 2, "without {:?}", objective[left_out]);
        let (flag, value) = objective[left_out];
        assert_eq!(Countersign::new(&["fingerprint", "-"]).arguments(&CALL).arguments(&[flag, value]).run().code, 2);
    }
    for (revision, code) in [("9007199254740991", 0), ("9007199254740992", 2), ("-1", 2), ("1.0", 2), ("", 2)] {
        let arguments =
            ["--objective-transcript", "t", "--objective-id", "i", &format!("--objective-revision={revision}")]
                .map(str::to_owned);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let ran = Countersign::new(&["fingerprint", "-"]).arguments(&CALL).arguments(&arguments).run();
        assert_eq!(ran.code, code, "{revision:?}: {ran:?}");
    }
    assert_eq!(run(&["fingerprint", "--canonical"]).code, 2, "no file is named");
}

#[test]
fn json_says_what_the_text_is() {
    let ran = Countersign::new(&["fingerprint", "--json", "-"]).arguments(&CALL).run();
    assert!(ran.json()["fingerprint"].as_str().unwrap().starts_with("v1:"));
    let ran = Countersign::new(&["fingerprint", "--canonical", "--json", "-"]).input("{\"a\":1e2}").run();
    assert_eq!(ran.json()["canonical_json"], "{\"a\":100}");
}
