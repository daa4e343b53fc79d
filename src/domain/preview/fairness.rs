//! No part of the arguments can push out another.

use super::tests::{object, omission, preview, read, shown_value, with};
use super::*;

/// What a person decides by, beside whatever else an agent put there.
const MAIL: [(&str, &str); 3] =
    [("recipient_email", "mallory@evil.example"), ("subject", "Re: invoice"), ("to", "dana@example.com")];

fn with_mail(junk: Vec<(String, Json)>) -> Json {
    let mail = MAIL.iter().map(|(name, value)| ((*name).to_owned(), Json::String((*value).to_owned())));
    read(&Json::Object(junk.into_iter().chain(mail).collect()).to_canonical())
}

fn shows_mail(preview: &Preview, beside: &str) {
    for (name, value) in MAIL {
        assert_eq!(shown_value(preview, name), value, "{beside}: {}", preview.json);
    }
    assert!(preview.json.len() <= 16_384);
    assert!(preview.omissions.len() <= MAX_OMISSIONS);
}

fn text(part: &str, bytes: usize) -> Json {
    Json::String(part.repeat(bytes / part.len()))
}

#[test]
fn large_attachments_do_not_hide_the_recipient() {
    let file = || Json::Object(vec![("data".to_owned(), text("QUJD", 3_000)), ("name".to_owned(), text("f", 5))]);
    let shown = Previewer::default()
        .preview(&with_mail(vec![("attachments".to_owned(), Json::Array((0..30).map(|_| file()).collect()))]));
    shows_mail(&shown, "attachments");
    // The rest of the room is not wasted, and each attachment has its part of it.
    assert!(shown.json.len() > 15_000, "{}", shown.json.len());
    let value: serde_json::Value = serde_json::from_str(&shown.json).unwrap();
    assert_eq!(value["attachments"].as_array().unwrap().len(), 30);
    assert!(value["attachments"].as_array().unwrap().iter().all(|file| file["name"] == "fffff"));
}

#[test]
fn junk_of_every_kind_does_not_hide_the_recipient() {
    let deep = |part: Json| (0..6).fold(part, |inner, _| Json::Array(vec![inner.clone(), inner]));
    for (kind, value) in [
        ("long", text("x", 600)),
        ("escaped", text("\u{202E}", 600)),
        ("quoted", text("\"\\", 600)),
        ("masked", text("password: hunter2 ", 600)),
        ("confusable", text("p\u{430}y ", 600)),
        ("list", Json::Array((0..80).map(|_| text("\u{202E}", 6)).collect())),
        ("secrets", Json::Array((0..60).map(|_| text("ghp_1234567890abcdefghij", 24)).collect())),
        ("deep", deep(text("\u{200B}", 3))),
        ("names", Json::Object((0..20).map(|at| (format!("{at}{}", "\u{202E}".repeat(40)), Json::Null)).collect())),
    ] {
        for count in [1, 30, 97] {
            let junk = (0..count).map(|at| (format!("a{at:03}"), value.clone())).collect();
            let shown = Previewer::default().preview(&with_mail(junk));
            shows_mail(&shown, kind);
        }
    }
}

#[test]
fn a_long_body_leaves_room_for_what_is_beside_it_and_uses_what_they_leave() {
    let previewer = with("max_total_bytes = 1000");
    let text = format!(
        r#"{{"body":"{}","cc":["{}","b@example.com"],"to":"a@example.com"}}"#,
        "x".repeat(4000),
        "c".repeat(900)
    );
    let shown = previewer.preview(&read(&text));
    let value: serde_json::Value = serde_json::from_str(&shown.json).unwrap();
    assert_eq!(value["to"], "a@example.com");
    assert_eq!(value["cc"][1], "b@example.com");
    assert!(shown.json.len() >= 990, "{}", shown.json);
    let body = value["body"].as_str().unwrap().len() as u64;
    let first = value["cc"][0].as_str().unwrap().len() as u64;
    assert!(body > 400 && first > 400);
    assert_eq!(
        shown.omissions,
        [
            omission("/body", OmissionKind::Truncated, 4000 - body),
            omission("/cc/0", OmissionKind::Truncated, 900 - first)
        ]
    );
}

