use std::time::Duration;

use super::*;
use crate::domain::arguments::Arguments;
use crate::domain::canonical::MAX_BYTES;

#[test]
fn ordinary_arguments_are_shown_whole() {
    let text = r#"{"body":"Hello,\n\tDana: 5 € for Zoë","count":3,"flags":[true,null],"recipients":[{"email":"a@example.com"}]}"#;
    assert_eq!(preview(text), Preview { json: text.to_owned(), omissions: vec![] });
    assert_eq!(preview(""), Preview { json: "{}".to_owned(), omissions: vec![] });
}

#[test]
fn sensitive_names_are_masked_however_they_are_written() {
    for name in [
        "password",
        "Password",
        "user_password",
        "PASSWORD2",
        "new-password",
        "pass_word",
        "p.a.s.s.w.d",
        "passphrase",
        "client_secret",
        "clientSecret",
        "SECRETS",
        "credentials",
        "Authorization",
        "proxyAuthorization",
        "Set-Cookie",
        "api_key",
        "apiKey",
        "X-API-Key",
        "APIKEY",
        "private key",
        "sessionKey",
        "aws_access_key_id",
        "access_token",
        "accesstoken",
        "token",
        "tokens",
        "githubToken",
        "TOKEN_2",
        "csrf-token",
        "JWT",
        "idJWT",
        "pin",
        "PINs",
        "userPINs",
        "cardPin",
        "otp",
        "otpCode",
        "SSN",
        "cvv",
        "db_pwd",
        "bearer",
        "secretary_password",
        "next_page_token_secret",
        "max_tokens_token",
        "pass",
        "db_pass",
        "dbPass",
        "pw",
        "passkey",
        "github_pat",
        "sig",
        "X-Hub-Signature-256",
        "sas",
        "sasUrl",
        "mfa_code",
        "2fa",
        "user2FACode",
        "tan",
        "email_token",
        "user_auth",
        "ſecret\u{200B}_пароль_password",
        "pass\u{200B}word",
        "ＰＡＳＳ password",
    ] {
        for value in [r#""hunter2""#, "424242", "true", "null", r#"{"hunter2":["hunter2"]}"#, "[]"] {
            let shown = preview(&format!("{{{}:{value}}}", serde_json::to_string(name).unwrap()));
            assert!(shown.json.ends_with(":null}"), "{name}: {}", shown.json);
            assert_eq!((shown.omissions[0].kind, shown.omissions[0].count), (OmissionKind::Masked, 0), "{name}");
        }
    }
}

#[test]
fn names_that_only_resemble_sensitive_ones_are_shown() {
    for name in [
        "secretary",
        "secretary_email",
        "max_tokens",
        "maxTokens",
        "max_output_tokens",
        "prompt_tokens",
        "page_token",
        "nextPageToken",
        "syncToken",
        "pinned",
        "spin",
        "pinterest",
        "tokenizer",
        "tokenised",
        "bearers_pinion",
        "author",
        "authored_by",
        "keyboard",
        "key",
        "monkey",
        "cookbook",
        "opinion",
        "session",
        "passenger",
        "compass",
        "to",
        "pass_count",
        "passes",
        "boarding_pass",
        "passenger_name",
        "path",
        "patch",
        "sa",
        "tanner",
        "signal",
        "email_signature",
        "bearer_email",
        "bearerEmail",
        "pin_to",
        "auth_user",
        "token_recipient",
        "token_address",
        "12fa",
        "2fast",
    ] {
        let text = format!("{{\"{name}\":\"shown\"}}");
        // `bearers` is a plural; the test keeps one name that is masked to show that it can fail.
        let want = if name.starts_with("bearers") { format!("{{\"{name}\":null}}") } else { text.clone() };
        assert_eq!(preview(&text).json, want);
    }
}

