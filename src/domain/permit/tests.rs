use super::*;
use crate::domain::fingerprint::Digest;
use proptest::prelude::*;
use std::collections::BTreeSet;
use uuid::Uuid;

#[test]
fn a_permit_says_what_is_documented_in_canonical_json() {
    let claims = claims();
    assert_eq!(
        claims.to_json(),
        format!(
            "{{\"account\":\"work \\\"A\\\"\",\"action\":\"SEND\",\"agent\":\"assistant\",\
             \"approval_id\":\"00000000-0000-0000-0000-000000000002\",\"args_sha256\":\"{zeros}\",\
             \"attempt_id\":\"00000000-0000-0000-0000-000000000003\",\"aud\":\"proxy\",\"connector\":\"gmail\",\
             \"conversation\":\"c-1\",\"exp\":1300,\"fingerprint\":\"v1:{zeros}\",\"iat\":1000,\
             \"idempotency_key\":\"key\",\"iss\":\"countersign\",\"jti\":\"00000000-0000-0000-0000-000000000001\",\
             \"policy_revision\":\"revision\",\"principal\":\"olga\",\"tool_definition_digest\":\"td1:{zeros}\"}}",
            zeros = "0".repeat(64)
        )
    );
    let limits = Limits { max_bytes: MAX_TOKEN_BYTES, top: Top::Object };
    assert_eq!(Canonical::of(&claims.to_json(), limits).unwrap().as_str(), claims.to_json());
}

#[test]
fn the_list_of_claims_is_what_is_written_and_what_is_needed() {
    let names = |claims: &Claims| -> Vec<String> {
        let json = object(&claims.to_json()).unwrap();
        json.as_object().unwrap().iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&claims()), CLAIMS.map(|(name, _)| name));
    let least = Claims { account: None, conversation: None, approval: None, tool_definition_digest: None, ..claims() };
    let needed: Vec<&str> = CLAIMS.iter().filter(|(_, needed)| *needed).map(|(name, _)| *name).collect();
    assert_eq!(names(&least), needed, "what is absent is left out, never empty");
    assert_eq!(Claims::parse(&least.to_json()), Ok(least));
    for (left_out, needed) in CLAIMS {
        let text = without(left_out);
        match Claims::parse(&text) {
            Ok(_) => assert!(!needed, "{left_out}"),
            Err(refusal) => assert!(needed && refusal.to_string().contains(left_out), "{left_out}: {refusal}"),
        }
    }
}

#[test]
fn a_claim_that_no_sidecar_writes_is_refused() {
    for (from, to) in [
        ("\"aud\":\"proxy\"", "\"aud\":[\"proxy\"]"),
        ("\"aud\":\"proxy\"", "\"aud\":\"\""),
        ("\"aud\":\"proxy\"", "\"aud\":null"),
        ("\"aud\":\"proxy\"", "\"aud\":\"proxy\",\"aud\":\"proxy\""),
        ("\"aud\":\"proxy\"", "\"aud\":\"proxy\",\"\\u0061ud\":\"other\""),
        ("\"principal\":\"olga\"", "\"principal\":\" olga\""),
        ("\"principal\":\"olga\"", "\"principal\":\"ol\\u202ega\""),
        ("\"conversation\":\"c-1\"", "\"conversation\":\"\""),
        ("\"conversation\":\"c-1\"", "\"conversation\":null"),
        ("\"exp\":1300", "\"exp\":\"1300\""),
        ("\"exp\":1300", "\"exp\":1300.5"),
        ("\"exp\":1300", "\"exp\":1e300"),
        ("\"iat\":1000", "\"iat\":true"),
        ("\"jti\":\"00000000-0000-0000-0000-000000000001\"", "\"jti\":\"00000000-0000-0000-0000-000000000000\""),
        ("\"fingerprint\":\"v1:", "\"fingerprint\":\"v2:"),
        ("\"args_sha256\":\"0", "\"args_sha256\":\"A"),
    ] {
        let text = claims().to_json();
        assert!(text.contains(from), "{from}");
        let refused = Claims::parse(&text.replace(from, to));
        assert!(matches!(refused, Err(PermitRefusal::Malformed(_))), "{to}: {refused:?}");
    }
    for text in ["", "null", "[]", "{", "{}", "\"\"", "{}{}", "\u{feff}{}"] {
        assert!(matches!(Claims::parse(text), Err(PermitRefusal::Malformed(_))), "{text}");
    }
    let later = claims().to_json().replace("{\"account\"", "{\"a_later_claim\":[1,{}],\"account\"");
    assert_eq!(Claims::parse(&later), Ok(claims()), "a later sidecar may say more");
}

