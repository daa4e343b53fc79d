//! Server secrets over a table of many: what replaces one while all of them serve, and what a sidecar does that lacks one.

use crate::backend::{intruder, share};
use crate::grpc::harness::*;
use crate::grpc::health::{SERVICES, check, plaintext};
use crate::grpc::moves::*;
use crate::grpc::rotation::{FIRST, key_id, key_of, new_secret};
use crate::grpc::rotation_live::{readiness, take};
use crate::grpc::sealing::erase;
use countersign::proto::*;
use sqlx::{Connection as _, Row as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;

const NEW: &str = "new.secret";

/// Copies a secret to where another sidecar reads it.
fn hand_over(from: &Sidecar, name: &str, to: &Sidecar) {
    std::fs::copy(from.folder().join(name), to.folder().join(name)).unwrap();
}

/// The key ids that rows are sealed under.
async fn in_use(sidecar: &Sidecar) -> Vec<String> {
    ids(sidecar, "SELECT DISTINCT key_id FROM approval_arguments ORDER BY key_id").await
}

/// The key ids that the table knows.
async fn known(sidecar: &Sidecar) -> Vec<String> {
    ids(sidecar, "SELECT id FROM keys ORDER BY id").await
}

async fn ids(sidecar: &Sidecar, statement: &'static str) -> Vec<String> {
    let mut table = intruder(sidecar).await;
    let rows = sqlx::query(statement).fetch_all(&mut table).await.unwrap();
    table.close().await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Another sidecar on the same table that has not started yet.
fn stopped_beside(sidecar: &Sidecar) -> Sidecar {
    let folder = Folder::of(|new| share(sidecar.folder(), new));
    Sidecar::stopped(folder, Arc::clone(&sidecar.clock))
}

/// Starts it, ready or not, with these secrets.
async fn start_with(sidecar: &mut Sidecar, names: &[&str]) {
    let files: Vec<_> = names.iter().map(|name| sidecar.folder().join(name)).collect();
    let started = sidecar.restart_with(|config| {
        config.secret_file = files[0].clone();
        config.further_secret_files = files[1..].to_vec();
    });
    started.await.unwrap();
}

#[tokio::test]
async fn a_secret_is_rolled_out_over_sidecars_under_load_and_no_token_is_refused() {
    let sidecars = {
        let one = Sidecar::start().await;
        let other = one.beside().await;
        Arc::new([one, other])
    };
    let old = key_id(&sidecars[0].folder().join(FIRST));
    let new = new_secret(&sidecars[0], NEW);
    hand_over(&sidecars[0], NEW, &sidecars[1]);
    let over = Arc::new(AtomicBool::new(false));
    // Each asks at one and consumes at the other, again and again; a refusal of any kind ends the test.
    let load: Vec<_> = (0..4)
        .map(|worker: usize| {
            let (sidecars, over) = (Arc::clone(&sidecars), Arc::clone(&over));
            tokio::spawn(async move {
                let mut keys = std::collections::BTreeSet::new();
                let mut round = 0;
                while !over.load(Ordering::SeqCst) || round < 3 {
                    let call = in_conversation(&format!("load-{worker}-{round}"));
                    let (asks, uses) = (&sidecars[(worker + round) % 2], &sidecars[(worker + round + 1) % 2]);
                    let (_, token) = asks.approved(call.clone()).await;
                    keys.insert(key_of(&token).to_owned());
                    uses.consume(&token, call).await.unwrap();
                    round += 1;
                }
                keys
            })
        })
        .collect();

    // What waits from before the first roll-out to after the last.
    let (_, early) = sidecars[0].approved(in_conversation("early")).await;
    let rolled_out = async |names: &[&str]| {
        for sidecar in sidecars.iter() {
            take(sidecar, names).await;
            for (number, asks) in sidecars.iter().enumerate() {
                let call = in_conversation(&format!("{names:?}{number}{}", key_id(&sidecar.folder().join(NEW))));
                let (_, token) = asks.approved(call.clone()).await;
                sidecars[1 - number].consume(&token, call).await.unwrap();
            }
        }
        for sidecar in sidecars.iter() {
            sidecar.running().secrets().look().await;
            assert_eq!(readiness(sidecar).await, (true, vec![]), "{names:?}");
        }
    };
    rolled_out(&[FIRST, NEW]).await;
    assert_eq!(in_use(&sidecars[0]).await, std::slice::from_ref(&old));
    rolled_out(&[NEW, FIRST]).await;
    over.store(true, Ordering::SeqCst);
    for worker in load {
        let keys = worker.await.unwrap();
        assert!(keys.iter().all(|key| [&old, &new].contains(&key)), "{keys:?}");
    }
    // Nobody lets go of one in use.
    take(&sidecars[1], &[NEW]).await;
    sidecars[1].consume(&early, in_conversation("early")).await.unwrap();
    let mut table = intruder(&sidecars[0]).await;
    sqlx::query("DELETE FROM approval_arguments WHERE key_id = $1").bind(&old).execute(&mut table).await.unwrap();
    table.close().await.unwrap();
    rolled_out(&[NEW]).await;
    assert_eq!(in_use(&sidecars[0]).await, [new]);
    refused(sidecars[0].consume(&early, in_conversation("early")).await, Code::FailedPrecondition, "TOKEN_INVALID");
}

#[tokio::test]
async fn a_sidecar_that_lacks_a_secret_which_another_began_to_use_is_not_ready_and_calls_nothing_forged() {
    let one = Sidecar::start().await;
    let mut other = one.beside().await;
    let old = key_id(&one.folder().join(FIRST));
    let new = new_secret(&one, NEW);
    // The first roll-out was forgotten.
    take(&one, &[NEW, FIRST]).await;
    let (approval, token) = one.ask(in_conversation("asked")).await;
    assert_eq!(key_of(&token), new);
    let status = refused(other.consume(&token, in_conversation("asked")).await, Code::Unavailable, "SECRET_MISSING");
    assert_eq!(told(&status, "key_ids"), new);
    other.running().secrets().look().await;
    assert_eq!(readiness(&other).await, (false, vec![new.clone()]));
    assert_eq!(readiness(&one).await, (true, vec![]));

    // What needs no secret goes on, and what is asked here is made with the one that all have.
    other.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    let (_, here) = other.approved(in_conversation("here")).await;
    assert_eq!(key_of(&here), old);
    one.consume(&here, in_conversation("here")).await.unwrap();

    // A restart without it changes nothing: it starts, not ready, and says so on the doors' listener as well.
    start_with(&mut other, &[FIRST]).await;
    assert_eq!(readiness(&other).await, (false, vec![new.clone()]));
    for service in SERVICES {
        let alive = if service == "liveness" { ServingStatus::Serving } else { ServingStatus::NotServing };
        for channel in [other.channel(), plaintext(&other)] {
            assert_eq!(check(channel, service).await.unwrap(), alive, "{service:?}");
        }
    }
    let status = refused(other.arguments_for("olga", &approval.id).await, Code::Unavailable, "SECRET_MISSING");
    assert_eq!(told(&status, "key_ids"), new);

    hand_over(&one, NEW, &other);
    take(&other, &[FIRST, NEW]).await;
    assert_eq!(readiness(&other).await, (true, vec![]));
    other.consume(&token, in_conversation("asked")).await.unwrap();
}

#[tokio::test]
async fn a_stranger_makes_nothing_so_that_the_others_stay_ready() {
    let one = Sidecar::start().await;
    let old = key_id(&one.folder().join(FIRST));
    for used in [false, true] {
        if used {
            one.ask(in_conversation("asked")).await;
        }
        let mut stranger = stopped_beside(&one);
        let id = new_secret(&stranger, "stranger.secret");
        new_secret(&stranger, "another.secret");
        start_with(&mut stranger, &["stranger.secret"]).await;
        assert_eq!(readiness(&stranger).await, (false, vec![old.clone()]), "in use: {used}");
        stranger.running().secrets().look().await;
        let status = refused(stranger.request(email()).await, Code::Unavailable, "SECRET_MISSING");
        assert_eq!(told(&status, "key_ids"), old);
        // A permit that it signed could be checked by nobody: it is refused before anything starts.
        let status = refused(stranger.consume("", fetch()).await, Code::Unavailable, "SECRET_MISSING");
        assert_eq!(told(&status, "key_ids"), old);
        let started = one.operator().list_executions(ListExecutionsRequest::default()).await.unwrap().into_inner();
        assert!(started.executions.is_empty());
        assert_eq!(known(&one).await, std::slice::from_ref(&old), "the table does not know it");
        one.running().secrets().look().await;
        assert_eq!(readiness(&one).await, (true, vec![]));

        // With one that the table knows beside it, it is welcome.
        take(&stranger, &["another.secret"]).await;
        assert_eq!(readiness(&stranger).await, (false, vec![old.clone()]), "in use: {used}");
        take(&stranger, &[FIRST]).await;
        assert_eq!(readiness(&stranger).await, (true, vec![]));
        take(&stranger, &["stranger.secret", FIRST]).await;
        assert_eq!(readiness(&stranger).await, (true, vec![]));
        assert!(known(&one).await.contains(&id));
        stranger.stop().await;
        let mut table = intruder(&one).await;
        sqlx::query("DELETE FROM keys WHERE id = $1").bind(&id).execute(&mut table).await.unwrap();
        table.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_sidecar_that_started_without_a_secret_is_ready_once_nothing_needs_it() {
    let one = Sidecar::start().await;
    let old = key_id(&one.folder().join(FIRST));
    let (approval, _) = one.ask(in_conversation("asked")).await;
    let mut other = stopped_beside(&one);
    let new = new_secret(&one, NEW);
    hand_over(&one, NEW, &other);
    start_with(&mut other, &[NEW]).await;
    assert_eq!(readiness(&other).await, (false, vec![old.clone()]));
    refused(other.request(email()).await, Code::Unavailable, "SECRET_MISSING");
    // It is known to the table from here on: the others have it too.
    take(&one, &[FIRST, NEW]).await;
    erase(&one, &approval.id).await;
    other.running().secrets().look().await;
    assert_eq!(readiness(&other).await, (true, vec![]));
    let (_, token) = other.approved(email()).await;
    assert_eq!(key_of(&token), new);
    one.consume(&token, email()).await.unwrap();
}

#[tokio::test]
async fn without_a_secret_file_no_sidecar_starts_and_none_is_made() {
    let one = Sidecar::start().await;
    let mut other = stopped_beside(&one);
    let absent = other.folder().join("absent.secret");
    let refused = other.restart_with(|config| config.secret_file.clone_from(&absent)).await;
    let problem = refused.unwrap_err().to_string();
    for says in ["absent.secret", "does not exist", "countersign secret new --out FILE", "every sidecar"] {
        assert!(problem.contains(says), "{problem}");
    }
    assert!(!absent.exists());
}
