//! Several decisions at once, each on its own.

use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::proto::batch_evaluate_result::Result::{Error, Response};
use countersign::proto::*;
use tonic::Code;

async fn batch(sidecar: &Sidecar, requests: Vec<EvaluateRequest>) -> Result<Vec<BatchEvaluateResult>, tonic::Status> {
    let answer = sidecar.agent_as("tenant-a").batch_evaluate(BatchEvaluateRequest { requests }).await?;
    Ok(answer.into_inner().results)
}

fn of(invocation: Invocation) -> EvaluateRequest {
    EvaluateRequest { invocation: Some(Invocation { principal: "tenant-a".to_owned(), ..invocation }), explain: false }
}

/// An answer without what is new each time.
fn answer(result: &BatchEvaluateResult) -> EvaluateResponse {
    let Some(Response(response)) = result.result.clone() else { panic!("{result:?}") };
    assert_eq!(response.evaluation_id.len(), 36);
    EvaluateResponse { evaluation_id: String::new(), ..response }
}

#[tokio::test]
async fn a_batch_answered_in_order_and_a_bad_item_fails_alone() {
    let sidecar = Sidecar::start().await;
    let text = str::to_owned;
    let requests = vec![
        of(email()),
        of(Invocation { action: text(" "), ..email() }),
        of(fetch()),
        EvaluateRequest { invocation: None, explain: true },
        of(Invocation { connector: text("nowhere"), ..email() }),
        EvaluateRequest { invocation: Some(Invocation { principal: text("tenant-b"), ..email() }), explain: false },
        of(Invocation { arguments_json: text(r#"{"a":[{"b":1,"b":2}]}"#), ..email() }),
        EvaluateRequest { explain: true, ..of(deletion()) },
        of(email()),
    ];
    let results = batch(&sidecar, requests.clone()).await.unwrap();
    assert_eq!(results.len(), requests.len());
    // Each is what `Evaluate` answers, or fails with.
    for (request, result) in requests.into_iter().zip(&results) {
        match (sidecar.agent_as("tenant-a").evaluate(request).await, &result.result) {
            (Ok(alone), Some(Response(_))) => {
                let alone = EvaluateResponse { evaluation_id: String::new(), ..alone.into_inner() };
                assert_eq!(alone, answer(result));
            }
            (Err(alone), Some(Error(error))) => {
                assert_eq!(error.code, i32::from(alone.code()));
                assert_eq!(error.reason, reason(&alone));
                assert_eq!(error.message, alone.message());
                let info = tonic_types::StatusExt::get_details_error_info(&alone).unwrap();
                assert_eq!(error.metadata, info.metadata);
            }
            (alone, _) => panic!("{alone:?} alone, {result:?} in the batch"),
        }
    }
    let reasons: Vec<String> = results
        .iter()
        .map(|result| match result.result.as_ref().unwrap() {
            Response(response) => response.reason.clone(),
            Error(error) => format!("{:?} {}", Code::from(error.code), error.reason),
        })
        .collect();
    assert_eq!(
        reasons,
        [
            "CONFIRMATION_BY_MODE",
            "InvalidArgument INVALID_REQUEST",
            "ALLOWED",
            "InvalidArgument INVALID_REQUEST",
            "CONNECTOR_UNKNOWN",
            "PermissionDenied CALLER_OUT_OF_BOUNDS",
            "InvalidArgument INVALID_ARGUMENTS_JSON",
            "CONFIRMATION_BY_RULE",
            "CONFIRMATION_BY_MODE",
        ]
    );
    let Some(Error(error)) = &results[6].result else { panic!() };
    assert_eq!(error.metadata["pointer"], "/a/0/b");
    assert_eq!(error.metadata["problem"], "DUPLICATE_MEMBER");
    assert_eq!(answer(&results[0]), answer(&results[8]), "duplicates are each answered");
    assert!(answer(&results[0]).checks.is_empty() && !answer(&results[7]).checks.is_empty());
    assert!(sidecar.audit().await.is_empty(), "deciding changes nothing");
}

#[tokio::test]
async fn a_batch_has_one_to_a_hundred_items() {
    let sidecar = Sidecar::start().await;
    for size in [0, 101, 1_000] {
        let status = wrong(batch(&sidecar, vec![of(fetch()); size]).await, "requests");
        assert!(status.message().contains(&size.to_string()), "{status:?}");
    }
    for size in [1, 100] {
        let results = batch(&sidecar, vec![of(fetch()); size]).await.unwrap();
        assert_eq!(results.len(), size);
        let first = answer(&results[0]);
        assert_eq!(first.decision(), Decision::Allow);
        assert!(results.iter().all(|result| answer(result) == first));
        let mut ids: Vec<&String> = results
            .iter()
            .map(|result| match result.result.as_ref().unwrap() {
                Response(response) => &response.evaluation_id,
                Error(error) => panic!("{error:?}"),
            })
            .collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), size, "each evaluation has an id of its own");
    }
}

#[tokio::test]
async fn a_batch_of_a_hundred_wrong_items_answered_item_by_item() {
    let sidecar = Sidecar::start().await;
    let wrong = Invocation {
        agent: "\u{202E}".repeat(200),
        action: "\0".to_owned(),
        arguments_json: format!("{{\"{}\":[}}", "\u{202E}".repeat(1_000)),
        ..email()
    };
    let results = batch(&sidecar, vec![of(wrong); 100]).await.unwrap();
    for result in results {
        let Some(Error(error)) = result.result else { panic!() };
        assert_eq!(Code::from(error.code), Code::InvalidArgument);
        assert!(!error.message.contains('\u{202E}') && !error.message.contains('\0'), "{:?}", error.message);
    }
}