#[test]
fn what_a_sensitive_label_names_is_masked() {
    for (text, want) in [
        (r#"{"name":"Authorization","value":"hunter2"}"#, r#"{"name":"Authorization","value":null}"#),
        (r#"{"Key":"x-api-key","Value":"hunter2"}"#, r#"{"Key":"x-api-key","Value":null}"#),
        (r#"{"header":"Cookie","value":["hunter2"]}"#, r#"{"header":"Cookie","value":null}"#),
        (r#"{"id":"pin","values":["hunter2"]}"#, r#"{"id":"pin","values":null}"#),
        (r##"{"selector":"#password","text":"hunter2"}"##, r##"{"selector":"#password","text":null}"##),
        (r#"{"name":"Accept","value":"*/*"}"#, r#"{"name":"Accept","value":"*/*"}"#),
        (r#"{"name":"password.md","text":"shown"}"#, r#"{"name":"password.md","text":"shown"}"#),
        (r#"{"h":["Authorization","hunter2"]}"#, r#"{"h":["Authorization",null]}"#),
        (r#"{"h":[["token","hunter2"],["a","b"]]}"#, r#"{"h":[["token",null],["a","b"]]}"#),
        (r#"{"argv":["login","--password","hunter2","-v"]}"#, r#"{"argv":["login","--password",null,"-v"]}"#),
    ] {
        assert_eq!(preview(text).json, want);
    }
}

#[test]
fn credentials_are_masked_wherever_they_stand_in_a_string() {
    for (text, want) in [
        ("see AKIAIOSFODNN7EXAMPLE.", "see ████"),
        ("ghp_1234567890abcdefghijABCDEFGHIJ123456 is it", "████ is it"),
        ("a github_pat_11ABCDEFG0abcdefghijkl_xyz b", "a ████ b"),
        ("use glpat-ABCdefGHIjklMNOpqrs", "use ████"),
        ("xoxb-123456789012-abcdefghij, then", "████, then"),
        ("key=sk-proj-abcdefghijklmnop", "key=████"),
        ("it (sk_live_abcdefgh)", "it (████)"),
        ("AIzaSyA1234567890abcdefghijklmnopqrstuv x", "████ x"),
        ("npm_abcdefghijklmnopqrstuvwxyz0123456789 x", "████ x"),
        ("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH x", "████ x"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl end", "jwt ████ end"),
        ("curl -H 'Authorization: Bearer abc.def' https://x.test", "curl -H 'Authorization: ████' https://x.test"),
        ("Authorization: token abc def\nAccept: */*", "Authorization: ████\nAccept: */*"),
        ("Cookie: a=\"b\"; c=d\r\nHost: x", "Cookie: ████\\u{D}\nHost: x"),
        ("he said bearer abcDEF123 and", "he said bearer ████ and"),
        ("Bearer hunter", "Bearer ████"),
        ("Basic dXNlcjpodW50ZXIy and", "Basic ████ and"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nbye", "████\nbye"),
        ("x -----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\nnever ends", "x ████\nnever ends"),
        ("k -----BEGIN PRIVATE KEY-----\\nMIIE\\nabc=\\n-----END PRIVATE KEY----- z", "k ████ z"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\nbye",
            "████\nProc-Type: 4,ENCRYPTED\n\n████\nbye",
        ),
        ("db_pass=hunter2 run", "db_pass=████ run"),
        ("pass: hunter2\nuser: bob", "pass: ████\nuser: bob"),
        ("pw=hunter2;a=b", "pw=████;a=b"),
        ("2fa: 123456 ok", "2fa: ████ ok"),
        ("curl -u bob:hunter2 https://x.test", "curl -u bob:████ https://x.test"),
        ("https://x.test/?X-Amz-Signature=hunter2&b=2", "https://x.test/?X-Amz-Signature=████&b=2"),
        (
            "post to https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXX now",
            "post to https://hooks.slack.com/services/████ now",
        ),
        ("https://ghp_1234567890abcdefghij@github.com/a", "https://████@github.com/a"),
        ("postgres://app:hunter2@db.test/main", "postgres://app:████@db.test/main"),
        ("https://u:hu:nt@er2@x.test/", "https://u:████@x.test/"),
        ("postgres://app:hun/ter2@db.test/main", "postgres://app:████@db.test/main"),
        ("https://abcdefghijklmnopqrstuv@x.test/", "https://████@x.test/"),
        ("https://x.test/cb?state=1&access_token=hunter2&b=2", "https://x.test/cb?state=1&access_token=████&b=2"),
        ("https://x.test/#id_token=hunter2", "https://x.test/#id_token=████"),
        ("https://x.test/?key=hunter2&sig=hunter2", "https://x.test/?key=████&sig=████"),
        ("Server=x;Password=hunter2;Database=y", "Server=x;Password=████;Database=y"),
        ("export DB_PASSWORD='hunter2 hunter2' && run", "export DB_PASSWORD='████' && run"),
        ("login --password hunter2 --user bob", "login --password ████ --user bob"),
        ("API key: hunter2", "API key: ████"),
        ("{\"password\": \"hun\\\"ter2\", \"a\": 1}", "{\"password\": \"████\", \"a\": 1}"),
        ("{\\\"password\\\":\\\"hun\\\\\\\"ter2\\\",\\\"a\\\":1}", "{\\\"password\\\":\\\"████\\\",\\\"a\\\":1}"),
        ("<password>hunter2</password>", "<password>████</password>"),
        ("{\"token\": {\"a\": [\"hunter2\"]}, \"b\": 1}", "{\"token\": ████, \"b\": 1}"),
        ("password: hunter2\nuser: bob", "password: ████\nuser: bob"),
        ("config['api_key'] = \"hunter2\"", "config['api_key'] = \"████\""),
    ] {
        let shown = preview(&object("v", text));
        assert_eq!(shown_value(&shown, "v"), *want, "{text}");
        assert_eq!(shown.omissions[0], omission("/v", OmissionKind::Masked, 0), "{text}");
    }
}

#[test]
fn a_string_that_is_a_credential_shows_not_even_that_it_is_a_string() {
    for text in [
        "AKIAIOSFODNN7EXAMPLE",
        " ghp_1234567890abcdefghijABCDEFGHIJ123456\n",
        "\"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl\"",
        "-----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC PRIVATE KEY-----\n",
    ] {
        let shown = preview(&object("v", text));
        assert_eq!(shown.json, "{\"v\":null}", "{text}");
        assert_eq!(shown.omissions, [omission("/v", OmissionKind::Masked, 0)]);
    }
}

#[test]
fn prose_that_only_resembles_credentials_is_shown() {
    for text in [
        "Please reset your password today.",
        "the bearer of good news",
        "Bearer bonds are rare; the Bearer certificates too",
        "Basic plan, basic authentication",
        "risk-assessment-for-the-next-quarter",
        "npm_config_cache and hf_model_name",
        "https://example.com:8080/a@b?x=1&page_token=abc",
        "ssh://git@github.com/a/b",
        "see http://[::1]:80/@x",
        "meeting at 12:30, ratio 3:1, a=b",
        "eyJub3QiOiJhIGp3dCJ9",
        "mailto:a@example.com",
        "-----",
        "-----BEGIN pay mallory@evil.example",
        "-----BEGIN-----\npay mallory",
        "to sk-aaaaaaaaaaaaaaaaaaaa@evil.example now",
        "ghp_1234567890abcdefghij@evil.example",
        "sort -u a:b",
        "Pat: see you at 5; Signature: Kim",
        "https://hooks.slack.com/docs",
        "const monkey = 'x'",
        "<b>bold</b> a => b",
    ] {
        let shown = preview(&object("v", text));
        assert_eq!(shown.omissions, [], "{text}: {}", shown.json);
        assert_eq!(shown_value(&shown, "v"), text);
    }
}

#[test]
fn masks_are_no_hiding_place() {
    for (text, want) in [
        (
            "-----BEGIN A KEY-----\npay mallory@evil.example\n-----END A KEY-----",
            "████\npay mallory@evil.example\n████",
        ),
        ("-----BEGIN A KEY-----\npay 9 to mallory", "████\npay 9 to mallory"),
        ("Cookie: a=b; then pay mallory@evil.example", "Cookie: ████ then pay mallory@evil.example"),
        ("Authorization: Bearer x y then pay mallory", "Authorization: ████ then pay mallory"),
        ("password: x then pay mallory", "password: ████ then pay mallory"),
    ] {
        assert_eq!(shown_value(&preview(&object("v", text)), "v"), *want, "{text}");
    }
}

#[test]
fn a_name_that_is_a_credential_is_masked_with_what_it_holds() {
    let shown = preview(r#"{"ghp_1234567890abcdefghij":"x","ghp_2234567890abcdefghij":["y"]}"#);
    assert_eq!(shown.json, "{\"████\":null,\"████ (2)\":null}");
    assert_eq!(
        shown.omissions,
        [omission("/████", OmissionKind::Masked, 0), omission("/████ (2)", OmissionKind::Masked, 0)]
    );
}

#[test]
fn arguments_cannot_imitate_the_mask() {
    let shown = preview(r#"{"████":"████"}"#);
    assert_eq!(shown.json, r#"{"\\u{2588}\\u{2588}\\u{2588}\\u{2588}":"\\u{2588}\\u{2588}\\u{2588}\\u{2588}"}"#);
    assert_eq!(
        shown.omissions.iter().map(|omission| (omission.kind, omission.count)).collect::<Vec<_>>(),
        [(OmissionKind::Neutralised, 8)]
    );
}

#[test]
fn strings_are_cut_between_graphemes_and_the_rest_is_counted() {
    let previewer = with("max_string_graphemes = 16");
    let family = "e\u{301}".repeat(20);
    let shown = previewer.preview(&read(&object("v", &family)));
    assert_eq!(shown_value(&shown, "v"), "e\u{301}".repeat(16));
    assert_eq!(shown.omissions, [omission("/v", OmissionKind::Truncated, 8)]);

    let previewer = with("max_string_bytes = 64");
    let shown = previewer.preview(&read(&object("v", &"字".repeat(22))));
    assert!(shown_value(&shown, "v").chars().all(|character| character == '字'));
    assert_eq!(shown_value(&shown, "v").chars().count() as u64 + shown.omissions[0].count, 22);
    assert_eq!(shown_value(&previewer.preview(&read(&object("v", &"a".repeat(64)))), "v"), "a".repeat(64));
    // One character with marks without end: nothing of it fits.
    let shown = previewer.preview(&read(&object("v", &format!("e{}", "\u{301}".repeat(200)))));
    assert_eq!(shown.json, r#"{"v":""}"#);
    assert_eq!(shown.omissions, [omission("/v", OmissionKind::Truncated, 201)]);
}

#[test]
fn a_credential_across_the_cut_is_masked_before_it() {
    let previewer = with("max_string_graphemes = 16");
    let shown = previewer.preview(&read(&object("v", "0123456789 ghp_1234567890abcdefghij")));
    assert_eq!(shown_value(&shown, "v"), "0123456789 ████");
}

#[test]
fn depth_counts_objects_and_arrays_alone() {
    let previewer = with("max_depth = 3");
    let shown = previewer.preview(&read(r#"{"to":[{"email":"a","more":[1,2],"none":[],"x":{"y":1}}]}"#));
    assert_eq!(shown.json, r#"{"to":[{"email":"a","more":null,"none":[],"x":null}]}"#);
    assert_eq!(
        shown.omissions,
        [omission("/to/0/more", OmissionKind::Nested, 2), omission("/to/0/x", OmissionKind::Nested, 1)]
    );
}

#[test]
fn nothing_hidden_is_shown_in_values_or_names() {
    let shown = preview("{\"a\\u202e\\n\":\"x\\u200by\\n\\u0000\",\"p\u{430}y\":\"p\u{430}ypal p\u{430}y\"}");
    assert_eq!(
        shown.json,
        "{\"a\\\\u{202E}\\\\u{A}\":\"x\\\\u{200B}y\\n\\\\u{0}\",\"p\u{430}y\":\"p\u{430}ypal p\u{430}y\"}"
    );
    assert_eq!(
        shown.omissions,
        [
            omission("/a\\u{202E}\\u{A}", OmissionKind::Neutralised, 4),
            omission("/p\u{430}y", OmissionKind::Confusable, 3)
        ]
    );
}

#[test]
fn names_are_cut_and_stay_apart() {
    let long = "n".repeat(300);
    let shown = preview(&format!(r#"{{"a/b~c":"\u202e","{long}1":1,"{long}2":2}}"#));
    let cut = "n".repeat(64);
    assert_eq!(shown.json, format!(r#"{{"a/b~c":"\\u{{202E}}","{cut}":1,"{cut} (2)":2}}"#));
    assert_eq!(
        shown.omissions,
        [
            omission("/a~1b~0c", OmissionKind::Neutralised, 1),
            omission(&format!("/{cut}"), OmissionKind::Truncated, 237),
            omission(&format!("/{cut} (2)"), OmissionKind::Truncated, 237)
        ]
    );
    // A name that is like the one given for another: each stays unique.
    let shown = preview(&format!(r#"{{"{cut} (2)":0,"{long}1":1,"{long}2":2,"{long}3":3}}"#));
    let value: serde_json::Value = serde_json::from_str(&shown.json).unwrap();
    assert_eq!(value.as_object().unwrap().len(), 4, "{}", shown.json);
}

#[test]
fn hostile_arguments_take_little_time() {
    let size = 60_000;
    let fill = |part: &str| part.repeat(size / part.len());
    let strings = [
        "-----BEGIN ",
        "-----BEGIN A-----",
        "-----BEGIN A-----\na b\n",
        "-----BEGIN A-----\na b\n-----END A-----",
        "-----END A",
        "Cookie: ",
        "Cookie: a=b ",
        "curl -u a:b ",
        "2fa: ",
        "hooks.slack.com/services/",
        "eyJ-",
        "eyJ",
        "eyJa.",
        "sk-",
        "ghp_",
        "://",
        "://a:b/",
        "://a@",
        "@",
        "a:b@",
        "password=\"",
        "password='",
        "password=\\\\'",
        "password:",
        "=",
        ":",
        "a=",
        "Bearer ",
        "basic ",
        "--password ",
        "api key: ",
        "\u{202E}",
        "\u{301}",
        "\u{1F1E6}",
        "\u{200D}",
        "👩‍👩‍👧",
        "\u{430}a ",
        "█",
        "x\u{301}",
        "\\",
        "\"",
        "token token token:",
    ];
    // Of this thread alone, whatever else the machine does; a scanner that looks twice at each place would need minutes.
    for part in strings {
        let start = time_of_this_thread();
        let shown = Previewer::default().preview(&Json::Object(vec![
            ("v".to_owned(), Json::String(fill(part))),
            (fill(part), Json::String("x".to_owned())),
        ]));
        let took = time_of_this_thread() - start;
        assert!(took < Duration::from_secs(20), "{part:?} took {took:?}");
        assert!(shown.json.len() <= PreviewConfig::default().max_total_bytes);
    }
    let mut deep = Json::Null;
    for _ in 0..63 {
        deep = Json::Object(
            (0..60).map(|at| (format!("token{at}"), Json::Null)).chain([("z".to_owned(), deep)]).collect(),
        );
    }
    assert!(with("max_depth = 64\nmax_total_bytes = 1048576").preview(&deep).omissions.len() <= MAX_OMISSIONS + 64);
}

#[test]
fn configured_words_are_added_to_the_built_in_ones() {
    let previewer = with("sensitive_words = ['iban']\nsensitive_short_words = ['sid']\nnot_sensitive = ['token_name']");
    let text = r#"{"customerIBAN2":1,"password":1,"side":1,"token":1,"token_name":1,"user_sids":1}"#;
    assert_eq!(
        previewer.preview(&read(text)).json,
        r#"{"customerIBAN2":null,"password":null,"side":1,"token":null,"token_name":1,"user_sids":null}"#
    );
}

#[test]
fn configuration_out_of_bounds_is_refused_with_every_problem_named() {
    assert_eq!(PreviewConfig::default().validate(), []);
    let config: PreviewConfig = toml::from_str(
        "max_depth = 65\nmax_array_items = 0\nsensitive_words = ['ab', '12']\nsensitive_short_words = ['two words', 'x']",
    )
    .unwrap();
    let problems = Previewer::new(config).unwrap_err();
    let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        text,
        [
            "max_array_items: 0 is not within 1 and 10000",
            "max_depth: 65 is not within 1 and 64",
            "sensitive_words: \"ab\": at least three letters are needed",
            "sensitive_words: \"12\": at least three letters are needed",
            "sensitive_short_words: \"two words\": one word of at least two letters is needed",
            "sensitive_short_words: \"x\": one word of at least two letters is needed",
        ]
    );
}

#[test]
fn kinds_are_stored_by_name() {
    for kind in OmissionKind::ALL {
        assert_eq!(OmissionKind::parse(kind.as_str()), Some(kind));
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
    }
    assert_eq!(OmissionKind::parse("masked"), None);
}

#[test]
fn debug_shows_no_content() {
    assert_eq!(format!("{:?}", preview(r#"{"to":"hunter2"}"#)), "Preview(16 bytes, 0 omissions)");
}

pub(super) fn read(text: &str) -> Json {
    Arguments::parse(text, MAX_BYTES).unwrap().value().clone()
}

pub(super) fn with(config: &str) -> Previewer {
    Previewer::new(toml::from_str(config).unwrap()).unwrap()
}

pub(super) fn preview(text: &str) -> Preview {
    Previewer::default().preview(&read(text))
}

pub(super) fn object(name: &str, text: &str) -> String {
    Json::Object(vec![(name.to_owned(), Json::String(text.to_owned()))]).to_canonical()
}

pub(super) fn shown_value(preview: &Preview, name: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(&preview.json).unwrap();
    value[name].as_str().unwrap().to_owned()
}

pub(super) fn omission(pointer: &str, kind: OmissionKind, count: u64) -> Omission {
    Omission { field: None, pointer: pointer.to_owned(), kind, count }
}

/// How long this thread has been running, as the system counts it.
fn time_of_this_thread() -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(statistics.split_whitespace().next().unwrap().parse().unwrap())
}