#[test]
fn a_permit_holds_from_its_first_second_to_before_its_last_with_the_tolerance_that_is_said() {
    for (now, tolerance, want) in [
        (999_999_999, 0, Some(PermitRefusal::NotYetValid)),
        (1_000_000_000, 0, None),
        (1_299_999_999, 0, None),
        (1_300_000_000, 0, Some(PermitRefusal::Expired)),
        (1_300_000_001, 0, Some(PermitRefusal::Expired)),
        (994_999_999, 5, Some(PermitRefusal::NotYetValid)),
        (995_000_000, 5, None),
        (1_304_999_999, 5, None),
        (1_305_000_000, 5, Some(PermitRefusal::Expired)),
        // More than the most is the most.
        (1_599_999_999, 100_000, None),
        (1_600_000_000, 100_000, Some(PermitRefusal::Expired)),
        (i64::MIN, 0, Some(PermitRefusal::NotYetValid)),
        (i64::MAX, 0, Some(PermitRefusal::Expired)),
    ] {
        let now = Timestamp::from_micros(now);
        let expected = Expected { now, tolerance: Duration::from_secs(tolerance), ..expected() };
        assert_eq!(claims().check(&expected), Vec::from_iter(want), "{now:?} {tolerance}");
    }
}

#[test]
fn times_are_cut_to_the_second_so_that_nothing_ends_later() {
    for (micros, second) in [(1_999_999, 1), (2_000_000, 2), (0, 0), (-1, -1)] {
        assert_eq!(seconds(Timestamp::from_micros(micros)), second);
    }
}

#[test]
fn everything_that_is_not_as_expected_is_named() {
    assert_eq!(claims().check(&expected()), []);
    let other = Some("other");
    let no_arguments = Some(ArgumentsDigest::of(b"{}"));
    for (expected, want) in [
        (Expected { issuer: "other", ..expected() }, PermitRefusal::IssuerMismatch),
        (Expected { audience: "", ..expected() }, PermitRefusal::AudienceMismatch),
        (Expected { principal: other, ..expected() }, PermitRefusal::PrincipalMismatch),
        (Expected { connector: other, ..expected() }, PermitRefusal::ConnectorMismatch),
        (Expected { action: Some("SEND "), ..expected() }, PermitRefusal::ActionMismatch),
        (Expected { conversation: Some(""), ..expected() }, PermitRefusal::ConversationMismatch),
        (Expected { agent: Some("Assistant"), ..expected() }, PermitRefusal::AgentMismatch),
        (Expected { account: Some(""), ..expected() }, PermitRefusal::AccountMismatch),
        (Expected { arguments: no_arguments, ..expected() }, PermitRefusal::ArgumentsChanged),
    ] {
        assert_eq!(claims().check(&expected), [want]);
    }
    let none = Claims { account: None, conversation: None, ..claims() };
    assert_eq!(none.check(&Expected { account: Some(""), conversation: Some(""), ..expected() }), []);
    let named = Expected { account: Some("work \"A\""), conversation: Some("c-1"), ..expected() };
    assert_eq!(none.check(&named), [PermitRefusal::ConversationMismatch, PermitRefusal::AccountMismatch]);
    assert_eq!(claims().check(&named), []);
}

