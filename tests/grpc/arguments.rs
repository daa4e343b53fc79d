//! Arguments as JSON text: taken or refused as the vectors say, told by problem and place, and kept apart to the last digit.

use crate::grpc::harness::*;
use crate::grpc::hostile::proper;
use crate::grpc::moves::*;
use countersign::proto::*;
use tonic::Code;

#[derive(serde::Deserialize)]
struct Vectors {
    canonical_json: Vec<CanonicalVector>,
    fingerprint: Vec<FingerprintVector>,
}

#[derive(serde::Deserialize)]
struct CanonicalVector {
    name: String,
    arguments_json: String,
    #[serde(default)]
    refused: bool,
}

#[derive(serde::Deserialize)]
struct FingerprintVector {
    name: String,
    account: String,
    action: String,
    connector: String,
    arguments_json: String,
    objective: Option<ObjectiveVector>,
    fingerprint: String,
}

#[derive(serde::Deserialize)]
struct ObjectiveVector {
    transcript: String,
    id: String,
    revision: u64,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../vectors/canonical-and-fingerprint.json")).unwrap()
}

fn with_arguments(arguments_json: &str) -> Invocation {
    Invocation { arguments_json: arguments_json.to_owned(), ..email() }
}

#[tokio::test]
async fn arguments_are_taken_or_refused_as_the_vectors_say() {
    let sidecar = Sidecar::start().await;
    let vectors = vectors();
    let mut refusals = 0;
    for vector in &vectors.canonical_json {
        let results = [
            sidecar.evaluate(with_arguments(&vector.arguments_json)).await.map(|_| ()),
            sidecar.request(with_arguments(&vector.arguments_json)).await.map(|_| ()),
            sidecar.consume("x", with_arguments(&vector.arguments_json)).await.map(|_| ()),
        ];
        for result in results {
            let status = if vector.refused {
                let status = wrong(result, "invocation.arguments_json");
                assert_eq!(reason(&status), "INVALID_ARGUMENTS_JSON", "{}", vector.name);
                let problem = told(&status, "problem");
                assert!(problem.len() > 3 && problem.to_uppercase() == problem, "{problem}");
                assert!(
                    ["", "/a", "/x/0/k"].contains(&told(&status, "pointer").as_str()) || vector.name == "65 levels"
                );
                Some(status)
            } else {
                result.err()
            };
            if let Some(status) = status {
                proper(&status, &vector.name);
            }
        }
        refusals += usize::from(vector.refused);
    }
    assert!(refusals >= 18);
    for vector in vectors.fingerprint {
        let invocation = Invocation {
            account: vector.account,
            action: vector.action,
            connector: vector.connector,
            arguments_json: vector.arguments_json,
            objective: vector.objective.map(|said| Objective {
                transcript: said.transcript,
                id: said.id,
                revision: said.revision,
            }),
            ..email()
        };
        // One vector has names that are no identifiers: the fingerprint is defined for them, the doors do not take them.
        match sidecar.evaluate(invocation).await {
            Ok(answer) => assert_eq!(answer.fingerprint, vector.fingerprint, "{}", vector.name),
            Err(status) => {
                assert_eq!(vector.name, "quotes and line breaks in names of things");
                assert_eq!(wrong_fields(&status), ["invocation.account", "invocation.action"]);
            }
        }
    }
}

