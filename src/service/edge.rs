//! What the transport refuses by itself, said as everything else is: a deadline that passed, a message that cannot be read, one
//! that is too large, a method that no service has, a stream that ends with the process. Without this their codes would be the transport's (`CANCELLED`, `INTERNAL`, `OUT_OF_RANGE`), and a client
//! would find no reason in them.

use super::counting::Counted;
use super::{errors, trace};
use crate::metrics::Metrics;
use http_body::Frame;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::{Code, Status};
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument as _;

/// The transport enforces the same deadline; this much earlier it is answered with its own code. Timers count milliseconds.
const BEFORE_THE_TRANSPORT: Duration = Duration::from_millis(1);

/// No call takes longer to be received and answered, or, if it streams, to begin: several times what the store may take.
const LONGEST_CALL: Duration = Duration::from_secs(60);

/// Where our own methods are.
const OURS: &str = "/countersign.v1.";
/// Those of them that stream. All others answer once.
pub(super) const STREAMS: [&str; 3] = [
    "/countersign.v1.AgentService/WatchApproval",
    "/countersign.v1.ApproverService/WatchApprovals",
    "/countersign.v1.OperatorService/ExportAudit",
];

/// Puts [`Edge`] before the doors.
#[derive(Clone, Debug)]
pub struct EdgeLayer {
    /// Turns true when the sidecar stops.
    stopped: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
    under_way: Arc<AtomicUsize>,
    message_bytes: usize,
}

impl EdgeLayer {
    /// The layer of a sidecar that stops when `stopped` turns true.
    pub fn new(stopped: watch::Receiver<bool>) -> Self {
        let metrics = Arc::<Metrics>::default();
        Self { stopped, under_way: metrics.calls.under_way(), metrics, message_bytes: super::MESSAGE_BYTES }
    }

    /// The same, counting every call here.
    #[must_use]
    pub fn counting(self, metrics: Arc<Metrics>) -> Self {
        Self { under_way: metrics.calls.under_way(), metrics, ..self }
    }

    /// The same, saying that a message may have so many bytes, as the doors are told by themselves.
    #[must_use]
    pub fn taking(self, message_bytes: usize) -> Self {
        Self { message_bytes, ..self }
    }

    /// How many calls have begun and have no answer yet.
    pub fn under_way(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.under_way)
    }
}

/// One call that has begun; it is over when this is dropped, whatever becomes of it.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn one_of(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(all))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<S> Layer<S> for EdgeLayer {
    type Service = Edge<S>;

    fn layer(&self, inner: S) -> Edge<S> {
        Edge {
            inner,
            stopped: self.stopped.clone(),
            metrics: Arc::clone(&self.metrics),
            under_way: Arc::clone(&self.under_way),
            message_bytes: self.message_bytes,
        }
    }
}

/// Answers for the transport.
#[derive(Clone, Debug)]
pub struct Edge<S> {
    inner: S,
    stopped: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
    under_way: Arc<AtomicUsize>,
    message_bytes: usize,
}

impl<S> Service<Request<Body>> for Edge<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let deadline = timeout(request.headers());
        let ours = request.uri().path().starts_with(OURS);
        // What streams may do so for as long as the process lives, health and reflection as well.
        let stopped = (!ours || STREAMS.contains(&request.uri().path())).then(|| self.stopped.clone());
        let ends_at = deadline.and_then(|deadline| Instant::now().checked_add(deadline));
        // Whoever says no deadline, or sends a message and never its end, is not waited for without one.
        let deadline = deadline.map_or(LONGEST_CALL, |deadline| deadline.min(LONGEST_CALL));
        let one = UnderWay::one_of(&self.under_way);
        let message_bytes = self.message_bytes;
        let counted = Counted::begin(&self.metrics, request.uri().path());
        let span = trace::span(request.headers());
        // A door refuses a credential before its future is polled.
        let answer = span.in_scope(|| self.inner.call(request));
        let answer = async move {
            let _one = one;
            let response = tokio::select! {
                biased;
                answer = answer => answer?,
                () = tokio::time::sleep(deadline.saturating_sub(BEFORE_THE_TRANSPORT)) => {
                    let passed = errors::deadline_exceeded();
                    return Ok(counted.answered(passed.clone().into_http(), Some(&passed)));
                }
            };
            let (response, status) = said_as_ours(response, ours, message_bytes);
            let response = match stopped {
                Some(stopped) => response.map(|body| Body::new(Ends::new(body, stopped, ends_at))),
                None => response,
            };
            Ok(counted.answered(response, status.as_ref()))
        };
        Box::pin(answer.instrument(span))
    }
}

