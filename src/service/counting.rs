//! Counts one call, from its head to its end: the code it ended with, how long it took, why it was refused. A call whose client
//! went away before there was an answer ends as `CANCELLED`; a stream ends with its trailers, or when it is dropped.

use crate::metrics::{MethodId, Metrics};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Response};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// A call that is counted when it ends.
pub(super) struct Counted {
    metrics: Arc<Metrics>,
    method: MethodId,
    begun: Instant,
    /// What it ends as if nothing more is heard of it.
    code: Code,
    open: bool,
}

impl Counted {
    /// A call of the method at this path begins.
    pub(super) fn begin(metrics: &Arc<Metrics>, path: &str) -> Self {
        let method = metrics.calls.method(path);
        Self { metrics: Arc::clone(metrics), method, begun: Instant::now(), code: Code::Cancelled, open: false }
    }

    /// The name of its method: one of a few, whatever the path was.
    pub(super) fn name(&self) -> &str {
        self.metrics.calls.name(self.method)
    }

    /// Its answer, with the status where that stands in the head.
    pub(super) fn answered(mut self, response: Response<Body>, status: Option<&Status>) -> Response<Body> {
        if let Some(status) = status {
            self.refused(status);
            return response;
        }
        if self.metrics.calls.streams(self.method) {
            self.open = true;
            self.metrics.calls.stream(self.method, 1);
            return response.map(|body| Body::new(CountedStream { body, counted: Some(self) }));
        }
        // One message and its trailers follow, which say nothing else.
        self.code = Code::Ok;
        response
    }

    fn refused(&mut self, status: &Status) {
        self.code = status.code();
        if self.code != Code::Ok
            && let Some(info) = status.get_details_error_info()
        {
            self.metrics.calls.refused(&info.reason);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let took = self.begun.elapsed();
        if self.open {
            self.metrics.calls.stream(self.method, -1);
        }
        self.metrics.calls.ended(self.method, i32::from(self.code), took);
        tracing::debug!(
            method = self.name(),
            code = ?self.code,
            elapsed_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            "a call ended"
        );
    }
}

/// The body of a stream, which ends the call when it ends.
struct CountedStream {
    body: Body,
    counted: Option<Counted>,
}

impl CountedStream {
    fn ended(&mut self, trailers: Option<&HeaderMap>) {
        let Some(mut counted) = self.counted.take() else { return };
        match trailers.and_then(Status::from_header_map) {
            Some(status) => counted.refused(&status),
            // A stream without a status is one that broke.
            None => counted.code = Code::Unknown,
        }
    }
}

impl http_body::Body for CountedStream {
    type Data = <Body as http_body::Body>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Self::Data>, Status>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.ended(Some(trailers));
                }
            }
            Some(Err(_)) | None => self.ended(None),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
