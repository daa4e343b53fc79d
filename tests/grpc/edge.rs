//! What the transport refuses by itself comes with a code and a reason like everything else.

use crate::grpc::harness::*;
use countersign::proto::*;
use std::time::Duration;
use tonic::{Code, Request};

#[tokio::test]
async fn a_message_that_is_too_large_is_exhausted_and_not_out_of_range() {
    let sidecar = Sidecar::start().await;
    let huge = Invocation { arguments_json: format!("{{\"a\":\"{}\"}}", "x".repeat(5 << 20)), ..email() };
    let status = refused(sidecar.consume("", huge).await, Code::ResourceExhausted, "MESSAGE_TOO_LARGE");
    assert_eq!(told(&status, "limit"), "4194304");
}

#[tokio::test]
async fn bytes_that_are_no_message_are_the_callers_fault() {
    let sidecar = Sidecar::start().await;
    let mut grpc = tonic::client::Grpc::new(sidecar.channel());
    grpc.ready().await.unwrap();
    // An operator's message has a string where this one has invalid UTF-8 (field 1, one byte).
    let mut request = Request::new(Bytes(vec![0x0a, 0x01, 0xff]));
    let token = format!("Bearer {}", token("ops"));
    request.metadata_mut().insert("authorization", token.parse().unwrap());
    let path = "/countersign.v1.OperatorService/ListAuditRecords".parse().unwrap();
    let answer = grpc.unary(request, path, tonic_prost::ProstCodec::<Bytes, ListAuditRecordsResponse>::default()).await;
    refused(answer, Code::InvalidArgument, "INVALID_MESSAGE");
}

#[tokio::test]
async fn what_was_begun_is_whole_though_the_deadline_passes() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    let attempt = new_attempt();
    let mut seen = 0;
    for micros in [1_u64, 1, 1, 500, 1_000, 2_000] {
        let mut request = Request::new(ConsumeRequest {
            consume_token: token.clone(),
            attempt_id: attempt.clone(),
            invocation: Some(email()),
            retry_of: String::new(),
        });
        request.set_timeout(Duration::from_micros(micros));
        if let Err(status) = sidecar.agent().consume(request).await {
            // This client gives up by itself too, under a code of its own.
            assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
            seen += 1;
        }
    }
    assert!(seen > 0, "no deadline passed, so this showed nothing");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let replay = sidecar.attempt(&token, &attempt, email()).await.unwrap();
    assert!(replay.replayed, "the lost answer is asked for again");
    let consumed = sidecar.audit_of(&approval.id).await.into_iter().filter(|r| r.kind == "approval.consumed").count();
    assert_eq!(consumed, 1);
}

/// A message of any bytes.
#[derive(Clone, Default)]
pub struct Bytes(Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Bytes(..)")
    }
}

impl prost::Message for Bytes {
    fn encode_raw(&self, buffer: &mut impl prost::bytes::BufMut) {
        buffer.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: prost::encoding::WireType,
        buffer: &mut impl prost::bytes::Buf,
        context: prost::encoding::DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        prost::encoding::skip_field(wire_type, tag, buffer, context)
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