#[test]
fn only_the_form_algorithm_and_type_of_a_permit_are_taken_apart() {
    let payload = encode(claims().to_json());
    let signature = encode([7; 64]);
    let token = |header: &str| format!("{}.{payload}.{signature}", encode(header));
    let good = token(&header("key"));
    let parts = Parts::of(&good).unwrap();
    assert_eq!((parts.key_id.as_str(), parts.signature), ("key", [7; 64]));
    assert_eq!(parts.claims(), Ok(claims()));
    let other_order = token(r#" { "typ":"countersign-permit+jwt", "kid":"key", "\u0061lg":"EdDSA" } "#);
    assert!(Parts::of(&other_order).is_ok());
    for (header, want) in [
        (r#"{"alg":"none","kid":"key","typ":"countersign-permit+jwt"}"#, "PERMIT_ALGORITHM_REFUSED"),
        (r#"{"alg":"HS256","kid":"key","typ":"countersign-permit+jwt"}"#, "PERMIT_ALGORITHM_REFUSED"),
        (r#"{"alg":"eddsa","kid":"key","typ":"countersign-permit+jwt"}"#, "PERMIT_ALGORITHM_REFUSED"),
        (r#"{"alg":["EdDSA"],"kid":"key","typ":"countersign-permit+jwt"}"#, "PERMIT_ALGORITHM_REFUSED"),
        (r#"{"kid":"key","typ":"countersign-permit+jwt"}"#, "PERMIT_ALGORITHM_REFUSED"),
        (r#"{"alg":"EdDSA","kid":"key","typ":"JWT"}"#, "PERMIT_TYPE_MISMATCH"),
        (r#"{"alg":"EdDSA","kid":"key","typ":"application/countersign-permit+jwt"}"#, "PERMIT_TYPE_MISMATCH"),
        (r#"{"alg":"EdDSA","kid":"key"}"#, "PERMIT_TYPE_MISMATCH"),
        (r#"{"alg":"EdDSA","typ":"countersign-permit+jwt"}"#, "PERMIT_MALFORMED"),
        (r#"{"alg":"EdDSA","crit":["b64"],"kid":"key","typ":"countersign-permit+jwt"}"#, "PERMIT_MALFORMED"),
        (r#"{"alg":"EdDSA","crit":[],"kid":"key","typ":"countersign-permit+jwt"}"#, "PERMIT_MALFORMED"),
        (r#"{"alg":"EdDSA","jku":"https://x","kid":"key","typ":"countersign-permit+jwt"}"#, "PERMIT_MALFORMED"),
        (r#"{"alg":"none","alg":"EdDSA","kid":"key","typ":"countersign-permit+jwt"}"#, "PERMIT_MALFORMED"),
        ("[]", "PERMIT_MALFORMED"),
        ("\u{feff}{}", "PERMIT_MALFORMED"),
        ("", "PERMIT_MALFORMED"),
        ("{}", "PERMIT_ALGORITHM_REFUSED"),
    ] {
        assert_eq!(Parts::of(&token(header)).unwrap_err().reason(), want, "{header}");
    }
    let [head, ..] = good.split('.').collect::<Vec<_>>()[..] else { panic!("{good}") };
    for hostile in [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        head.to_owned(),
        format!("{head}.{payload}"),
        format!("{head}.{payload}."),
        format!("{good}."),
        format!("{good}.{signature}"),
        format!("{good} "),
        format!("{good}="),
        format!("{head}.{payload}.{}", encode([7; 63])),
        format!("{head}.{payload}.{}", encode([7; 65])),
        format!("{head}=.{payload}.{signature}"),
        good.replace('e', "+"),
        // The last letter of 64 bytes carries four bits; another with the same four is another text.
        format!("{}x", good.strip_suffix('w').unwrap_or(&good)),
        format!("{good}{}", "A".repeat(MAX_TOKEN_BYTES)),
        "\u{e9}.\u{e9}.\u{e9}".to_owned(),
    ] {
        let refused = Parts::of(&hostile);
        assert!(matches!(refused, Err(PermitRefusal::Malformed(_))), "{hostile:.200}: {refused:?}");
    }
}

#[test]
fn every_reason_is_listed_once() {
    let reasons: BTreeSet<&str> = PermitRefusal::REASONS.into_iter().collect();
    assert_eq!(reasons.len(), PermitRefusal::REASONS.len());
    assert_eq!(PermitRefusal::Malformed(String::new()).reason(), PermitRefusal::REASONS[0]);
    assert_eq!(PermitRefusal::ArgumentsChanged.reason(), PermitRefusal::REASONS[15]);
}

#[test]
fn the_longest_permit_is_within_the_limit() {
    let longest = || Identifier::parse(&"\"".repeat(256)).unwrap();
    let claims = Claims {
        issuer: longest(),
        audience: longest(),
        principal: longest(),
        agent: longest(),
        conversation: Some(longest()),
        connector: longest(),
        account: Some(longest()),
        action: longest(),
        ..claims()
    };
    let token = format!("{}.{}.{}", encode(header(&"k".repeat(43))), encode(claims.to_json()), encode([0; 64]));
    assert!(token.len() < MAX_TOKEN_BYTES / 2, "{}", token.len());
}

proptest! {
    #[test]
    fn what_is_signed_says_exactly_what_was_said(one in any_claims()) {
        prop_assert_eq!(Claims::parse(&one.to_json()), Ok(one));
    }

    #[test]
    fn different_claims_are_never_one_text(one in any_claims(), other in any_claims()) {
        prop_assert_eq!(one == other, one.to_json() == other.to_json());
    }

    #[test]
    fn a_character_that_moves_across_the_border_of_two_claims_changes_the_text(
        text in "[a-z\",:{}\\\\]{2,12}", cut in 1_usize..11, names in (0_usize..4, 0_usize..4),
    ) {
        prop_assume!(cut < text.len() && names.0 != names.1);
        let split = |at: usize| {
            let mut said = claims();
            for (which, part) in [(names.0, &text[..at]), (names.1, &text[at..])] {
                let part = Identifier::parse(part).unwrap();
                match which {
                    0 => said.principal = part,
                    1 => said.agent = part,
                    2 => said.account = Some(part),
                    _ => said.action = part,
                }
            }
            said.to_json()
        };
        let texts: BTreeSet<String> = (1..text.len()).map(split).collect();
        prop_assert_eq!(texts.len(), text.len() - 1);
    }

    #[test]
    fn whatever_comes_is_an_answer(text in any::<String>(), pieces in prop::collection::vec("[A-Za-z0-9_-]{0,20}", 0..5)) {
        let _ = Parts::of(&text);
        let _ = Claims::parse(&text);
        let _ = Parts::of(&pieces.join("."));
    }
}

fn any_claims() -> impl Strategy<Value = Claims> {
    let name = || {
        let few = "[ab\"\\\\,:{}]{1,2}".prop_filter_map("identifier", |text| Identifier::parse(&text).ok());
        let any = any::<String>().prop_filter_map("identifier", |text| Identifier::parse(&text).ok());
        prop_oneof![few, any]
    };
    let uuid = || (1..=u128::MAX).prop_map(Uuid::from_u128);
    let digest = || any::<[u8; 32]>().prop_map(Digest::from_bytes);
    (
        (name(), name(), name(), name(), prop::option::of(name()), name(), prop::option::of(name()), name()),
        (any::<i64>(), any::<i64>(), uuid(), prop::option::of(uuid()), uuid()),
        (digest(), digest(), prop::option::of(digest()), ".{1,40}", "[0-9a-f]{64}"),
    )
        .prop_map(|(names, ids, rest)| Claims {
            issuer: names.0,
            audience: names.1,
            principal: names.2,
            agent: names.3,
            conversation: names.4,
            connector: names.5,
            account: names.6,
            action: names.7,
            issued_at: ids.0,
            expires_at: ids.1,
            execution: ExecutionId::new(ids.2),
            approval: ids.3.map(ApprovalId::new),
            attempt: AttemptId::new(ids.4),
            arguments_digest: ArgumentsDigest::from_digest(rest.0),
            fingerprint: Fingerprint::from_digest(rest.1),
            tool_definition_digest: rest.2.map(DefinitionDigest::from_digest),
            idempotency_key: rest.3,
            policy_revision: rest.4,
        })
}

fn claims() -> Claims {
    let name = |text: &str| Identifier::parse(text).unwrap();
    let zeros = Digest::from_bytes([0; 32]);
    Claims {
        issuer: name("countersign"),
        audience: name("proxy"),
        issued_at: 1_000,
        expires_at: 1_300,
        execution: ExecutionId::new(Uuid::from_u128(1)),
        principal: name("olga"),
        agent: name("assistant"),
        conversation: Some(name("c-1")),
        connector: name("gmail"),
        account: Some(name("work \"A\"")),
        action: name("SEND"),
        arguments_digest: ArgumentsDigest::from_digest(zeros),
        fingerprint: Fingerprint::from_digest(zeros),
        approval: Some(ApprovalId::new(Uuid::from_u128(2))),
        attempt: AttemptId::new(Uuid::from_u128(3)),
        idempotency_key: "key".to_owned(),
        tool_definition_digest: Some(DefinitionDigest::from_digest(zeros)),
        policy_revision: "revision".to_owned(),
    }
}

fn expected() -> Expected<'static> {
    Expected {
        issuer: "countersign",
        audience: "proxy",
        arguments: None,
        connector: Some("gmail"),
        account: None,
        action: Some("SEND"),
        principal: Some("olga"),
        agent: Some("assistant"),
        conversation: None,
        now: Timestamp::from_micros(1_100_000_000),
        tolerance: Duration::ZERO,
    }
}

/// The claims without one of them.
fn without(name: &str) -> String {
    let Json::Object(members) = object(&claims().to_json()).unwrap() else { panic!("no object") };
    Json::Object(members.into_iter().filter(|member| member.0 != name).collect()).to_canonical()
}
