//! The keys of one secret.

use super::*;
use crate::domain::testing::moved;
use proptest::prelude::*;
use uuid::Uuid;

proptest! {
    #[test]
    fn page_tokens_are_of_one_query_and_cursor_and_of_no_other((one, other) in moved(2)) {
        let keys = keys(1);
        let of = |fields: &[String]| keys.page_token(fields[0].as_bytes(), &fields[1]);
        let code = |token: &str| token.rsplit_once('.').unwrap().1.to_owned();
        prop_assert_eq!(of(&one) == of(&other), one == other);
        prop_assert_eq!(code(&of(&one)) == code(&of(&other)), one == other, "also what signs it");
        prop_assert_eq!(keys.page_cursor(one[0].as_bytes(), &of(&one)), Some(one[1].clone()));
        prop_assert_eq!(keys.page_cursor(one[0].as_bytes(), &of(&other)).is_some(), one[0] == other[0]);
    }

    #[test]
    fn consume_tokens_are_of_one_approval_and_of_no_other(one in any::<u128>(), bit in 0..129_u32) {
        let keys = keys(1);
        let other = if bit == 128 { one } else { one ^ (1 << bit) };
        let of = |number| ApprovalId::new(Uuid::from_u128(number));
        let (token, another) = (keys.consume_token(of(one)), keys.consume_token(of(other)));
        prop_assert_eq!(token == another, one == other);
        prop_assert_eq!(keys.approval_of(&token), Some(of(one)));
        // The id of one with the code of the other.
        let (named, _) = token.rsplit_once('.').unwrap();
        let (_, code) = another.rsplit_once('.').unwrap();
        prop_assert_eq!(keys.approval_of(&format!("{named}.{code}")).is_some(), one == other);
    }
}

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
