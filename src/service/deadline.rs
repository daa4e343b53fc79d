//! The deadline that a client sends (`grpc-timeout`). Where it passes before there is an answer, the call is answered
//! `DEADLINE_EXCEEDED`, with a reason as every refusal has one; the transport by itself would say `CANCELLED`, which is
//! what a client says. A change that was begun runs to its end all the same.

use super::errors;
use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;

/// A service that answers before the client's deadline, or says that it did not.
#[derive(Clone, Debug)]
pub struct WithinDeadline<S>(S);

impl<S> WithinDeadline<S> {
    /// This service, held to each client's deadline.
    pub fn new(service: S) -> Self {
        Self(service)
    }
}

impl<S: NamedService> NamedService for WithinDeadline<S> {
    const NAME: &'static str = S::NAME;
}

/// What a generated server answers with: refusals are answers too.
type Answer = BoxFuture<http::Response<Body>, Infallible>;

impl<S, B> Service<http::Request<B>> for WithinDeadline<S>
where
    S: Service<http::Request<B>, Response = http::Response<Body>, Error = Infallible, Future = Answer>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let within = request.headers().get("grpc-timeout").and_then(|value| timeout(value.as_bytes()));
        let answer = self.0.call(request);
        let Some(within) = within else { return answer };
        Box::pin(async move {
            match tokio::time::timeout(within, answer).await {
                Ok(answer) => answer,
                Err(_) => Ok(errors::deadline_exceeded().into_http()),
            }
        })
    }
}

/// Reads one to eight digits and a unit, as gRPC over HTTP/2 has it. What is none of that sets no deadline.
fn timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(count.saturating_mul(3_600))),
        b'M' => Some(Duration::from_secs(count.saturating_mul(60))),
        b'S' => Some(Duration::from_secs(count)),
        b'm' => Some(Duration::from_millis(count)),
        b'u' => Some(Duration::from_micros(count)),
        b'n' => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_digits_and_a_unit() {
        for (text, read) in [
            ("2H", Some(Duration::from_secs(7_200))),
            ("3M", Some(Duration::from_secs(180))),
            ("0S", Some(Duration::ZERO)),
            ("250m", Some(Duration::from_millis(250))),
            ("99999999u", Some(Duration::from_micros(99_999_999))),
            ("1n", Some(Duration::from_nanos(1))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("100000000n", None),
            ("", None),
            ("S", None),
            ("1", None),
            ("1s", None),
            ("-1S", None),
            ("+1S", None),
            (" 1S", None),
            ("1.5S", None),
        ] {
            assert_eq!(timeout(text.as_bytes()), read, "{text:?}");
        }
    }
}
