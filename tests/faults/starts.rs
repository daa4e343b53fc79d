//! Sidecars that start at once on a database with nothing in it, and one whose clock is wrong.

use crate::cluster::Cluster;
use crate::load::Load;
use crate::place::{Place, Way, blocking};
use crate::{CALLS, holds, run};
use countersign::clock::{Clock, SystemClock};
use countersign::domain::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// A clock of a machine that somebody has set wrong.
#[derive(Debug)]
struct Wrong {
    right: SystemClock,
    ahead: bool,
}

impl Clock for Wrong {
    fn wall(&self) -> Timestamp {
        let (now, hour) = (self.right.wall(), Duration::from_secs(60 * 60));
        if self.ahead { now.plus(hour) } else { now.minus(hour) }
    }

    fn elapsed(&self) -> Duration {
        self.right.elapsed()
    }
}

#[test]
fn five_sidecars_that_start_at_once_on_an_empty_database_all_serve() {
    run(async |random| {
        let cluster = blocking(Cluster::start);
        let place = Place::empty(cluster.url("postgres"));
        let ways: Vec<Way> = (0..5).map(|_| Way::to(cluster.url("postgres"))).collect();
        place.start(&ways);
        let load = Load::on(&place, random);
        holds(&place, load, random).await;
    });
}

#[test]
fn a_sidecar_whose_clock_is_an_hour_off_decides_as_the_others_do() {
    run(async |random| {
        let cluster = blocking(Cluster::start);
        let place = Place::empty(cluster.url("postgres"));
        place.start(&[Way::to(cluster.url("postgres"))]);
        for ahead in [true, false] {
            let clock = Arc::new(Wrong { right: SystemClock::new(), ahead });
            place.start_here(&Way::to(cluster.url("postgres")), clock).await;
        }
        let load = Load::on(&place, random);
        load.answers(CALLS * 4).await;
        holds(&place, load, random).await;
    });
}
