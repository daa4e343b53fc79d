//! What the sidecar writes, searched for every secret that it was used with. Each test of the suite does so when its sidecar
//! ends; here is that the search finds what there is to find, and the suite's story under the finest log of everybody.

use crate::grpc::audit::everything;
use crate::grpc::harness::*;
use crate::grpc::moves::*;
use crate::secrecy::Everything;
use countersign::proto::*;

#[tokio::test]
async fn a_secret_that_is_told_is_found_where_it_was_told() {
    let sidecar = Sidecar::start().await;
    assert_eq!(sidecar.told_secrets(), [].into());
    let (_, mine) = sidecar.ask(email()).await;
    let code = mine.rsplit_once('.').unwrap().1;
    // None that another test has as well, and would find.
    let planted = format!("cst_planted_{}", new_attempt());
    sidecar.is_secret("a planted token", &planted);
    tracing::info!(target: "countersign", header = format!("Bearer {planted}"), "planted");
    tracing::trace!(target: "countersign", code, "planted");
    // An agent that puts its token into what a person is shown.
    let note = RequestApprovalRequest { agent_note: format!("use {mine}"), ..asking(in_conversation("note")) };
    sidecar.request_as("runtime", note).await.unwrap();
    sidecar.is_secret("what was asked", "GMAIL_SEND_EMAIL");
    let found: Vec<String> = sidecar.told_secrets().into_iter().collect();
    let has = |what: &str, place: &str| found.iter().any(|found| found.starts_with(what) && found.contains(place));
    assert!(has("a planted token", "the log"), "{found:?}");
    assert!(has("the code of a consume token", "the log"), "{found:?}");
    assert!(has("a consume token", "the database"), "{found:?}");
    assert!(has("what was asked", "the database"), "{found:?}");
    assert!(!has("the bearer token", "") && !has("the server secret", ""), "{found:?}");
    assert!(found.iter().all(|found| !found.contains(code) && !found.contains(&planted)), "they are not told again");
    sidecar.secrets_were_planted();
}

#[tokio::test]
async fn the_finest_log_of_everybody_has_no_secret() {
    let _everything = Everything::begin();
    let sidecar = Sidecar::start().await;
    let (tokens, _) = everything(&sidecar).await;
    for told in tokens {
        sidecar.is_secret("what the story keeps to itself", told);
    }
    let arguments = r#"{"to":"a@example.com","password":"correct horse battery staple"}"#;
    sidecar.is_secret("a password among the arguments", "correct horse battery staple");
    let (asked, token) =
        sidecar.approved(Invocation { arguments_json: arguments.to_owned(), ..in_conversation("masked") }).await;
    assert!(sidecar.arguments_for("olga", &asked.id).await.unwrap().arguments_json.contains("battery"));
    sidecar.consume(&token, email()).await.unwrap_err();
    sidecar.agent_as("stranger-with-a-token").evaluate(EvaluateRequest::default()).await.unwrap_err();
}
