//! Telling other sidecars what changed: on a connection of its own, after the commit, and nobody waits for it.

use super::Shared;
use sqlx::{Connection as _, PgConnection, query, raw_sql};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Between two notifications at least: what comes in the meantime goes into the next one.
const EVERY: Duration = Duration::from_millis(20);
/// After one that failed.
const PAUSE: Duration = Duration::from_millis(500);
/// A connection that had nothing to tell for this long is closed.
const IDLE: Duration = Duration::from_secs(60);
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// There is nothing to lose with the server's power: who misses a notification looks.
const SESSION: &str = "SET synchronous_commit = off; SET application_name = 'countersign telling'";
const NOTIFY: &str = "SELECT pg_notify($1, $2)";

/// Runs until the store is closed.
pub(super) async fn run(shared: Arc<Shared>, mut ending: watch::Receiver<bool>) {
    let mut connection: Option<PgConnection> = None;
    loop {
        tokio::select! {
            () = shared.to_send.notified() => {}
            _ = ending.changed() => {}
            () = tokio::time::sleep(IDLE), if connection.is_some() => {
                close(&mut connection).await;
                continue;
            }
        }
        let ends = *ending.borrow();
        let pause = match send(&shared, &mut connection).await {
            Ok(()) => EVERY,
            Err(cause) => {
                shared.warnings.warn("other sidecars cannot be told of changes, and find them by looking", &cause);
                shared.outbox().add_unknown();
                shared.to_send.notify_one();
                PAUSE
            }
        };
        if ends {
            close(&mut connection).await;
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = ending.changed() => shared.to_send.notify_one(),
        }
    }
}

/// Sends all that is to be sent.
async fn send(shared: &Shared, connection: &mut Option<PgConnection>) -> Result<(), String> {
    let Some(text) = shared.outbox().take(shared.sender) else { return Ok(()) };
    let mut open = connection.take();
    let sending = async {
        let connection = match &mut open {
            Some(connection) => connection,
            None => {
                let mut made = shared.connector.connect().await?;
                raw_sql(SESSION).execute(&mut made).await?;
                open.insert(made)
            }
        };
        query(NOTIFY).bind(&shared.channel).bind(text).execute(connection).await
    };
    match tokio::time::timeout(shared.timeout, sending).await {
        Ok(Ok(_)) => {
            *connection = open;
            Ok(())
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer in time".to_owned()),
    }
}

async fn close(connection: &mut Option<PgConnection>) {
    if let Some(connection) = connection.take() {
        let _ = tokio::time::timeout(FAREWELL, connection.close()).await;
    }
}