#[test]
fn members_beyond_the_limit_are_named_and_short_scalars_stay() {
    let previewer = with("max_array_items = 2\nmax_object_members = 3");
    let shown = previewer.preview(&read(r#"{"a":[1,2,3,4,5],"b":2,"c":3,"d":4}"#));
    assert_eq!(shown.json, r#"{"b":2,"c":3,"d":4}"#);
    assert_eq!(shown.omissions, [omission("/a", OmissionKind::Elided, 1)]);
    let shown = previewer.preview(&read(r#"{"a":[1,2,3,4,5],"b":{"a":1,"b":[],"c":3,"d":"x"}}"#));
    assert_eq!(shown.json, r#"{"a":[1,2],"b":{"a":1,"c":3,"d":"x"}}"#);
    assert_eq!(shown.omissions, [omission("/a", OmissionKind::Elided, 3), omission("/b", OmissionKind::Elided, 1)]);
}

#[test]
fn members_that_cannot_all_be_named_are_counted() {
    let members: Vec<String> = (0..400).map(|at| format!("\"m{at}\":{at}")).collect();
    let shown = preview(&format!("{{{}}}", members.join(",")));
    let value: serde_json::Value = serde_json::from_str(&shown.json).unwrap();
    assert_eq!(value.as_object().unwrap().len(), 100);
    assert!(shown.omissions.len() > 50 && shown.omissions.len() <= MAX_OMISSIONS);
    assert_eq!(shown.omissions.iter().map(|omission| omission.count).sum::<u64>(), 300);
    for omission in &shown.omissions {
        assert_eq!(omission.kind, OmissionKind::Elided);
        assert_eq!(value.pointer(&omission.pointer).is_some(), omission.pointer.is_empty());
    }
}

#[test]
fn credentials_in_names_that_are_left_out_are_not_shown() {
    let members: Vec<String> = (0..4).map(|at| format!("\"ghp_{at}234567890abcdefghij\":{at}")).collect();
    let shown = with("max_object_members = 2").preview(&read(&format!("{{{}}}", members.join(","))));
    assert_eq!(shown.json, "{\"████\":null,\"████ (2)\":null}");
    assert_eq!(shown.omissions[2].pointer, "/████ (3)");
}

#[test]
fn total_size_is_bounded_and_what_is_left_out_is_counted() {
    let previewer = with("max_total_bytes = 256");
    let text = format!(r#"{{"a":"{}","b":[[{}],2,3],"c":1}}"#, "x".repeat(100), ["\"yyyyyyyyyy\""; 40].join(","));
    let shown = previewer.preview(&read(&text));
    assert!(shown.json.len() <= 256);
    let value: serde_json::Value = serde_json::from_str(&shown.json).unwrap();
    assert_eq!((&value["b"][1], &value["c"]), (&2.into(), &1.into()));
    let inner = value["b"][0].as_array().unwrap().len() as u64;
    assert!(inner > 5);
    assert_eq!(shown.omissions, [omission("/b/0", OmissionKind::Elided, 40 - inner)]);
}

#[test]
fn a_string_at_the_top_is_cut() {
    let previewer = with("max_total_bytes = 256\nmax_string_bytes = 4096");
    let shown = previewer.preview(&Json::String("x".repeat(300)));
    assert_eq!(shown.json, format!("\"{}\"", "x".repeat(254)));
    assert_eq!(shown.omissions, [omission("", OmissionKind::Truncated, 46)]);
}

#[test]
fn escapes_count_against_the_room_of_a_string() {
    let previewer = with("max_total_bytes = 256");
    for part in ["\u{202E}", "\"", "x\u{301}", "\u{1F469}\u{200D}\u{1F469}", "\u{2588}", "\n"] {
        let shown = previewer.preview(&read(&object("v", &part.repeat(400))));
        assert!(shown.json.len() <= 256 && shown.json.len() > 200, "{part:?}: {}", shown.json);
        assert!(shown.omissions.iter().any(|omission| omission.kind == OmissionKind::Truncated));
    }
}

#[test]
fn list_of_omissions_is_bounded_by_leaving_out_the_rest() {
    let previewer = with("max_array_items = 10000\nmax_total_bytes = 1048576");
    let shown = previewer.preview(&read(&format!(r#"{{"a":[{}],"b":"\u202e"}}"#, vec!["\"\\u202e\""; 1000].join(","))));
    let value: serde_json::Value = serde_json::from_str(&shown.json).unwrap();
    assert_eq!(value["b"], "\\u{202E}");
    let kept = value["a"].as_array().unwrap().len();
    assert!(kept > MAX_OMISSIONS - 10);
    assert!(shown.omissions.len() <= MAX_OMISSIONS);
    assert!(shown.omissions.contains(&omission("/a", OmissionKind::Elided, 1000 - kept as u64)));
}

#[test]
fn nested_lists_without_omissions_are_shown_whole() {
    let cell = "[[1],[2]]";
    let text = format!(r#"{{"rows":[{}]}}"#, vec![format!("[{}]", [cell; 20].join(",")); 20].join(","));
    assert_eq!(preview(&text), Preview { json: text, omissions: vec![] });
}
