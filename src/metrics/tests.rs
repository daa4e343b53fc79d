//! The page as a whole.

use super::*;

fn page(metrics: &Arc<Metrics>) -> String {
    metrics.text(Format::Prometheus)
}

#[test]
fn every_reason_of_the_policy_is_counted_with_the_decision_that_has_it() {
    let metrics = Arc::new(Metrics::default());
    for reason in PolicyReason::ALL {
        metrics.evaluations.one(reason);
    }
    let page = page(&metrics);
    for reason in PolicyReason::ALL {
        let decision = match reason {
            PolicyReason::Allowed => "ALLOW",
            reason if reason.as_str().starts_with("CONFIRMATION_") => "CONFIRMATION_REQUIRED",
            _ => "DENY",
        };
        let line = format!("countersign_evaluations_total{{decision=\"{decision}\",reason=\"{reason}\"}} 1\n");
        assert!(page.contains(&line), "{line} in {page}");
    }
}

#[test]
fn a_series_whose_value_nobody_knows_is_not_there() {
    let metrics = Arc::new(Metrics::default());
    let unknown =
        ["countersign_approvals_pending ", "countersign_sweeper_lag_seconds ", "countersign_writer_writes_total "];
    let has = |page: &str, name: &str| page.lines().any(|line| line.starts_with(name));
    assert!(unknown.iter().all(|name| !has(&page(&metrics), name)));
    metrics.backlog.read(Waiting { pending: 3, oldest_age: Duration::from_millis(1_500), is_unwatched: true });
    metrics.read_sweeper(|| Some(SweeperFigures { lag: Duration::from_secs(2), ..SweeperFigures::default() }));
    metrics.read_writer(|| Some(WriterFigures { writes: 7, ..WriterFigures::default() }));
    let known = page(&metrics);
    for line in [
        "countersign_approvals_pending 3\n",
        "countersign_oldest_pending_age_seconds 1.5\n",
        "countersign_approvals_unwatched 3\n",
        "countersign_sweeper_lag_seconds 2.0\n",
        "countersign_writer_writes_total 7\n",
    ] {
        assert!(known.contains(line), "{line} in {known}");
    }
    metrics.backlog.unknown();
    assert!(!has(&page(&metrics), "countersign_approvals_pending "));
}

#[test]
fn a_policy_that_is_refused_leaves_the_one_in_force() {
    let metrics = Arc::new(Metrics::default());
    metrics.policy.loaded("p1:one", Timestamp::from_micros(1_500_000));
    metrics.policy.refused();
    let first = page(&metrics);
    for line in [
        "countersign_policy_info{revision=\"p1:one\"} 1\n",
        "countersign_policy_last_load_timestamp_seconds 1.5\n",
        "countersign_policy_loads_total{result=\"loaded\"} 1\n",
        "countersign_policy_loads_total{result=\"refused\"} 1\n",
    ] {
        assert!(first.contains(line), "{line} in {first}");
    }
    metrics.policy.loaded("p1:two", Timestamp::from_micros(2_000_000));
    let second = page(&metrics);
    assert!(second.contains("p1:two") && !second.contains("p1:one"), "one revision at a time: {second}");
}

#[test]
fn a_watcher_counts_for_as_long_as_it_is_there() {
    let metrics = Arc::new(Metrics::default());
    let line = |open: i64| format!("countersign_watchers{{watcher=\"approver\"}} {open}\n");
    let (one, other) = (Watching::begin(&metrics, Watcher::Approver), Watching::begin(&metrics, Watcher::Approver));
    assert!(page(&metrics).contains(&line(2)));
    drop(one);
    assert!(page(&metrics).contains(&line(1)));
    drop(other);
    assert!(page(&metrics).contains(&line(0)));
}

#[test]
fn a_scraper_gets_the_form_that_it_takes() {
    let open = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    assert_eq!(Format::accepted(Some(open)), Format::OpenMetrics);
    for accept in [None, Some(""), Some("*/*"), Some("text/html"), Some("text/plain;version=0.0.4")] {
        assert_eq!(Format::accepted(accept), Format::Prometheus, "{accept:?}");
    }
}
