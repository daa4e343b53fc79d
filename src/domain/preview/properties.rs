//! What holds for the preview of any arguments.

use proptest::prelude::*;

use super::tests::{read, with};
use super::*;
use crate::domain::json::tests::any_json;
use crate::domain::text::is_hidden;

proptest! {
    #[test]
    fn preview_is_json_within_its_bounds_and_hides_nothing(json in any_json(), total in 256..2000_usize, depth in 1..6_usize) {
        let previewer = with(&format!(
            "max_total_bytes = {total}\nmax_depth = {depth}\nmax_string_graphemes = 16\nmax_string_bytes = 64\nmax_array_items = 4\nmax_object_members = 4"
        ));
        let arguments = Json::Object(vec![("v".to_owned(), json)]);
        let preview = previewer.preview(&arguments);
        prop_assert!(preview.json.len() <= total);
        prop_assert!(preview.omissions.len() <= MAX_OMISSIONS);
        prop_assert!(!preview.json.contains(is_hidden), "{}", preview.json);
        // Canonical but for the order of members, so: no duplicates, one object, readable by everyone.
        let value: serde_json::Value = serde_json::from_str(&preview.json).unwrap();
        read(&preview.json);
        for omission in &preview.omissions {
            // What is left out at the top is named by the place where it would be.
            let at_the_top = omission.pointer.matches('/').count() == 1;
            let named = omission.kind == OmissionKind::Elided && omission.count == 1 && at_the_top;
            prop_assert!(named || value.pointer(&omission.pointer).is_some(), "{} of {}", omission.pointer, preview.json);
            prop_assert!(!omission.pointer.contains(is_hidden));
            prop_assert_eq!(omission.count == 0, omission.kind == OmissionKind::Masked);
        }
        prop_assert_eq!(&previewer.preview(&arguments), &preview);
    }

    #[test]
    fn preview_without_omissions_is_the_whole(json in any_json()) {
        // Read back, so that members stand in canonical order.
        let arguments = read(&Json::Object(vec![("v".to_owned(), json)]).to_canonical());
        let preview = Previewer::default().preview(&arguments);
        if preview.omissions.is_empty() {
            prop_assert_eq!(preview.json, arguments.to_canonical());
        }
    }

    #[test]
    fn what_is_masked_leaves_no_trace(secret in secret(), place in 0..14_usize, before in "[a-z :={\"'/?&\n]{0,12}", around in any_json()) {
        let text = |text: String| Json::String(text);
        let (name, value) = match place {
            0 => ("password".to_owned(), text(secret.clone())),
            1 => ("X-Api_KEY".to_owned(), Json::Array(vec![text(secret.clone()), text(secret.clone())])),
            2 => ("userPin".to_owned(), Json::Object(vec![(secret.clone(), around.clone())])),
            3 => ("v".to_owned(), pair("name", "Authorization", "value", &secret)),
            4 => ("v".to_owned(), pair("key", "session cookie", "value", &secret)),
            5 => ("v".to_owned(), text(format!("{before} ghp_{secret}"))),
            6 => ("v".to_owned(), text(format!("{before} AKIA{secret} {before}"))),
            7 => ("v".to_owned(), text(format!("{before} Bearer {secret}"))),
            8 => ("v".to_owned(), text(format!("{before} https://u:{secret}@host/{before}"))),
            9 => ("v".to_owned(), text(format!("{before} https://host/?a=b&access_token={secret}&b={before}"))),
            10 => ("v".to_owned(), text(format!("{before}\n-----BEGIN PRIVATE KEY-----\n{secret}\n{secret}\n-----END"))),
            11 => ("v".to_owned(), text(format!("{before} eyJhbGciOiJIUzI1NiJ9.{secret}.{secret}"))),
            12 => (format!("glpat-{secret}"), text(before)),
            _ => ("v".to_owned(), text(format!("{before}\ncurl -H \"Authorization: Custom {secret} {secret}\" x"))),
        };
        let member = Json::Object(vec![(name, value)]);
        let arguments = Json::Object(vec![("a".to_owned(), around), ("b".to_owned(), Json::Array(vec![member]))]);
        let preview = Previewer::default().preview(&arguments);
        // Without the omissions' own numbers and the rest of the arguments there is no other place for it.
        let traces = format!("{} {:?}", preview.json, preview.omissions);
        prop_assert!(!traces.contains(&secret), "{traces}");
        prop_assert!(preview.omissions.iter().any(|omission| omission.kind == OmissionKind::Masked), "{traces}");
    }

    #[test]
    fn what_is_masked_does_not_change_the_preview(one in any_json(), other in any_json()) {
        let preview = |json| Previewer::default().preview(&Json::Object(vec![("a".to_owned(), Json::Null), ("token".to_owned(), json)]));
        prop_assert_eq!(preview(one), preview(other));
    }
}

/// Long enough that nothing else contains it by chance; letters and digits, as most keys are made of.
fn secret() -> impl Strategy<Value = String> {
    "[A-Z][A-Z0-9]{18,30}"
}

fn pair(label: &str, name: &str, member: &str, secret: &str) -> Json {
    Json::Object(vec![
        (label.to_owned(), Json::String(name.to_owned())),
        (member.to_owned(), Json::String(secret.to_owned())),
    ])
}