/// The time that the client gives (`grpc-timeout`); none if it gives none that can be read.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 60 * 60)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// A refusal without details is the transport's: all of ours have some. With the status, where it stands in the head.
fn said_as_ours(response: Response<Body>, ours: bool, message_bytes: usize) -> (Response<Body>, Option<Status>) {
    let Some(status) = Status::from_header_map(response.headers()) else { return (response, None) };
    if !status.details().is_empty() {
        return (response, Some(status));
    }
    let said = match status.code() {
        Code::OutOfRange => errors::message_too_large(message_bytes),
        Code::Internal if ours => errors::message_unreadable(),
        Code::Unimplemented => errors::method_unknown(status.message()),
        _ => return (response, Some(status)),
    };
    (said.clone().into_http(), Some(said))
}

/// The body of an answer that may have no end of its own: it ends with `UNAVAILABLE` when the sidecar stops, so that no
/// stream holds up the stop, and with `DEADLINE_EXCEEDED` when the client's deadline passes.
struct Ends {
    body: Body,
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    deadline: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

impl Ends {
    fn new(body: Body, mut stopped: watch::Receiver<bool>, ends_at: Option<Instant>) -> Self {
        let stopped = Box::pin(async move {
            // A sender that is gone will never say it, and then the process is ending anyway.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        });
        let deadline = ends_at.map(|ends_at| Box::pin(tokio::time::sleep_until(ends_at)));
        Self { body, stopped, deadline, ended: false }
    }

    fn end(&mut self, status: &Status) -> Poll<Option<Result<Frame<<Body as http_body::Body>::Data>, Status>>> {
        self.ended = true;
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }
}

impl http_body::Body for Ends {
    type Data = <Body as http_body::Body>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        // However much there is to be sent, a deadline is one.
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            return self.end(&errors::deadline_exceeded());
        }
        // What is there already is sent before a stop, so that nothing that was answered is cut off.
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        match self.stopped.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => self.end(&errors::stopping()),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::StatusExt as _;

    /// Answers after so long.
    #[derive(Clone)]
    struct After(Duration);

    impl Service<Request<Body>> for After {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            let span = self.0;
            Box::pin(async move {
                tokio::time::sleep(span).await;
                Ok(Status::aborted("answered").into_http())
            })
        }
    }

    async fn answer(takes: Duration, timeout: &str) -> Status {
        let request = Request::builder().header("grpc-timeout", timeout).body(Body::empty()).unwrap();
        let (_stop, stopped) = watch::channel(false);
        let response = EdgeLayer::new(stopped).layer(After(takes)).call(request).await.unwrap();
        Status::from_header_map(response.headers()).unwrap()
    }

    #[tokio::test]
    async fn a_deadline_that_passes_is_told_with_its_own_code_and_reason() {
        let status = answer(Duration::from_secs(60), "5m").await;
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert_eq!(status.get_details_error_info().unwrap().reason, "DEADLINE_EXCEEDED");
        assert_eq!(answer(Duration::from_secs(60), "1n").await.code(), Code::DeadlineExceeded);
        assert_eq!(answer(Duration::ZERO, "1H").await.code(), Code::Aborted, "in time is as it was");
    }

    #[test]
    fn every_method_of_ours_that_streams_ends_with_the_process() {
        use prost::Message as _;
        let set = prost_types::FileDescriptorSet::decode(crate::proto::DESCRIPTORS).unwrap();
        let mut streams = Vec::new();
        for file in set.file.iter().filter(|file| file.package() == "countersign.v1") {
            for service in &file.service {
                let methods = service.method.iter().filter(|method| method.server_streaming());
                streams.extend(methods.map(|method| format!("{OURS}{}/{}", service.name(), method.name())));
            }
        }
        streams.sort();
        assert_eq!(streams, STREAMS);
    }

    #[test]
    fn a_timeout_is_read_as_the_protocol_writes_it_and_anything_else_is_none() {
        for (text, want) in [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("4m", Some(Duration::from_millis(4))),
            ("5u", Some(Duration::from_micros(5))),
            ("6n", Some(Duration::from_nanos(6))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("999999999m", None),
            ("m", None),
            ("", None),
            ("-1m", None),
            ("1", None),
            ("1s", None),
            ("\u{e9}", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            assert_eq!(timeout(&headers), want, "{text:?}");
        }
        assert_eq!(timeout(&HeaderMap::new()), None);
    }
}
