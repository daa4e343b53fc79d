//! The doors: translate a request into types that cannot be wrong, call one engine function, render. No rule of the
//! business lives here.

mod access;
mod agent;
mod approver;
mod audit;
mod counting;
mod edge;
mod errors;
mod fields;
mod guard;
mod methods;
mod operator;
mod render;
mod sparing;
mod streams;
mod trace;

pub use access::{ACCESS, Access, Bounds};
pub use edge::EdgeLayer;
use guard::Guard;
pub use guard::{Doorway, Guarded};
pub use methods::methods;
pub(crate) use sparing::Sparing;

use crate::auth::{Caller, Credential, Powers, SharedCallers};
use crate::domain::approval::Person;
use crate::domain::text::Identifier;
use crate::engine::{AgentCaller, Engine, EngineError};
use crate::proto::agent_service_server::AgentServiceServer;
use crate::proto::approver_service_server::ApproverServiceServer;
use crate::proto::operator_service_server::OperatorServiceServer;
use fields::Violations;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tonic::{Request, Status};
use tracing::Instrument as _;

/// What one message may measure: a batch of a hundred ordinary invocations, or a few large ones.
const MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// State changes under way at once: more than the writer's queue holds, each with its arguments.
static UNDER_WAY: Semaphore = Semaphore::const_new(4_096);

/// The three doors over one engine.
#[derive(Clone, Debug)]
pub struct Doors {
    engine: Arc<Engine>,
    arguments_bytes: usize,
    message_bytes: usize,
}

impl Doors {
    /// The doors over `engine`, with arguments of at most `arguments_bytes`.
    pub fn new(engine: Arc<Engine>, arguments_bytes: usize) -> Self {
        Self { engine, arguments_bytes, message_bytes: MESSAGE_BYTES }
    }

    /// The same, with messages of at most so many bytes.
    #[must_use]
    pub fn taking(self, message_bytes: usize) -> Self {
        Self { message_bytes, ..self }
    }

    /// `AgentService`.
    pub fn agent(&self, callers: &SharedCallers) -> Guarded<AgentServiceServer<Self>> {
        let service = AgentServiceServer::new(self.clone()).max_decoding_message_size(self.message_bytes);
        Guarded::new(service, self.guard(callers))
    }

    /// `ApproverService`.
    pub fn approver(&self, callers: &SharedCallers) -> Guarded<ApproverServiceServer<Self>> {
        let service = ApproverServiceServer::new(self.clone()).max_decoding_message_size(self.message_bytes);
        Guarded::new(service, self.guard(callers))
    }

    /// `OperatorService`.
    pub fn operator(&self, callers: &SharedCallers) -> Guarded<OperatorServiceServer<Self>> {
        let service = OperatorServiceServer::new(self.clone()).max_decoding_message_size(self.message_bytes);
        Guarded::new(service, self.guard(callers))
    }

    fn guard(&self, callers: &SharedCallers) -> Guard {
        Guard::new(callers, Arc::clone(self.engine.metrics()))
    }

    /// The person that an approver's request speaks for.
    fn person<T>(&self, request: &Request<T>, named: &str) -> Result<Person, Status> {
        let credential = credential(request)?;
        of_bounds(request, &[Bounds::Person])?;
        let caller = credential.caller();
        let named = match named {
            "" => None,
            text => {
                let mut violations = Violations::default();
                let id = violations.identifier("principal", text);
                violations.finish()?;
                id
            }
        };
        let id = match (&caller.powers, named) {
            (Powers::Person(own), None) => Ok(own.clone()),
            (Powers::Person(own), Some(named)) if *own == named => Ok(named),
            (Powers::Asserts(_), None) => Err(EngineError::PersonMissing),
            (Powers::Asserts(patterns), Some(named))
                if crate::domain::pattern::any_matches(patterns, named.as_str()) =>
            {
                Ok(named)
            }
            (Powers::Person(_) | Powers::Asserts(_), Some(_)) => Err(EngineError::PersonOutOfBounds),
            (Powers::Claimed | Powers::Agent(_) | Powers::Operator, _) => return Err(errors::unauthenticated()),
        }
        .map_err(|error| errors::status(&error))?;
        self.engine.metrics().watchers.approver_called();
        Ok(self.engine.person(id, caller.name.clone(), credential.groups()))
    }
}

/// The caller that the guard found. Without one nothing is answered.
fn caller<T>(request: &Request<T>) -> Result<Arc<Caller>, Status> {
    credential(request).map(|credential| Arc::clone(credential.caller()))
}

/// What the table of methods says that the caller's bounds are compared with: a handler that compares with anything else is
/// wrong, and answers nobody.
fn of_bounds<T>(request: &Request<T>, compared: &[Bounds]) -> Result<(), Status> {
    let access = request.extensions().get::<&'static Access>();
    if access.is_some_and(|access| compared.contains(&access.bounds)) { Ok(()) } else { Err(errors::unauthenticated()) }
}

/// The credential that the guard let in: a stream ends when this has [`ended`](Credential::ended).
fn credential<T>(request: &Request<T>) -> Result<&Credential, Status> {
    request.extensions().get::<Credential>().ok_or_else(errors::unauthenticated)
}

/// Waits until the credential that a call came with no longer opens its door.
fn credential_ended<T>(request: &Request<T>) -> Result<impl Future<Output = ()> + Send + use<T>, Status> {
    let credential = credential(request)?.clone();
    Ok(async move { credential.ended().await })
}

fn agent_caller<T>(request: &Request<T>) -> Result<AgentCaller, Status> {
    let caller = caller(request)?;
    of_bounds(request, &[Bounds::Invocation, Bounds::Invocations, Bounds::Record, Bounds::Pair])?;
    match &caller.powers {
        Powers::Agent(bounds) => Ok(AgentCaller { name: caller.name.clone(), bounds: Arc::clone(bounds) }),
        Powers::Person(_) | Powers::Claimed | Powers::Asserts(_) | Powers::Operator => Err(errors::unauthenticated()),
    }
}

fn operator_caller<T>(request: &Request<T>) -> Result<Identifier, Status> {
    let caller = caller(request)?;
    of_bounds(request, &[Bounds::Everything])?;
    match &caller.powers {
        Powers::Operator => Ok(caller.name.clone()),
        Powers::Agent(_) | Powers::Person(_) | Powers::Claimed | Powers::Asserts(_) => Err(errors::unauthenticated()),
    }
}

/// Runs a state change to its end though the client cancels or its deadline passes: the handler may be dropped at any
/// await, the task is not.
/// Only so many are under way at once: a client that lets go of its calls must not fill the memory with them.
async fn to_the_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, EngineError>> + Send + 'static,
) -> Result<T, Status> {
    let Ok(place) = UNDER_WAY.try_acquire() else { return Err(errors::too_many_calls()) };
    let of_caller = guard::place();
    let change = async move {
        let done = change.await;
        drop((place, of_caller));
        done
    };
    // What it logs is on behalf of the call that began it.
    match tokio::spawn(change.in_current_span()).await {
        Ok(done) => done.map_err(|error| errors::status(&error)),
        Err(_) => Err(errors::status(&EngineError::Panicked)),
    }
}
