use super::*;
use crate::secrets::tests::keys;

#[test]
fn a_key_id_is_the_thumbprint_of_rfc_8037() {
    // RFC 8037, appendix A.3.
    let key = permit::bytes("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo").unwrap();
    assert_eq!(thumbprint(&key.try_into().unwrap()), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
}

#[test]
fn a_permit_is_verified_by_the_keys_that_are_published() {
    let token = keys(1).permit().sign(&claims()).unwrap();
    let keyring = Keyring::new(keys(2), vec![keys(1)]);
    let published = PermitKeys::parse(&PermitKeys::of(&keyring).to_jwks()).unwrap();
    assert_eq!(published, PermitKeys::of(&keyring));
    assert_eq!(published.verify(token.as_str()), Ok(claims()));
    assert_eq!(keys(1).permit().sign(&claims()).unwrap().as_str(), token.as_str(), "the same bytes each time");
    assert_eq!(PermitKeys::of(&Keyring::new(keys(2), vec![])).verify(token.as_str()), Err(PermitRefusal::KeyUnknown));
    assert_eq!(format!("{token:?}"), "PermitToken(..)");
}

#[test]
fn a_permit_changed_in_any_character_is_none() {
    let token = keys(1).permit().sign(&claims()).unwrap();
    let published = PermitKeys::of(&Keyring::new(keys(1), vec![]));
    for at in 0..token.as_str().len() {
        for letter in ['A', 'B', '_', '.'] {
            let mut changed = token.as_str().to_owned();
            changed.replace_range(at..=at, letter.encode_utf8(&mut [0; 4]));
            if changed != token.as_str() {
                assert!(published.verify(&changed).is_err(), "{changed}");
            }
        }
    }
}

#[test]
fn what_another_key_of_the_same_secret_signed_is_no_permit() {
    let keys = keys(1);
    let published = PermitKeys::of(&Keyring::new(crate::secrets::tests::keys(1), vec![]));
    let header = permit::encode(permit::header(keys.permit().id()));
    let signed = format!("{header}.{}", permit::encode(claims().to_json()));
    let forged = format!("{signed}.{}", permit::encode(keys.checkpoint().sign(signed.as_bytes()).unwrap()));
    assert_eq!(published.verify(&forged), Err(PermitRefusal::SignatureInvalid));
}

#[test]
fn a_permit_is_written_out_as_others_must_read_it() {
    let secret = keys(1);
    let token = secret.permit().sign(&claims()).unwrap();
    let parts: Vec<&str> = token.as_str().split('.').collect();
    let header = String::from_utf8(permit::bytes(parts[0]).unwrap()).unwrap();
    assert_eq!(
        header,
        format!("{{\"alg\":\"EdDSA\",\"kid\":\"{}\",\"typ\":\"countersign-permit+jwt\"}}", secret.permit().id())
    );
    assert_eq!(String::from_utf8(permit::bytes(parts[1]).unwrap()).unwrap(), claims().to_json());
    assert_eq!(permit::bytes(parts[2]).unwrap().len(), 64);
}

#[test]
fn a_set_of_keys_is_read_strictly_and_other_keys_in_it_are_passed_over() {
    let ours = PermitKeys::of(&Keyring::new(keys(1), vec![]));
    let jwk = ours.to_jwks();
    let jwk = jwk.strip_prefix("{\"keys\":[").unwrap().strip_suffix("]}").unwrap();
    let id = keys(1).permit().id().to_owned();
    let other = permit::encode(keys(2).permit().public());
    let rsa = r#"{"kty":"RSA","kid":"r","n":"AQAB","e":"AQAB"}"#;
    let set = |keys: &[&str]| format!("{{\"keys\":[{}],\"more\":1}}", keys.join(","));
    assert_eq!(PermitKeys::parse(&set(&[rsa, jwk, "null", "[]"])), Ok(ours.clone()));
    assert_eq!(PermitKeys::parse(&set(&[jwk, jwk])), Ok(ours));
    let twin = format!("{{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"{id}\",\"x\":\"{other}\"}}");
    for text in [
        set(&[jwk, &twin]),
        set(&[]),
        set(&[rsa]),
        set(&[&jwk.replace("EdDSA", "ES256")]),
        set(&[&jwk.replace("\"sig\"", "\"enc\"")]),
        set(&[&jwk.replace("Ed25519", "X25519")]),
        set(&[&jwk.replace("\"kid\"", "\"k\"")]),
        set(&[&jwk.replace("\"x\":\"", "\"x\":\"AA")]),
        set(&[&jwk.replace("{", "{\"kid\":\"x\",")]),
        "{}".to_owned(),
        String::new(),
        "[]".to_owned(),
        "{\"keys\":{}}".to_owned(),
        format!("{{\"keys\":[{jwk}],\"keys\":[]}}"),
        format!("{}{}", set(&[jwk]), " ".repeat(MAX_JWKS_BYTES)),
    ] {
        assert!(PermitKeys::parse(&text).is_err(), "{text:.300}");
    }
}

fn claims() -> Claims {
    let zeros = "0".repeat(64);
    Claims::parse(&format!(
        "{{\"action\":\"SEND\",\"agent\":\"assistant\",\"args_sha256\":\"{zeros}\",\
         \"attempt_id\":\"00000000-0000-0000-0000-000000000003\",\"aud\":\"proxy\",\"connector\":\"gmail\",\"exp\":1300,\
         \"fingerprint\":\"v1:{zeros}\",\"iat\":1000,\"idempotency_key\":\"key\",\"iss\":\"countersign\",\
         \"jti\":\"00000000-0000-0000-0000-000000000001\",\"policy_revision\":\"revision\",\"principal\":\"olga\"}}"
    ))
    .unwrap()
}
