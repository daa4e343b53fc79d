//! Connections that are cut, that hang, and that there are too few of.

use crate::load::Load;
use crate::place::{PATIENCE, Place, Way, blocking};
use crate::proxy::Proxy;
use crate::random::Random;
use crate::{CALLS, cluster::Cluster, holds, run};
use sqlx::{Executor as _, query};
use std::time::{Duration, Instant};

/// Longer than a sidecar of this place waits for anything of its database.
const LONGER: Duration = Duration::from_millis(5_500);

/// Two sidecars, each with a way of its own to the database, under load.
async fn through_proxies(random: &mut Random) -> (Cluster, Place, [Proxy; 2], Load) {
    let cluster = blocking(Cluster::start);
    let proxies = [Proxy::to(cluster.port()).await, Proxy::to(cluster.port()).await];
    let place = Place::empty(cluster.url("postgres"));
    place.start(&[Way::to(proxies[0].url()), Way::to(proxies[1].url())]);
    let load = Load::on(&place, random);
    load.answers(CALLS).await;
    (cluster, place, proxies, load)
}

#[test]
fn connections_that_are_cut_lose_nothing_and_are_made_anew() {
    run(async |random| {
        let (_cluster, place, proxies, load) = through_proxies(random).await;
        for _ in 0..10 {
            proxies[random.below(2)].cut();
            tokio::time::sleep(Duration::from_millis(random.below(250) as u64)).await;
        }
        holds(&place, load, random).await;
    });
}

#[test]
fn connections_that_hang_hold_nobody_for_ever_and_lose_nothing() {
    run(async |random| {
        let (_cluster, place, proxies, load) = through_proxies(random).await;
        proxies[0].silent(true);
        // Whoever calls the other sidecar notices nothing.
        let since = Instant::now();
        while !place.serves(1).await {
            assert!(since.elapsed() < PATIENCE, "{}", place.logs());
        }
        tokio::time::sleep(LONGER).await;
        let longest = place.history.events().iter().filter_map(|event| Some(event.end? - event.start)).max();
        println!("the longest call took {} ms", longest.unwrap_or(0) / 1_000);
        place.check(random.seed()).await;
        // Statements that nobody waits for any more arrive now.
        proxies[0].silent(false);
        holds(&place, load, random).await;
        let unanswered = place.history.events().iter().filter(|event| event.end.is_none()).count();
        assert_eq!(unanswered, 0, "every call has an answer");
    });
}

#[test]
fn both_sidecars_whose_connections_hang_serve_again_once_they_do_not() {
    run(async |random| {
        let (_cluster, place, proxies, load) = through_proxies(random).await;
        proxies.iter().for_each(|proxy| proxy.silent(true));
        tokio::time::sleep(LONGER).await;
        proxies.iter().for_each(|proxy| proxy.silent(false));
        holds(&place, load, random).await;
    });
}

#[test]
fn a_full_pool_refuses_and_serves_once_it_is_not_full() {
    run(async |random| {
        let cluster = blocking(Cluster::start);
        let place = Place::empty(cluster.url("postgres"));
        let way = || Way { connections: 1, ..Way::to(cluster.url("postgres")) };
        place.start(&[way(), way()]);
        let load = Load::on(&place, random);
        load.answers(CALLS).await;
        // Each of these keeps whatever statement comes next, on the only connection that there is.
        for table in ["approvals", "executions", "audit_records"] {
            let mut connection = place.connection().await;
            let lock = sqlx::AssertSqlSafe(format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"));
            connection.execute(sqlx::raw_sql(lock)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            query("ROLLBACK").execute(&mut connection).await.unwrap();
        }
        holds(&place, load, random).await;
    });
}
