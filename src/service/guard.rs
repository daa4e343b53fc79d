//! The check of a caller and its limits before a door, and the shortest way to a door.

use super::access::{self, Access};
use super::edge::STREAMS;
use super::errors;
use super::sparing::Sparing;
use crate::auth::{AuthError, Authorization, Credential, Peer, Place, Presented, SharedCallers};
use crate::metrics::{CredentialRefusal, Metrics};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::service::Routes;
use tower_service::Service;

/// What a call comes to.
type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// A service behind a guard, which lets through who has the role of the method. The guard stands inside the routed service, so it
/// hangs on the method that was resolved and not on how a path was spelt.
#[derive(Clone, Debug)]
pub struct Guarded<S> {
    service: S,
    guard: Arc<Guard>,
}

/// Lets through who has the role of a method.
#[derive(Debug)]
pub(super) struct Guard {
    callers: SharedCallers,
    refusals: Sparing,
    metrics: Arc<Metrics>,
}

impl<S> Guarded<S> {
    /// `service`, for whom this guard lets through.
    pub(super) fn new(service: S, guard: Guard) -> Self {
        Self { service, guard: Arc::new(guard) }
    }
}

impl<S: NamedService> NamedService for Guarded<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future = Answer>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Answer {
        let refused = |status: Status| -> Answer { Box::pin(std::future::ready(Ok(status.into_http()))) };
        // By the path as the doorway resolved it: the service's name in it is this one's.
        let Some(access) = access::at(request.uri().path()) else { return refused(errors::method_unknown("")) };
        let credential = match self.guard.admit(&request, access) {
            Ok(credential) => credential,
            Err(status) => return refused(status),
        };
        let streams = STREAMS.contains(&access.path);
        // The stream's place first: a stream that finds none is no call that was paid for.
        let places = streams.then(|| credential.stream()).transpose();
        let (call, stream) = match places.and_then(|stream| Ok((credential.call()?, stream))) {
            Ok((call, stream)) => (Arc::new(call), stream),
            Err(limit) => return refused(errors::limit_reached(limit)),
        };
        request.extensions_mut().insert(credential);
        request.extensions_mut().insert(access);
        let answer = UNDER_WAY_OF_CALLER.scope(Arc::clone(&call), self.service.call(request));
        Box::pin(async move {
            let response = answer.await?;
            // An answer that nobody reads is a call that is not over, and a stream is its caller's for as long as it lasts.
            let place = match stream {
                None => call,
                Some(stream) => Arc::new(stream),
            };
            Ok(response.map(|body| Body::new(Holding { body, _place: place })))
        })
    }
}

tokio::task_local! {
    /// The place of the call that is being answered. What goes on after its client has gone keeps it.
    static UNDER_WAY_OF_CALLER: Arc<Place>;
}

/// The place of the call that is being answered; none outside one.
pub(super) fn place() -> Option<Arc<Place>> {
    UNDER_WAY_OF_CALLER.try_with(Arc::clone).ok()
}

/// An answer that holds its place until it has been read, or its connection is gone.
struct Holding {
    body: Body,
    _place: Arc<Place>,
}

impl http_body::Body for Holding {
    type Data = <Body as http_body::Body>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Self::Data>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

impl Guard {
    /// Lets through whom the table of methods lets through, and counts here whom it does not.
    pub(super) fn new(callers: &SharedCallers, metrics: Arc<Metrics>) -> Self {
        Self { callers: callers.clone(), refusals: Sparing::new(), metrics }
    }

    fn admit(&self, request: &Request<Body>, access: &Access) -> Result<Credential, Status> {
        let mut headers = request.headers().get_all(AUTHORIZATION).iter();
        let authorization = match (headers.next(), headers.next()) {
            (None, _) => Authorization::None,
            (Some(one), None) => Authorization::One(one.as_bytes()),
            (Some(_), Some(_)) => Authorization::Several,
        };
        let presented = Presented { authorization, peer: request.extensions().get::<Peer>() };
        self.callers.authenticate(presented, access.role).map_err(|error| {
            self.metrics.credentials.one(match error {
                AuthError::Missing => CredentialRefusal::Missing,
                AuthError::Invalid => CredentialRefusal::Invalid,
                AuthError::Expired => CredentialRefusal::Expired,
                AuthError::Ambiguous => CredentialRefusal::Ambiguous,
                AuthError::Untrusted => CredentialRefusal::Untrusted,
                AuthError::Jwt(_) => CredentialRefusal::Jwt,
                AuthError::KeyUnknown => CredentialRefusal::KeyUnknown,
                AuthError::KeysMissing => CredentialRefusal::KeysMissing,
                AuthError::WrongRole { .. } => CredentialRefusal::WrongRole,
            });
            if let Some(unsaid) = self.refusals.say() {
                let (peer, method) = (peer(request), access.path);
                let problem = match error {
                    AuthError::Jwt(problem) => problem.as_str(),
                    _ => "",
                };
                let reason = error.reason();
                tracing::warn!(role = %access.role, method, %peer, reason, problem, unsaid, "a credential was refused");
            }
            errors::unauthorised(error)
        })
    }
}

/// Whom the connection is from; empty where it does not say so.
fn peer(request: &Request<Body>) -> String {
    request.extensions().get::<Peer>().map_or(String::new(), ToString::to_string)
}

/// Three doors side by side, and whatever else is served beside them.
///
/// A call finds its door by the name of the service in its path. The router that the rest goes through does that too, and
/// copies the service, makes the path's parts into extensions and wraps the answer for each call: a tenth of a small one.
#[derive(Debug)]
pub struct Doorway<A, B, C>(Arc<(A, B, C)>, Routes, [bool; 3]);

impl<A, B, C> Doorway<A, B, C> {
    /// The way to these doors, and to the rest.
    pub fn new(doors: (A, B, C), rest: Routes) -> Self {
        Self(Arc::new(doors), rest.prepare(), [true; 3])
    }

    /// The way to those of the same doors, in the same order, that are open here, and to the rest. One that is not is as
    /// unknown here as any service that there is none of.
    #[must_use]
    pub fn opening(&self, open: [bool; 3]) -> Self {
        Self(Arc::clone(&self.0), self.1.clone(), open)
    }
}

impl<A, B, C> Clone for Doorway<A, B, C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0), self.1.clone(), self.2)
    }
}

/// A service that is one of a [`Doorway`].
trait Door:
    Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future = Answer> + NamedService + Clone
{
}

impl<S> Door for S where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future = Answer> + NamedService + Clone
{
}

impl<A: Door, B: Door, C: Door> Service<Request<Body>> for Doorway<A, B, C> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Doors and routes are ready at any time.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answer {
        let (agent, approver, operator) = &*self.0;
        let [agent_open, approver_open, operator_open] = self.2;
        let path = request.uri().path();
        let name = path.strip_prefix('/').and_then(|path| path.split_once('/')).map_or("", |(name, _)| name);
        if agent_open && name == A::NAME {
            agent.clone().call(request)
        } else if approver_open && name == B::NAME {
            approver.clone().call(request)
        } else if operator_open && name == C::NAME {
            operator.clone().call(request)
        } else {
            Box::pin(self.1.call(request))
        }
    }
}
