//! `/metrics`: what is counted, through a real scrape. Labels are bounded whatever callers say, and a scrape waits for nobody.

use crate::backend::{hold_writes, intruder, let_write, run};
use crate::grpc::harness::*;
use crate::grpc::steps::*;
use crate::grpc::wire::{RawCall, http, http_get};
use countersign::proto::*;
use prost::Message as _;
use sqlx::Connection as _;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// A page, read strictly: every family is named once, with its help and its type, before its samples; every sample is of
/// the family that was named last and stands there once; buckets add up.
#[derive(Debug, Default)]
pub struct Page {
    /// Type by family.
    families: BTreeMap<String, String>,
    /// Value by series, its labels in order.
    series: BTreeMap<String, f64>,
}

impl Page {
    fn parse(text: &str, open_metrics: bool) -> Self {
        let mut page = Self::default();
        let mut lines: Vec<&str> = text.lines().collect();
        assert!(text.ends_with('\n'));
        if open_metrics {
            assert_eq!(lines.pop(), Some("# EOF"));
        }
        let (mut helped, mut family, mut kind) = (String::new(), String::new(), String::new());
        for line in lines {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(help.len() > 5, "{line}");
                helped = name.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, said) = rest.split_once(' ').unwrap();
                assert_eq!(name, helped, "help stands before the type");
                assert!(["counter", "gauge", "histogram", "info"].contains(&said), "{line}");
                (family, kind) = (name.to_owned(), said.to_owned());
                assert!(page.families.insert(family.clone(), kind.clone()).is_none(), "{name} is there twice");
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
                let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("{line} is not of {family}"));
                let allowed: &[&str] = match (kind.as_str(), open_metrics) {
                    ("counter", true) => &["_total"],
                    ("info", true) => &["_info"],
                    ("histogram", _) => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                assert!(allowed.contains(&suffix), "{line} of the {kind} {family}");
                let mut labels: Vec<&str> = labels.strip_suffix('}').unwrap().split("\",").collect();
                labels.sort_unstable();
                let value: f64 = value.parse().unwrap();
                assert!(value.is_finite() && (kind == "gauge" || value >= 0.0), "{line}");
                let series = format!("{name}{{{}}}", labels.join("\",").replace('"', ""));
                assert!(page.series.insert(series.clone(), value).is_none(), "{series} is there twice");
            }
        }
        page.check_histograms();
        page
    }

    fn check_histograms(&self) {
        for (count, total) in self.series.iter().filter(|(series, _)| series.contains("_count{")) {
            let (name, labels) = count.split_once("_count{").unwrap();
            let labels = labels.strip_suffix('}').unwrap();
            let prefix = format!("{name}_bucket{{");
            let bound_of = |series: &str| -> Option<f64> {
                let its = series.strip_prefix(&prefix)?.strip_suffix('}')?;
                let (bound, others): (Vec<&str>, Vec<&str>) =
                    its.split(',').partition(|label| label.starts_with("le="));
                let bound = bound[0].strip_prefix("le=")?;
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
                (others.join(",") == labels).then_some(bound)
            };
            let buckets = self.series.iter().filter_map(|(series, value)| Some((bound_of(series)?, *value)));
            let mut buckets: Vec<(f64, f64)> = buckets.collect();
            buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
            assert!(buckets.is_sorted_by(|one, other| one.0 < other.0 && one.1 <= other.1), "{count}: {buckets:?}");
            assert_eq!(buckets.last().unwrap(), &(f64::INFINITY, *total), "{count}");
            assert!(self.series.contains_key(&format!("{name}_sum{{{labels}}}")), "{count}");
        }
    }

    /// The value of a series, its labels in order; 0 for one that is not there.
    pub fn value(&self, series: &str) -> f64 {
        let series = if series.contains('{') { series.to_owned() } else { format!("{series}{{}}") };
        self.series.get(&series).copied().unwrap_or(0.0)
    }

    fn has(&self, series: &str) -> bool {
        self.series.contains_key(&format!("{series}{{}}"))
    }
}

/// What a scraper of Prometheus gets.
pub async fn scrape(sidecar: &Sidecar) -> Page {
    let (status, text) = http_get(sidecar.running().health_address(), "/metrics").await;
    assert_eq!(status, 200);
    Page::parse(&text, false)
}