#[tokio::test]
async fn refused_arguments_are_told_by_problem_and_place() {
    let sidecar = Sidecar::start().await;
    let nested = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    let long_name = "n".repeat(10_000);
    let deep_names = (0..60).fold(String::from("1,"), |inner, _| format!("{{\"{}\":{inner}}}", "x".repeat(60)));
    let cases = [
        (r#"{"a":{"b":[0,{"c":1,"c":2}]}}"#.to_owned(), "DUPLICATE_MEMBER", "/a/b/1/c"),
        (r#"{"a":1,"\u0061":2}"#.to_owned(), "DUPLICATE_MEMBER", "/a"),
        (r#"{"a/b~c":["\ud800"]}"#.to_owned(), "UNPAIRED_SURROGATE", "/a~1b~0c/0"),
        (r#"{"a":[1,2,01]}"#.to_owned(), "INVALID_NUMBER", "/a/2"),
        (format!("{{\"a\":1{}}}", "0".repeat(800)), "TOO_MANY_DIGITS", "/a"),
        (r#"{"a":1e401}"#.to_owned(), "EXPONENT_OUT_OF_RANGE", "/a"),
        (r#"{"a":1e-401}"#.to_owned(), "EXPONENT_OUT_OF_RANGE", "/a"),
        (r#"{"a":1e99999999999999999999}"#.to_owned(), "EXPONENT_OUT_OF_RANGE", "/a"),
        ("{\"a\":\"\u{1}\"}".to_owned(), "CONTROL_CHARACTER", "/a"),
        (r#"{"a":"\x"}"#.to_owned(), "INVALID_ESCAPE", "/a"),
        (r#"{"a":1"#.to_owned(), "UNEXPECTED_END", ""),
        ("{} {}".to_owned(), "TRAILING_TEXT", ""),
        ("[]".to_owned(), "NOT_AN_OBJECT", ""),
        ("null".to_owned(), "NOT_AN_OBJECT", ""),
        (" ".to_owned(), "UNEXPECTED_END", ""),
        ("\u{feff}{}".to_owned(), "BYTE_ORDER_MARK", ""),
    ];
    for (arguments, problem, pointer) in cases {
        let status = wrong(sidecar.evaluate(with_arguments(&arguments)).await, "invocation.arguments_json");
        assert_eq!(reason(&status), "INVALID_ARGUMENTS_JSON");
        assert_eq!(
            (told(&status, "problem").as_str(), told(&status, "pointer").as_str()),
            (problem, pointer),
            "{arguments:.60}"
        );
        proper(&status, problem);
    }
    // A pointer is cut before it is longer than a header.
    let long = [
        format!("{{\"{long_name}\":[}}"),
        format!("{{\"{}\":[}}", "\u{202e}".repeat(5_000)),
        format!("{{\"{}\":[}}", "\u{1F600}".repeat(5_000)),
        deep_names,
    ];
    for arguments in long {
        let status = wrong(sidecar.evaluate(with_arguments(&arguments)).await, "invocation.arguments_json");
        proper(&status, "a long pointer");
        assert!(!told(&status, "pointer").is_empty());
    }
    assert!(sidecar.evaluate(with_arguments(&nested(64))).await.is_ok());
    let status = wrong(sidecar.evaluate(with_arguments(&nested(65))).await, "invocation.arguments_json");
    assert_eq!(told(&status, "problem"), "TOO_DEEP");
    let status = wrong(sidecar.evaluate(with_arguments(&nested(100_000))).await, "invocation.arguments_json");
    assert_eq!(told(&status, "problem"), "TOO_DEEP");
    // 256 KiB as handed over, and not one byte more; white space counts.
    let sized = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
    for (arguments, taken) in [
        (sized(256 * 1024), true),
        (sized(256 * 1024 + 1), false),
        (format!("{{}}{}", " ".repeat(256 * 1024 - 2)), true),
        (format!("{{}}{}", " ".repeat(256 * 1024 - 1)), false),
    ] {
        let result = sidecar.request(with_arguments(&arguments)).await;
        if taken {
            result.unwrap();
        } else {
            assert_eq!(told(&wrong(result, "invocation.arguments_json"), "problem"), "TOO_LARGE");
        }
    }
}

#[tokio::test]
async fn numbers_that_a_double_would_merge_stay_apart_from_end_to_end() {
    let sidecar = Sidecar::start().await;
    let pairs = [
        ("9007199254740993", "9007199254740992"),
        ("0.1", "0.1000000000000000055511151231257827"),
        ("1e308", "1.0000000000000000000000000001e308"),
        ("1e400", "1e399"),
        ("18446744073709551616", "18446744073709551617"),
    ];
    for (one, other) in pairs {
        let arguments = |number: &str| with_arguments(&format!("{{\"amount\":{number}}}"));
        let (first, token) = sidecar.approved(arguments(one)).await;
        let second = sidecar.request(arguments(other)).await.unwrap();
        assert!(!second.existing, "{one} is not {other}");
        assert_ne!(second.approval.as_ref().unwrap().fingerprint, first.fingerprint);
        refused(sidecar.consume(&token, arguments(other)).await, Code::FailedPrecondition, "ARGUMENTS_CHANGED");
        assert!(first.preview_json.contains(one) || one.contains('e'), "{}", first.preview_json);
        sidecar.consume(&token, arguments(one)).await.unwrap();
    }
    // And one value however it is written is one.
    let (_, token) = sidecar.approved(with_arguments("{\"amount\":100}")).await;
    sidecar.consume(&token, with_arguments("{\"amount\":1.00e2}")).await.unwrap();
}
