//! The keys of one secret.

use super::*;

pub(super) fn keys(byte: u8) -> Keys {
    ServerSecret(Zeroizing::new([byte; 32])).keys().unwrap()
}

fn id(last: u8) -> ApprovalId {
    ApprovalId::parse(&format!("0190b6c0-0000-7000-8000-0000000000{last:02x}")).unwrap()
}

#[test]
fn a_consume_token_names_its_own_approval_and_no_other() {
    let keys = keys(1);
    let token = keys.consume_token(id(1));
    assert_eq!(keys.approval_of(&token), Some(id(1)));
    let other = token.replace(&id(1).to_string(), &id(2).to_string());
    assert_eq!(keys.approval_of(&other), None);
}

#[test]
fn a_token_changed_in_any_byte_is_none() {
    let keys = keys(1);
    let token = keys.consume_token(id(0xab));
    for index in 0..token.len() {
        let mut bytes = token.as_bytes().to_vec();
        bytes[index] ^= 1;
        assert_eq!(keys.approval_of(&String::from_utf8(bytes).unwrap()), None, "byte {index}");
    }
    for hostile in ["", ".", "...", "cs1...", "cs1.x.y.z", &token.to_uppercase(), &format!("{}.", *token)] {
        assert_eq!(keys.approval_of(hostile), None, "{hostile:?}");
    }
    assert_eq!(keys.approval_of(&token[..token.len() - 2]), None);
    assert_eq!(keys.approval_of(&"a.".repeat(1 << 16)), None);
}

#[test]
fn another_secret_does_not_know_the_token() {
    assert_eq!(keys(2).approval_of(&keys(1).consume_token(id(1))), None);
    assert_ne!(keys(1).stored(), keys(2).stored());
}

#[test]
fn each_purpose_has_a_key_of_its_own() {
    let keys = keys(1);
    assert_ne!(*keys.consume, *keys.page);
    assert_ne!(hex(keys.consume.as_ref()), keys.check);
    assert!(!keys.check.starts_with(&keys.id));
}

#[test]
fn a_page_token_is_for_the_very_query_it_was_made_for() {
    let keys = keys(1);
    let token = keys.page_token(b"query", "12|x.y");
    assert_eq!(keys.page_cursor(b"query", &token).as_deref(), Some("12|x.y"));
    assert_eq!(keys.page_cursor(b"quer", &token), None);
    assert_eq!(keys.page_cursor(b"", &token), None);
    for hostile in ["", ".", "zz.zz", "00.00", "\u{e9}.x", &token[1..]] {
        assert_eq!(keys.page_cursor(b"query", hostile), None, "{hostile:?}");
    }
}
