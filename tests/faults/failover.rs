//! A primary that is lost or left behind, and its synchronous standby in its place: whatever was acknowledged is on both.

use crate::cluster::Cluster;
use crate::history::{Call, Fact, Question};
use crate::load::Load;
use crate::place::{PATIENCE, PAUSE, Place, Way, blocking};
use crate::process::calls::Told;
use crate::proxy::Proxy;
use crate::watches::Watchers;
use crate::{CALLS, holds, run};
use countersign::proto::Verdict;
use sqlx::{Row as _, query, raw_sql};
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

/// Lets no commit be acknowledged that the standby does not have.
async fn synchronous(place: &Place) {
    let mut connection = place.connection().await;
    for setting in ["ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"] {
        raw_sql(setting).execute(&mut connection).await.unwrap();
    }
    let since = Instant::now();
    loop {
        let standbys =
            query("SELECT sync_state, current_setting('synchronous_standby_names') AS names FROM pg_stat_replication");
        let standbys = standbys.fetch_all(&mut connection).await.unwrap();
        if standbys.iter().any(|row| row.get::<String, _>(0) == "sync" && row.get::<String, _>(1) == "*") {
            return;
        }
        assert!(since.elapsed() < PATIENCE, "the standby does not become synchronous");
        tokio::time::sleep(PAUSE).await;
    }
}

#[test]
fn a_primary_that_fails_over_to_its_synchronous_standby_loses_nothing_acknowledged() {
    run(async |random| {
        let primary = blocking(Cluster::start);
        let proxies = [Proxy::to(primary.port()).await, Proxy::to(primary.port()).await];
        let place = Place::empty(primary.url("postgres"));
        place.start(&[Way::to(proxies[0].url()), Way::to(proxies[1].url())]);
        let standby = blocking(|| Cluster::standby_of(&primary));
        synchronous(&place).await;
        let watchers = Watchers::on(&place);
        let load = Load::on(&place, random);
        load.answers(CALLS * 3).await;
        let acknowledged = place.history.answers();

        blocking(|| primary.stop_immediate());
        blocking(|| standby.promote());
        place.moved_to(standby.url("postgres"));
        proxies.iter().for_each(|proxy| proxy.lead_to(standby.port()));
        println!("{acknowledged} answers before the primary was lost");
        place.serves_again().await;
        place.check(random.seed()).await;
        holds(&place, load, random).await;
        watchers.hold(&place).await;
    });
}

#[test]
fn a_primary_that_lives_on_beside_its_promoted_standby_lets_nothing_through() {
    run(async |random| {
        let primary = blocking(Cluster::start);
        let proxies = [Proxy::to(primary.port()).await, Proxy::to(primary.port()).await];
        let place = Place::empty(primary.url("postgres"));
        place.start(&[Way::to(proxies[0].url()), Way::to(proxies[1].url())]);
        let standby = blocking(|| Cluster::standby_of(&primary));
        synchronous(&place).await;
        let mut approved = Vec::new();
        for _ in 0..8 {
            let mut question = place.history.question(random, false, false);
            for call in [Call::Ask, Call::Decide(Verdict::Approve)] {
                let told = place.callers.call(&place.history, &question, call, 0).await;
                question.learns(told.done().unwrap_or_else(|| panic!("{told:?}")));
            }
            approved.push(question);
        }

        // The first sidecar is left with the old primary, to which nobody is a standby any more.
        blocking(|| standby.promote());
        place.moved_to(standby.url("postgres"));
        proxies[1].lead_to(standby.port());
        let attempts: Vec<_> = approved.into_iter().map(|question| (question, Uuid::new_v4().to_string())).collect();
        let through = |seat: usize, question: &Question, attempt: &str| {
            let (history, callers) = (Arc::clone(&place.history), Arc::clone(&place.callers));
            let (question, call) = (question.clone(), Call::Consume(attempt.to_owned()));
            tokio::spawn(async move { history.call(&question, call, seat, &callers.of(seat)).await })
        };
        for _ in 0..2 {
            // The second time, whatever the old primary has of the first is asked for again.
            let lost: Vec<_> = attempts.iter().map(|(question, attempt)| through(0, question, attempt)).collect();
            for told in lost {
                assert_eq!(told.await.unwrap(), Told::Nothing, "what the standby never had is not let through");
            }
        }
        for (question, _) in &attempts {
            let since = Instant::now();
            let attempt = Uuid::new_v4().to_string();
            while !matches!(through(1, question, &attempt).await.unwrap(), Told::Done(Fact::Permit(_))) {
                assert!(since.elapsed() < PATIENCE, "{}", place.logs());
                tokio::time::sleep(PAUSE).await;
            }
        }
        blocking(|| primary.stop_immediate());
        proxies[0].lead_to(standby.port());
        place.serves_again().await;
        for (question, attempt) in &attempts {
            let told = place.callers.call(&place.history, question, Call::Consume(attempt.clone()), 0).await;
            assert_eq!(told, Told::Refused("APPROVAL_CONSUMED".to_owned()));
        }
        place.nothing_is_overdue().await;
        place.check(random.seed()).await;
    });
}