/// Scrapes until it is so. What is counted after an answer was sent may be counted a moment later.
pub async fn until(sidecar: &Sidecar, what: &str, so: impl Fn(&Page) -> bool) -> Page {
    let waiting = async {
        loop {
            let page = scrape(sidecar).await;
            if so(&page) {
                return page;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap_or_else(|_| panic!("never: {what}"))
}

#[tokio::test]
async fn both_forms_are_well_formed_and_name_the_same_families() {
    let sidecar = Sidecar::start().await;
    sidecar.approved(email()).await;
    let address = sidecar.running().health_address();
    let (status, head, text) = http(address, "/metrics", "").await;
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    let plain = Page::parse(&text, false);
    let accept = "accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    let (status, head, text) = http(address, "/metrics", accept).await;
    assert_eq!(status, 200);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    let open = Page::parse(&text, true);
    let named: BTreeSet<String> = open
        .families
        .iter()
        .map(|(name, kind)| match kind.as_str() {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.clone(),
        })
        .collect();
    assert_eq!(named, plain.families.keys().cloned().collect());
}

#[tokio::test]
async fn a_story_is_counted_step_by_step() {
    let sidecar = Sidecar::start().await;
    sidecar.agent().evaluate(EvaluateRequest { invocation: Some(email()), explain: false }).await.unwrap();
    sidecar.agent().evaluate(EvaluateRequest { invocation: Some(fetch()), explain: true }).await.unwrap();
    let denied = Invocation { connector: "off".to_owned(), ..email() };
    sidecar.agent().evaluate(EvaluateRequest { invocation: Some(denied.clone()), explain: false }).await.unwrap();
    sidecar.request(denied).await.unwrap_err();
    let (asked, token) = sidecar.ask(email()).await;
    sidecar.advance(Duration::from_secs(70));
    sidecar.consume(&token, email()).await.unwrap_err();
    sidecar.decide("olga", &asked.id, Verdict::Approve).await.unwrap();
    let attempt = new_attempt();
    let permit = sidecar.attempt(&token, &attempt, email()).await.unwrap().permit.unwrap();
    sidecar.attempt(&token, &attempt, email()).await.unwrap();
    sidecar.agent().report_outcome(reported(&permit.execution_id, Outcome::Succeeded)).await.unwrap();
    sidecar.consume("", fetch()).await.unwrap();
    let withdrawn = sidecar.ask(in_conversation("2", email())).await.0;
    sidecar.cancel(&withdrawn).await.unwrap();

    let page = until(&sidecar, "every call is counted", |page| page.value("countersign_calls_under_way") == 0.0).await;
    for (series, want) in [
        ("countersign_sweeper_passes_total{result=failed}", 0.0),
        ("countersign_evaluations_total{decision=CONFIRMATION_REQUIRED,reason=CONFIRMATION_BY_MODE}", 1.0),
        ("countersign_evaluations_total{decision=ALLOW,reason=ALLOWED}", 1.0),
        ("countersign_evaluations_total{decision=DENY,reason=CONNECTOR_DISABLED}", 1.0),
        ("countersign_approvals_total{state=requested}", 2.0),
        ("countersign_approvals_total{state=approved}", 1.0),
        ("countersign_approvals_total{state=consumed}", 1.0),
        ("countersign_approvals_total{state=cancelled}", 1.0),
        ("countersign_approvals_total{state=denied}", 0.0),
        ("countersign_executions_started_total{by=approval}", 1.0),
        ("countersign_executions_started_total{by=policy}", 1.0),
        ("countersign_executions_reported_total{outcome=succeeded}", 1.0),
        ("countersign_replays_total", 1.0),
        ("countersign_time_to_decide_seconds_sum{verdict=APPROVE}", 70.0),
        ("countersign_time_to_decide_seconds_bucket{le=60,verdict=APPROVE}", 0.0),
        ("countersign_time_to_decide_seconds_bucket{le=120,verdict=APPROVE}", 1.0),
        ("countersign_refusals_total{reason=POLICY_DENIED}", 1.0),
        ("countersign_refusals_total{reason=APPROVAL_PENDING}", 1.0),
        ("countersign_refusals_total{reason=OTHER}", 0.0),
        ("countersign_calls_total{code=OK,method=countersign.v1.AgentService/Evaluate}", 3.0),
        ("countersign_calls_total{code=PERMISSION_DENIED,method=countersign.v1.AgentService/RequestApproval}", 1.0),
        ("countersign_calls_total{code=FAILED_PRECONDITION,method=countersign.v1.AgentService/Consume}", 1.0),
        ("countersign_calls_total{code=OK,method=countersign.v1.AgentService/Consume}", 3.0),
        ("countersign_call_duration_seconds_count{method=countersign.v1.AgentService/Consume}", 4.0),
        ("countersign_store_operation_duration_seconds_count{operation=consume}", 3.0),
        ("countersign_policy_loads_total{result=loaded}", 1.0),
        ("countersign_writer_batches_undone_total", 0.0),
    ] {
        assert_eq!(page.value(series), want, "{series}");
    }
    assert!(page.value("countersign_writer_commits_total") >= 8.0);
    assert!(page.value("countersign_writer_writes_total") >= page.value("countersign_writer_commits_total"));
    let revision = sidecar.operator().get_policy(GetPolicyRequest {}).await.unwrap().into_inner().revision;
    assert_eq!(page.value(&format!("countersign_policy_info{{revision={revision}}}")), 1.0);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(page.value(&format!("countersign_build_info{{version={version}}}")), 1.0);
    let loaded_at = START.micros() as f64 / 1e6;
    assert!((page.value("countersign_policy_last_load_timestamp_seconds") - loaded_at).abs() < 1.0);
}

#[tokio::test]
async fn the_audit_and_its_counters_say_the_same() {
    let sidecar = Sidecar::start().await;
    let (asked, _) = sidecar.ask(email()).await;
    // Overdue, it is written down as expired when the same is asked again, and by who comes too late.
    sidecar.move_to(asked.decide_by, 0);
    let (again, token) = sidecar.ask(email()).await;
    assert_ne!(again.id, asked.id);
    sidecar.decide("olga", &again.id, Verdict::Deny).await.unwrap();
    sidecar.consume(&token, email()).await.unwrap_err();
    let (late, _) = sidecar.ask(in_conversation("late", email())).await;
    sidecar.move_to(late.decide_by, 0);
    sidecar.decide("olga", &late.id, Verdict::Approve).await.unwrap_err();
    let (revoked, _) = sidecar.approved(in_conversation("revoked", email())).await;
    sidecar.revoke("olga", &revoked).await.unwrap();
    sidecar.revoke("olga", &again).await.unwrap_err();
    sidecar.cancel(&again).await.unwrap_err();
    // What the background work writes down, many to a statement, is counted as well.
    for name in ["swept-1", "swept-2"] {
        sidecar.ask(in_conversation(name, email())).await;
        sidecar.consume("", in_conversation(name, fetch())).await.unwrap();
    }
    sidecar.advance(Duration::from_secs(24 * 60 * 60));
    sidecar.running().sweeper().pass().await.unwrap();
    let page = scrape(&sidecar).await;
    let counts = sidecar.counts().await;
    assert_eq!((counts["approval.expired"], counts["execution.timed_out"]), (4, 2));
    let counted: BTreeMap<String, f64> = page
        .series
        .iter()
        .filter_map(|(series, count)| {
            let kind = series.strip_prefix("countersign_audit_records_total{kind=")?.strip_suffix('}')?;
            (*count > 0.0).then(|| (kind.to_owned(), *count))
        })
        .collect();
    assert_eq!(counted, counts.into_iter().map(|(kind, count)| (kind.to_owned(), count as f64)).collect());
    assert_eq!(page.value("countersign_approvals_total{state=expired}"), 4.0);
}

/// Everything that a caller can say, said in as many ways as there are rounds.
async fn say_everything(sidecar: &Sidecar, round: usize) {
    let hostile = [format!("agent-{round}"), format!("a\"}} 1\n# TYPE x{round} counter"), format!("{round}\\")];
    for name in &hostile {
        let named = Invocation {
            principal: name.clone(),
            agent: name.clone(),
            connector: name.clone(),
            action: name.clone(),
            account: name.clone(),
            conversation: name.clone(),
            arguments_json: format!("{{\"x\":{round}}}"),
            ..email()
        };
        let evaluate = EvaluateRequest { invocation: Some(named.clone()), explain: false };
        let _ = sidecar.agent().evaluate(evaluate.clone()).await;
        let _ = sidecar.agent_as("nobody").evaluate(evaluate.clone()).await;
        let _ = sidecar.agent_as("dana").evaluate(evaluate.clone()).await;
        let _ = sidecar.request(Invocation { conversation: name.clone(), ..email() }).await;
        let batch = BatchEvaluateRequest { requests: vec![evaluate; 3] };
        let _ = sidecar.agent().batch_evaluate(batch).await;
        let _ = sidecar.consume(name, named.clone()).await;
        let _ = sidecar.decide(name, name, Verdict::Approve).await;
    }
    sidecar.consume("", Invocation { conversation: round.to_string(), ..fetch() }).await.unwrap();
    for path in [
        format!("/countersign.v1.AgentService/Evaluate{round}"),
        format!("/x{round}/y"),
        format!("countersign.v1.AgentService/Evaluate?{round}"),
        "/countersign.v1.AgentService/Evaluate/".to_owned(),
    ] {
        let mut call = RawCall::open(sidecar.running().address(), &path, Some(&token("runtime"))).await;
        call.send(b"").await;
        call.gets_an_answer().await;
    }
}

#[tokio::test]
async fn no_name_that_a_caller_makes_up_makes_a_series() {
    let sidecar = Sidecar::start().await;
    say_everything(&sidecar, 0).await;
    let before = scrape(&sidecar).await;
    for round in 1..8 {
        say_everything(&sidecar, round).await;
    }
    let after = scrape(&sidecar).await;
    // What the process does by itself it does when it does.
    let names = |page: &Page| -> BTreeSet<String> {
        let of_its_own = ["pending", "operation=time", "operation=backlog", "operation=note_approver", "unwatched"];
        let told = |series: &&String| !of_its_own.iter().any(|word| series.contains(word));
        page.series.keys().filter(told).cloned().collect()
    };
    let new: Vec<String> = names(&after).difference(&names(&before)).cloned().collect();
    assert!(new.is_empty(), "{new:#?}");
    assert_eq!(before.families, after.families);
    for series in after.series.keys() {
        assert!(!series.contains("agent-") && !series.contains("gmail") && !series.contains("olga"), "{series}");
    }
    let unknown = "countersign_calls_total{code=UNIMPLEMENTED,method=unknown}";
    assert!(after.value(unknown) > before.value(unknown));
}

#[tokio::test]
async fn a_credential_that_opens_no_door_is_counted_by_why() {
    let sidecar = Sidecar::start().await;
    let evaluate = || EvaluateRequest { invocation: Some(email()), explain: false };
    sidecar.agent_as("dana").evaluate(evaluate()).await.unwrap_err();
    sidecar.agent_as("stranger").evaluate(evaluate()).await.unwrap_err();
    sidecar.agent_as("stranger").evaluate(evaluate()).await.unwrap_err();
    let page = scrape(&sidecar).await;
    for (reason, count) in [("ROLE_NOT_ALLOWED", 1.0), ("CREDENTIALS_INVALID", 2.0), ("CREDENTIALS_MISSING", 0.0)] {
        assert_eq!(page.value(&format!("countersign_credentials_refused_total{{reason={reason}}}")), count);
        assert_eq!(page.value(&format!("countersign_refusals_total{{reason={reason}}}")), count);
    }
    assert_eq!(page.value("countersign_evaluations_total{decision=DENY,reason=CONNECTOR_UNKNOWN}"), 0.0);
}

#[tokio::test]
async fn a_call_whose_client_goes_away_ends_as_cancelled() {
    let sidecar = Sidecar::start().await;
    let mut other = intruder(&sidecar).await;
    hold_writes(&mut other).await;
    let path = "/countersign.v1.AgentService/Consume";
    let cancelled = "countersign_calls_total{code=CANCELLED,method=countersign.v1.AgentService/Consume}";
    for patience in 1_u64.. {
        let mut call = RawCall::open(sidecar.running().address(), path, Some(&token("runtime"))).await;
        call.send(&attempted("", &new_attempt(), fetch()).encode_to_vec()).await;
        call.has_arrived().await;
        until(&sidecar, "the call began", |page| page.value("countersign_calls_under_way") == 1.0).await;
        tokio::time::sleep(Duration::from_millis(10 * patience)).await;
        drop(call);
        let page = until(&sidecar, "the call ended", |page| page.value("countersign_calls_under_way") == 0.0).await;
        if page.value(cancelled) > 0.0 {
            break;
        }
        // It went before its message was read, which is an end of another kind.
        assert!(patience < 20, "{:#?}", page.series);
    }
    let_write(&mut other).await;
    other.close().await.unwrap();
}

#[tokio::test]
async fn a_stream_is_open_until_it_ends_and_then_it_is_a_call() {
    let sidecar = Sidecar::start().await;
    let watch = || async {
        let request = HealthCheckRequest { service: String::new() };
        let mut watched = HealthClient::new(sidecar.channel()).watch(request).await.unwrap().into_inner();
        watched.message().await.unwrap().unwrap();
        watched
    };
    let (one, other) = (watch().await, watch().await);
    let open = "countersign_streams_open{method=grpc.health.v1.Health/Watch}";
    assert_eq!(scrape(&sidecar).await.value(open), 2.0);
    drop(one);
    let page = until(&sidecar, "one of them ended", |page| page.value(open) == 1.0).await;
    assert_eq!(page.value("countersign_calls_total{code=CANCELLED,method=grpc.health.v1.Health/Watch}"), 1.0);
    drop(other);
    until(&sidecar, "both ended", |page| page.value(open) == 0.0).await;
}

#[tokio::test]
async fn who_watches_is_counted_for_as_long_as_it_lasts() {
    let sidecar = Sidecar::start().await;
    let (approver, agent) = ("countersign_watchers{watcher=approver}", "countersign_watchers{watcher=agent}");
    let (asked, _) = sidecar.ask(email()).await;
    let request = WatchApprovalsRequest { principal: "olga".to_owned(), ..Default::default() };
    let mut listener = sidecar.approver().watch_approvals(request).await.unwrap().into_inner();
    listener.message().await.unwrap().unwrap();
    let request = WatchApprovalRequest {
        principal: asked.principal.clone(),
        agent: asked.agent.clone(),
        approval_id: asked.id.clone(),
    };
    let mut waiting = sidecar.agent().watch_approval(request).await.unwrap().into_inner();
    waiting.message().await.unwrap().unwrap();
    let page = scrape(&sidecar).await;
    assert_eq!((page.value(approver), page.value(agent)), (1.0, 1.0));
    // One ends by itself, once it is known; the other because nobody listens any more.
    sidecar.decide("olga", &asked.id, Verdict::Deny).await.unwrap();
    while waiting.message().await.unwrap().is_some() {}
    drop(listener);
    let page = until(&sidecar, "nobody watches", |page| page.value(approver) + page.value(agent) == 0.0).await;
    assert_eq!(page.value("countersign_calls_total{code=OK,method=countersign.v1.AgentService/WatchApproval}"), 1.0);
    let gone = "countersign_calls_total{code=CANCELLED,method=countersign.v1.ApproverService/WatchApprovals}";
    assert_eq!(page.value(gone), 1.0);
}

#[tokio::test]
async fn what_waits_for_people_is_told_with_its_age() {
    let sidecar = Sidecar::start().await;
    let (pending, age) = ("countersign_approvals_pending", "countersign_oldest_pending_age_seconds");
    until(&sidecar, "nothing waits", |page| page.has(pending) && page.value(pending) == 0.0).await;
    sidecar.ask(email()).await;
    sidecar.advance(Duration::from_secs(90));
    let page = until(&sidecar, "something waits", |page| page.value(pending) == 1.0).await;
    assert_eq!(page.value(age), 90.0);
}

#[tokio::test]
async fn a_scrape_is_answered_while_the_store_is_away_and_says_so() {
    let sidecar = Sidecar::start().await;
    let mut other = intruder(&sidecar).await;
    run(&mut other, "ALTER TABLE approvals RENAME TO elsewhere").await;
    sidecar.request(email()).await.unwrap_err();
    let page = until(&sidecar, "nobody knows what waits", |page| !page.has("countersign_approvals_pending")).await;
    assert!(!page.has("countersign_oldest_pending_age_seconds"));
    let failures = |operation: &str, cause: &str| {
        page.value(&format!("countersign_store_failures_total{{cause={cause},operation={operation}}}"))
    };
    assert!(failures("request", "unavailable") + failures("request", "inconsistent") >= 1.0, "{:#?}", page.series);
    run(&mut other, "ALTER TABLE elsewhere RENAME TO approvals").await;
    until(&sidecar, "it is known again", |page| page.has("countersign_approvals_pending")).await;
    other.close().await.unwrap();
}
