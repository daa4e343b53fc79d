//! Tokens of an issuer: the good ones, and everything that must not be taken for one.

use super::*;
use crate::auth::{JwtProblem, KEY_SET_BYTES, TOKEN_BYTES};

#[test]
fn a_good_token_of_each_kind_of_key_is_the_person_that_it_names() {
    let world = World::new();
    for (key, name) in [(&KEYS.ed, "ed"), (&KEYS.ec, "ec"), (&KEYS.rsa, "rsa")] {
        let token = key.token(&key.header(name), &said(&[]));
        for _ in 0..2 {
            let credential = world.bearer(&token, Role::Approver).unwrap();
            assert_eq!(credential.caller().powers, Powers::Person(id("dana")), "{name}");
            assert_eq!(credential.caller().name, id("people"));
        }
        let refused = world.bearer(&token, Role::Agent).err();
        assert_eq!(refused, Some(AuthError::WrongRole { has: Role::Approver, needs: Role::Agent }));
    }
}

#[test]
fn a_header_that_is_not_the_issuers_is_refused() {
    let world = World::new();
    let ed = &KEYS.ed;
    for (header, problem) in [
        (r#"{"alg":"none","kid":"ed"}"#, JwtProblem::Algorithm),
        (r#"{"alg":"None","kid":"ed"}"#, JwtProblem::Algorithm),
        (r#"{"alg":"","kid":"ed"}"#, JwtProblem::Algorithm),
        (r#"{"kid":"ed"}"#, JwtProblem::Algorithm),
        (r#"{"alg":"HS256","kid":"ed"}"#, JwtProblem::Algorithm),
        (r#"{"alg":"eddsa","kid":"ed"}"#, JwtProblem::Algorithm),
        (r#"{"alg":["EdDSA"],"kid":"ed"}"#, JwtProblem::Algorithm),
        // Of a kind that is known, and not configured.
        (r#"{"alg":"RS384","kid":"ed"}"#, JwtProblem::Algorithm),
        (r#"{"alg":"PS256","kid":"rsa"}"#, JwtProblem::Algorithm),
        // The key of that name is for another.
        (r#"{"alg":"RS256","kid":"ed"}"#, JwtProblem::Key),
        (r#"{"alg":"EdDSA","kid":"rsa"}"#, JwtProblem::Key),
        (r#"{"alg":"ES256","kid":"ec"}"#, JwtProblem::Signature),
        (r#"{"alg":"EdDSA","kid":"ed","crit":["exp"],"exp":1}"#, JwtProblem::Critical),
        (r#"{"alg":"EdDSA","kid":"ed","crit":[]}"#, JwtProblem::Critical),
        (r#"{"alg":"EdDSA","kid":"ed","b64":false}"#, JwtProblem::Critical),
        (r#"{"alg":"EdDSA","kid":"ed","typ":"logout+jwt"}"#, JwtProblem::Type),
        (r#"{"alg":"EdDSA","kid":"ed","typ":"dpop+jwt"}"#, JwtProblem::Type),
        (r#"{"alg":"EdDSA","kid":"ed","typ":1}"#, JwtProblem::Type),
        (r#"{"alg":"EdDSA","kid":1}"#, JwtProblem::Malformed),
        (r#"{"alg":"none","alg":"EdDSA","kid":"ed"}"#, JwtProblem::Malformed),
        (r#"["EdDSA"]"#, JwtProblem::Malformed),
        ("", JwtProblem::Malformed),
    ] {
        let token = ed.token(header, &said(&[]));
        assert_eq!(world.bearer(&token, Role::Approver).err(), wrong(problem), "{header}");
    }
    for header in [
        r#"{"alg":"EdDSA","kid":"ed"}"#,
        r#"{"alg":"EdDSA","kid":"ed","typ":"JWT"}"#,
        r#"{"alg":"EdDSA","kid":"ed","typ":"application/AT+JWT"}"#,
        // Which key is meant is clear: one alone is for that algorithm. And a key in the token is nobody's.
        r#"{"alg":"EdDSA"}"#,
        r#"{"alg":"EdDSA","kid":"ed","jwk":{"kty":"oct","k":"AA"},"jku":"https://evil.example.com"}"#,
    ] {
        assert!(world.bearer(&ed.token(header, &said(&[])), Role::Approver).is_ok(), "{header}");
    }
    let typed = World::of(everybody(), IssuerSettings { types: Some(vec!["at+jwt".to_owned()]), ..settings() });
    for (header, good) in [
        (r#"{"alg":"EdDSA","kid":"ed","typ":"at+jwt"}"#, true),
        (r#"{"alg":"EdDSA","kid":"ed","typ":"JWT"}"#, false),
        (r#"{"alg":"EdDSA","kid":"ed"}"#, false),
    ] {
        assert_eq!(typed.bearer(&ed.token(header, &said(&[])), Role::Approver).is_ok(), good, "{header}");
    }
}

#[test]
fn a_public_key_is_no_secret_to_sign_with() {
    use hmac::{KeyInit as _, Mac as _};
    // Even where somebody could configure it, a token that is signed with the public key's bytes is none.
    for (id, public) in [("ed", KEYS.ed.jwk("")), ("rsa", KEYS.rsa.jwk("")), ("rsa", key_set(&[KEYS.rsa.jwk("")]))] {
        let signed = format!("{}.{}", base64url(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#)), base64url(said(&[])));
        let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(public.as_bytes()).unwrap();
        mac.update(signed.as_bytes());
        let token = format!("{signed}.{}", base64url(mac.finalize().into_bytes()));
        assert_eq!(World::new().bearer(&token, Role::Approver).err(), wrong(JwtProblem::Algorithm));
    }
    for name in ["none", "HS256", "HS384", "HS512", "rs256", ""] {
        assert_eq!(Algorithm::parse(name), None);
    }
}

#[test]
fn a_signature_that_is_not_its_keys_is_refused() {
    let world = World::new();
    let good = token(&[]);
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let forged = KEYS.stranger.token(&KEYS.ed.header("ed"), &said(&[]));
    let other = token(&[("sub", "\"eve\"")]);
    let swapped = format!("{signed}.{}", other.rsplit_once('.').unwrap().1);
    for token in [forged, swapped, format!("{signed}."), format!("{signed}.{}", base64url([0; 64]))] {
        assert_eq!(world.bearer(&token, Role::Approver).err(), wrong(JwtProblem::Signature), "{token}");
    }
    // One text stands for one token: another encoding of the same bytes is another, and none.
    for token in [
        format!("{signed}.{signature}="),
        format!("{signed}.{signature}A"),
        format!("{signed}.+{}", &signature[1..]),
        format!("{signed}.x{signature}.{signature}").replace(".x", "."),
    ] {
        assert!(world.bearer(&token, Role::Approver).is_err(), "{token}");
    }
    assert!(world.bearer(&good, Role::Approver).is_ok());
}

#[test]
fn claims_that_are_not_for_this_sidecar_are_refused() {
    let world = World::new();
    for (changes, problem) in [
        (vec![("iss", "")], JwtProblem::Issuer),
        (vec![("iss", "\"https://id.example.com/realm/\"")], JwtProblem::Issuer),
        (vec![("iss", "\"HTTPS://id.example.com/realm\"")], JwtProblem::Issuer),
        (vec![("iss", "[\"https://id.example.com/realm\"]")], JwtProblem::Issuer),
        (vec![("aud", "")], JwtProblem::Audience),
        (vec![("aud", "\"other\"")], JwtProblem::Audience),
        (vec![("aud", "\"countersig\"")], JwtProblem::Audience),
        (vec![("aud", "[]")], JwtProblem::Audience),
        (vec![("aud", "[\"other\",1]")], JwtProblem::Audience),
        (vec![("aud", "{\"countersign\":true}")], JwtProblem::Audience),
        (vec![("exp", "")], JwtProblem::NoExpiry),
        (vec![("exp", "\"1999999999\"")], JwtProblem::NoExpiry),
        (vec![("exp", "null")], JwtProblem::NoExpiry),
        (vec![("exp", "-1")], JwtProblem::NoExpiry),
        (vec![("exp", "1e30")], JwtProblem::NoExpiry),
        (vec![("exp", "1e400")], JwtProblem::NoExpiry),
        (vec![("nbf", "\"0\"")], JwtProblem::NotYetValid),
        (vec![("sub", "")], JwtProblem::Principal),
        (vec![("sub", "\"\"")], JwtProblem::Principal),
        (vec![("sub", "\" dana\"")], JwtProblem::Principal),
        (vec![("sub", "\"da\\u202ena\"")], JwtProblem::Principal),
        (vec![("sub", "[\"dana\"]")], JwtProblem::Principal),
        (vec![("sub", "1")], JwtProblem::Principal),
    ] {
        assert_eq!(world.bearer(&token(&changes), Role::Approver).err(), wrong(problem), "{changes:?}");
    }
    for claims in [
        said(&[]).replacen("\"sub\"", "\"sub\":\"eve\",\"sub\"", 1),
        said(&[]).replacen("\"aud\"", "\"\\u0061ud\":\"other\",\"aud\"", 1),
        said(&[("deep", &format!("{}{}", "[".repeat(65), "]".repeat(65)))]),
        format!("{} x", said(&[])),
    ] {
        let token = KEYS.ed.token(&KEYS.ed.header("ed"), &claims);
        assert_eq!(world.bearer(&token, Role::Approver).err(), wrong(JwtProblem::Malformed), "{claims}");
    }
    for changes in [
        vec![("aud", "[\"other\",\"countersign-2\"]")],
        vec![("azp", "[\"x\",\"console\"]")],
        vec![("exp", "1767272400.5")],
        vec![("exp", "1.7672724e9")],
    ] {
        assert!(world.bearer(&token(&changes), Role::Approver).is_ok(), "{changes:?}");
    }
    assert_eq!(world.bearer(&token(&[("azp", "\"other\"")]), Role::Approver).err(), Some(AuthError::Invalid));
    assert_eq!(world.bearer(&token(&[("azp", "")]), Role::Approver).err(), Some(AuthError::Invalid));
    assert_eq!(
        world.bearer(&token(&[("azp", "[\"console\",\"agents\"]")]), Role::Approver).err(),
        Some(AuthError::Ambiguous)
    );
    let huge = token(&[("x", &format!("\"{}\"", "x".repeat(TOKEN_BYTES)))]);
    assert_eq!(world.bearer(&huge, Role::Approver).err(), wrong(JwtProblem::TooLarge));
    for text in ["..", "a..", "a.b.", ".b.c", "e30.e30.e30", "....", "a.b", "\u{7f}.a.b"] {
        assert!(world.bearer(text, Role::Approver).is_err(), "{text}");
    }
}

#[test]
fn a_token_ends_with_its_tolerance_to_the_microsecond_also_once_it_is_known() {
    for offset in [-1, 0, 1_i64] {
        let world = World::new();
        let token = token(&[]);
        world.bearer(&token, Role::Approver).unwrap();
        let ends = (NOON + 3_630) * 1_000_000;
        world.clock.set_wall(Timestamp::from_micros(ends + offset));
        let known = world.bearer(&token, Role::Approver).err();
        let fresh = World::new();
        fresh.clock.set_wall(Timestamp::from_micros(ends + offset));
        let unknown = fresh.bearer(&token, Role::Approver).err();
        let want = (offset >= 0).then_some(AuthError::Expired);
        assert_eq!((known, unknown), (want, want), "{offset}");
    }
    for (name, after, good) in
        [("nbf", 30, true), ("nbf", 31, false), ("iat", 30, true), ("iat", 31, false), ("nbf", -1, true)]
    {
        let begins = (NOON + after).to_string();
        let got = World::new().bearer(&token(&[(name, &begins)]), Role::Approver).err();
        assert_eq!(got, if good { None } else { wrong(JwtProblem::NotYetValid) }, "{name} {after}");
    }
}

#[test]
fn a_principal_of_a_token_narrows_an_agents_bounds_and_is_no_pattern() {
    let world = World::new();
    for (claim, allowed, refused) in [
        ("\"olga\"", Some("olga"), "olga2"),
        ("\"team-1\"", Some("team-1"), "team-2"),
        ("\"team-*\"", Some("team-*"), "team-1"),
        ("\"*\"", None, "olga"),
        ("\"dana\"", None, "dana"),
    ] {
        let token = token(&[("azp", "\"own\""), ("on_behalf_of", claim)]);
        let credential = world.bearer(&token, Role::Agent).unwrap();
        let Powers::Agent(bounds) = &credential.caller().powers else { panic!("{credential:?}") };
        if let Some(allowed) = allowed {
            assert!(bounds.allow(&id(allowed), &id("assistant")), "{claim}");
        }
        assert!(!bounds.allow(&id(refused), &id("assistant")), "{claim}");
    }
    let without = token(&[("azp", "\"own\"")]);
    assert_eq!(world.bearer(&without, Role::Agent).err(), wrong(JwtProblem::Principal));
}

#[test]
fn only_mapped_groups_of_the_person_itself_count() {
    let world = World::new();
    let groups = |changes: &[(&str, &str)]| world.bearer(&token(changes), Role::Approver).unwrap().groups().to_vec();
    let listed = r#"["idp-oncall","finance","oncall","idp-fin","idp-oncall",1,"IDP-FIN"]"#;
    assert_eq!(groups(&[("groups", listed)]), [id("finance"), id("oncall")]);
    assert_eq!(groups(&[("groups", "\"idp-oncall\"")]), [id("oncall")]);
    assert!(groups(&[("groups", "{\"idp-oncall\":true}")]).is_empty() && groups(&[]).is_empty());
    // A backend's own groups are not those of the people for whom it speaks.
    assert!(groups(&[("groups", listed), ("azp", "\"chat\"")]).is_empty());
}

#[test]
fn a_key_that_is_not_known_is_asked_for_once_in_a_while_however_many_come() {
    let world = World::new();
    let issuer = world.issuer();
    let (settings, every) = (issuer.settings(), settings().refresh_at_least_every);
    let mut fetches = 0;
    let second = Duration::from_secs(1);
    for at in 0..600_u32 {
        for flood in 0..20 {
            let header = format!(r#"{{"alg":"EdDSA","kid":"new-{at}-{flood}"}}"#);
            let token = KEYS.stranger.token(&header, &said(&[]));
            assert_eq!(world.bearer(&token, Role::Approver).err(), Some(AuthError::KeyUnknown));
        }
        if issuer.keys().begin_asking(settings, every, second * at) {
            fetches += 1;
            assert!(!issuer.keys().begin_asking(settings, every, second * (at + 4_000)), "one is under way");
            issuer.keys().asked();
        }
        // Whoever comes with a known key is let in meanwhile.
        assert!(world.bearer(&token(&[]), Role::Approver).is_ok());
    }
    assert_eq!(fetches, 10, "one a minute");
}

#[test]
fn keys_that_change_count_at_once_also_for_what_was_known() {
    let world = World::new();
    let good = token(&[]);
    let credential = world.bearer(&good, Role::Approver).unwrap();
    assert!(credential.is_good());
    let others = KeySet::parse(key_set(&[KEYS.stranger.jwk(r#""kid":"new","#)]).as_bytes()).unwrap();
    assert!(world.issuer().keys().replace(others));
    assert_eq!(world.bearer(&good, Role::Approver).err(), Some(AuthError::KeyUnknown));
    assert!(!credential.is_good(), "a stream ends with the key");
    let new = KEYS.stranger.token(&KEYS.stranger.header("new"), &said(&[]));
    assert!(world.bearer(&new, Role::Approver).is_ok());
    // A reload keeps what was had from the same place, and nothing from another.
    let empty = |settings| Callers::of_issuers(everybody(), vec![Issuer::new(settings, None)]);
    world.shared.replace(empty(settings()));
    assert!(world.bearer(&new, Role::Approver).is_ok());
    world.shared.replace(empty(IssuerSettings { source: KeySource::File(PathBuf::from("other")), ..settings() }));
    assert_eq!(world.bearer(&new, Role::Approver).err(), Some(AuthError::KeysMissing));
}

#[test]
fn a_token_of_an_issuer_ends_with_its_caller_its_issuer_and_its_own_end() {
    let settings_with = |change: fn(&mut IssuerSettings)| {
        let mut settings = settings();
        change(&mut settings);
        settings
    };
    let without = |name: &str| everybody().into_iter().filter(|caller| caller.caller.name.as_str() != name).collect();
    let cases: Vec<(&str, Vec<NewCaller>, IssuerSettings, bool)> = vec![
        ("the same", everybody(), settings(), true),
        ("caller removed", without("people"), settings(), false),
        ("another removed", without("chat"), settings(), true),
        ("issuer renamed", everybody(), settings_with(|it| it.name = Identifier::parse("x").unwrap()), false),
        ("issuer changed", everybody(), settings_with(|it| it.issuer.push('/')), false),
        ("audience changed", everybody(), settings_with(|it| it.audience = vec!["x".to_owned()]), false),
        ("group unmapped", everybody(), settings_with(|it| it.groups.clear()), false),
        ("algorithm gone", everybody(), settings_with(|it| it.algorithms.clear()), false),
        ("another type", everybody(), settings_with(|it| it.types = Some(vec!["x".to_owned()])), false),
    ];
    for (what, callers, settings, good) in cases {
        let world = World::new();
        let token = token(&[("groups", "\"idp-oncall\"")]);
        let credential = world.bearer(&token, Role::Approver).unwrap();
        world.shared.replace(Callers::of_issuers(callers, vec![Issuer::new(settings, Some(keys()))]));
        assert_eq!(credential.is_good(), good, "{what}");
    }
    let world = World::new();
    let credential = world.bearer(&token(&[]), Role::Approver).unwrap();
    world.clock.advance(Duration::from_secs(3_630));
    assert!(!credential.is_good());
}

#[test]
fn a_key_set_with_what_can_sign_in_it_or_nothing_that_verifies_is_refused() {
    let ed = KEYS.ed.jwk(r#""kid":"ed","#);
    let private = ed.replacen('{', "{\"d\":\"AA\",", 1);
    for (text, problem) in [
        (key_set(&[private]), "private"),
        (key_set(&[r#"{"kty":"oct","k":"c2VjcmV0"}"#.to_owned()]), "symmetric"),
        (key_set(&[]), "no key"),
        (key_set(&[KEYS.ed.jwk(r#""use":"enc","#)]), "no key"),
        (key_set(&[KEYS.ed.jwk(r#""alg":"RS256","#)]), "no key"),
        (key_set(&[KEYS.ed.jwk(r#""key_ops":["sign"],"#)]), "no key"),
        (key_set(&[r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#.to_owned()]), "no key"),
        (key_set(&[r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#.to_owned()]), "no key"),
        (r#"{"keys":[],"keys":[]}"#.to_owned(), "no key set"),
        ("<html>".to_owned(), "no key set"),
        ("{}".to_owned(), "no list"),
        (key_set(&vec![ed.clone(); 101]), "101 keys"),
        (format!("{{\"x\":\"{}\"}}", "x".repeat(KEY_SET_BYTES)), "no key set"),
    ] {
        let refused = KeySet::parse(text.as_bytes()).unwrap_err();
        assert!(refused.contains(problem), "{refused}: {problem}");
    }
    // What cannot be used is left out, and two keys of one name are neither.
    let mixed = key_set(&[ed.clone(), KEYS.stranger.jwk(r#""kid":"ed","#), r#"{"kty":"AKP"}"#.to_owned()]);
    let world = World::new();
    world.issuer().keys().replace(KeySet::parse(mixed.as_bytes()).unwrap());
    assert_eq!(world.bearer(&token(&[]), Role::Approver).err(), wrong(JwtProblem::Key));
}
