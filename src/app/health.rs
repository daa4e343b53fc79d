//! Health: `grpc.health.v1` on the doors' listener and, with `/healthz`, `/readyz`, `/metrics` and the keys that check permits, on a
//! plaintext listener of its own, since orchestrators' probes dial without TLS or token. That listener serves nothing else.

use super::incoming::Incoming;
use super::observe;
use super::transport::server;
use crate::engine::Engine;
use crate::secrets::PermitKeys;
use crate::storage::Store;
use axum::http::StatusCode;
use axum::routing::get;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

/// What turns with the store; `liveness` does not.
const READY_FOR: [&str; 4] =
    ["", "countersign.v1.AgentService", "countersign.v1.ApproverService", "countersign.v1.OperatorService"];
/// A process whose store is away is alive: restarting it would not bring the store back.
const LIVENESS: &str = "liveness";
/// A question is the name of a service; it comes without a credential, so nothing larger is waited for.
const QUESTION_BYTES: usize = 16 * 1024;
/// How often the store is asked.
const ASK_STORE: Duration = Duration::from_secs(1);
/// How long its answer may take.
const ANSWER_STORE: Duration = Duration::from_secs(2);
/// A store that has not answered once for this long is lost.
const STORE_LOST: Duration = Duration::from_secs(10);

/// Where the keys that check permits are; the second for who has no taste for hidden folders.
const KEYS: [&str; 2] = ["/.well-known/jwks.json", "/jwks.json"];
/// For how long whoever asked may go without asking again. A new secret waits for as long before it becomes the first.
const KEYS_ARE_FRESH: &str = "public, max-age=300";

/// What orchestrators are told.
#[derive(Clone)]
pub(super) struct Health {
    reporter: HealthReporter,
    ready: Arc<AtomicBool>,
    store_lost: Arc<AtomicBool>,
    secrets_missing: Arc<AtomicBool>,
    stopping: Arc<AtomicBool>,
    /// Held while the parts are put together and told, so that the last to change one has the last word.
    telling: Arc<Mutex<()>>,
}

impl std::fmt::Debug for Health {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Health").field("ready", &self.ready).finish_non_exhaustive()
    }
}

impl Health {
    pub(super) fn new() -> (Self, HealthServer<HealthService>) {
        let reporter = HealthReporter::new();
        let service = HealthServer::new(HealthService::from_health_reporter(reporter.clone()))
            .max_decoding_message_size(QUESTION_BYTES);
        let health = Self {
            reporter,
            ready: Arc::default(),
            store_lost: Arc::default(),
            secrets_missing: Arc::default(),
            stopping: Arc::default(),
            telling: Arc::default(),
        };
        (health, service)
    }

    pub(super) async fn serving(&self) {
        self.reporter.set_service_status(LIVENESS, ServingStatus::Serving).await;
        self.tell().await;
    }

    pub(super) async fn stopping(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.tell().await;
    }

    /// Whether the table wants secrets that are not at hand.
    pub(super) async fn secrets_missing(&self, missing: bool) {
        if self.secrets_missing.swap(missing, Ordering::SeqCst) != missing {
            self.tell().await;
        }
    }

    /// Puts the parts together and tells them.
    async fn tell(&self) {
        let _telling = self.telling.lock().await;
        let ready = [&self.store_lost, &self.secrets_missing, &self.stopping]
            .iter()
            .all(|hindrance| !hindrance.load(Ordering::SeqCst));
        self.ready.store(ready, Ordering::SeqCst);
        let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in READY_FOR {
            self.reporter.set_service_status(service, status).await;
        }
    }

    /// Asks the store again and again, and turns readiness with it.
    pub(super) async fn watch_store(self, store: Arc<dyn Store>, mut stopped: watch::Receiver<bool>) {
        let mut last = Instant::now();
        loop {
            // Once it is lost it is asked on; until then nothing is waited for beyond the moment at which it is.
            let left = STORE_LOST.checked_sub(last.elapsed()).filter(|left| !left.is_zero()).unwrap_or(ASK_STORE);
            tokio::select! {
                () = tokio::time::sleep(ASK_STORE.min(left)) => {}
                _ = stopped.changed() => return,
            }
            let left = STORE_LOST.checked_sub(last.elapsed()).filter(|left| !left.is_zero()).unwrap_or(ANSWER_STORE);
            let cause = match tokio::time::timeout(ANSWER_STORE.min(left), store.time()).await {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("no answer in time".to_owned()),
            };
            let answered = cause.is_none();
            if answered {
                last = Instant::now();
            }
            let (was, is) = (self.store_lost.load(Ordering::SeqCst), !answered && last.elapsed() >= STORE_LOST);
            // A store that answers turns readiness on at once; one that fails turns it off only when it is lost.
            if self.stopping.load(Ordering::SeqCst) || was == is || (was && !answered) {
                continue;
            }
            if is {
                let cause = cause.unwrap_or_default();
                tracing::error!(lost_ms = STORE_LOST.as_millis(), cause, "the store is lost: not ready");
            } else {
                tracing::info!("the store answers again");
            }
            self.store_lost.store(is, Ordering::SeqCst);
            self.tell().await;
        }
    }
}

/// Serves the plaintext listener until `end`.
pub(super) async fn serve(
    incoming: Incoming,
    service: HealthServer<HealthService>,
    health: Health,
    engine: Arc<Engine>,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<(), tonic::transport::Error> {
    let ready = health.ready;
    let keys = KEYS.map(|path| (path, Arc::clone(&engine)));
    let mut router = Routes::new(service)
        .prepare()
        .into_axum_router()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/metrics", observe::page(Arc::clone(engine.metrics())))
        .route(
            "/readyz",
            get(move || {
                let ready = ready.load(Ordering::SeqCst);
                let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                // A sidecar whose newest policy was refused serves on under the last good one: ready, and saying so.
                let in_force = engine.in_force();
                let (revision, failed) = (in_force.policy.revision(), in_force.reload.last_failed());
                // Key ids are hexadecimal digits of ours or of the table's, told as the words that they are.
                let missing: Vec<String> =
                    engine.secrets().missing.iter().map(|id| format!("\"{}\"", id.escape_default())).collect();
                let missing = missing.join(",");
                let body = format!(
                    "{{\"ready\":{ready},\"policy_revision\":\"{revision}\",\"policy_reload_failed\":{failed},\
                     \"missing_secrets\":[{missing}]}}\n"
                );
                async move { (status, [("content-type", "application/json")], body) }
            }),
        )
        // gRPC answers what it does not know with 200 and a status of its own, which a probe with a slip would take for an answer.
        .fallback(|request: axum::extract::Request| async move {
            let grpc = request
                .headers()
                .get("content-type")
                .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
            if grpc { Status::unimplemented("this listener serves health alone").into_http() } else { not_found() }
        });
    for (path, engine) in keys {
        router = router.route(path, get(move || std::future::ready(public_keys(&engine))));
    }
    server().accept_http1(true).serve_with_incoming_shutdown(router, incoming, end).await
}

/// The public keys of every server secret at hand, as they are now: secrets may be replaced at any time.
fn public_keys(engine: &Engine) -> ([(&'static str, &'static str); 2], String) {
    let keys = PermitKeys::of(&engine.secrets().keyring).to_jwks();
    ([("content-type", "application/jwk-set+json"), ("cache-control", KEYS_ARE_FRESH)], keys)
}

fn not_found() -> axum::http::Response<Body> {
    let mut response = axum::http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}
