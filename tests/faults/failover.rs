//! A primary that is lost, and its synchronous standby in its place: whatever was acknowledged is on both.

use crate::cluster::Cluster;
use crate::load::Load;
use crate::place::{PATIENCE, PAUSE, Place, Way, blocking};
use crate::proxy::Proxy;
use crate::{CALLS, holds, run};
use sqlx::{Row as _, query, raw_sql};
use std::time::Instant;

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
    });
}
