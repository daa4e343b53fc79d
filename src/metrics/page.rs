//! The families, in the order in which they are shown. A family that has nothing to show yet is named all the same.

use super::calls::CODES;
use super::cells::{Counter, CounterBy, Gauge, Histogram, Label};
use super::{Metrics, Watcher, decision_of, process};
use crate::domain::audit::AuditKind;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;

/// The states that an approval reaches, with the record that says so.
const REACHED: [(&str, AuditKind); 7] = [
    ("requested", AuditKind::ApprovalRequested),
    ("approved", AuditKind::ApprovalApproved),
    ("denied", AuditKind::ApprovalDenied),
    ("cancelled", AuditKind::ApprovalCancelled),
    ("revoked", AuditKind::ApprovalRevoked),
    ("expired", AuditKind::ApprovalExpired),
    ("consumed", AuditKind::ApprovalConsumed),
];
/// What lets an execution start, with the record that says so.
const STARTED: [(&str, AuditKind); 2] =
    [("approval", AuditKind::ApprovalConsumed), ("policy", AuditKind::ExecutionStarted)];
const REPLAYED: [(&str, AuditKind); 1] = [("", AuditKind::ConsumeReplayed)];

/// The two forms of the text, which scrapers ask for with `accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The form that an `accept` header takes.
    pub fn accepted(accept: Option<&str>) -> Self {
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Self::OpenMetrics,
            Some(_) | None => Self::Prometheus,
        }
    }

    /// The content type of it.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

pub(super) fn text(metrics: &Arc<Metrics>, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(All(Arc::clone(metrics))));
    let mut page = String::new();
    let written = match format {
        Format::Prometheus => prometheus_text::encode(&mut page, &registry),
        Format::OpenMetrics => text::encode(&mut page, &registry),
    };
    // Writing to a text does not fail; were it to, half a page would be taken for the whole.
    if written.is_ok() { page } else { String::new() }
}

#[derive(Debug)]
struct All(Arc<Metrics>);

impl Collector for All {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        let metrics = &*self.0;
        connections(&mut page, metrics)?;
        calls(&mut page, metrics)?;
        decisions(&mut page, metrics)?;
        waiting(&mut page, metrics)?;
        audit(&mut page, metrics)?;
        seals(&mut page, metrics)?;
        store(&mut page, metrics)?;
        upkeep(&mut page, metrics)?;
        build(&mut page)?;
        system(&mut page)
    }
}

fn connections(page: &mut Page<'_>, metrics: &Metrics) -> fmt::Result {
    let connections = &metrics.connections;
    page.gauges(
        "countersign_connections_open",
        "Connections that are open, by listener.",
        connections.listeners().map(|listener| (vec![("listener", listener.name.text())], listener.open.get())),
    )?;
    page.by(
        "countersign_connections_refused",
        "Connections that were closed before any call.",
        "reason",
        &connections.refused,
    )?;
    page.counters(
        "countersign_tls_loads",
        "How often files of TLS were read, the start included, and whether they were taken.",
        [
            (vec![("result", "loaded")], connections.tls_loaded.get()),
            (vec![("result", "refused")], connections.tls_refused.get()),
        ],
    )?;
    let certified = connections.listeners().filter(|listener| listener.certificate_ends.get() != 0);
    page.gauges(
        "countersign_tls_certificate_end_timestamp_seconds",
        "When the certificate that a listener shows ends.",
        certified.map(|listener| (vec![("listener", listener.name.text())], listener.certificate_ends.get())),
    )
}

fn calls(page: &mut Page<'_>, metrics: &Metrics) -> fmt::Result {
    let calls = &metrics.calls;
    let by_code = calls.methods().flat_map(|method| {
        let codes = CODES.into_iter().zip(method.codes.iter().map(Counter::get));
        codes.map(|(code, count)| (vec![("method", method.name.as_str()), ("code", code)], count))
    });
    page.counters(
        "countersign_calls",
        "Calls that ended, by method and gRPC code.",
        by_code.filter(|(_, count)| *count > 0),
    )?;
    let lasted = calls.methods().filter(|method| method.duration.count() > 0);
    page.histograms(
        "countersign_call_duration_seconds",
        "How long calls took that answer once, from their head to their answer.",
        lasted.map(|method| (vec![("method", method.name.as_str())], &method.duration)),
    )?;
    let under_way = i64::try_from(calls.read_under_way()).unwrap_or(i64::MAX);
    page.gauge("countersign_calls_under_way", "Calls that have begun and have no answer yet.", Some(under_way))?;
    let streams = calls.methods().filter(|method| method.streams);
    page.gauges(
        "countersign_streams_open",
        "Streams that are open, by method.",
        streams.map(|method| (vec![("method", method.name.as_str())], method.open.get())),
    )?;
    let watchers = Watcher::ALL.iter().map(|watcher| (*watcher, metrics.watchers.of(*watcher)));
    page.gauges(
        "countersign_watchers",
        "Streams that tell somebody of approvals; without one of an approver nobody is told that something waits.",
        watchers.map(|(watcher, open): (Watcher, &Gauge)| (vec![("watcher", watcher.text())], open.get())),
    )?;
    page.counters(
        "countersign_refusals",
        "Calls, and items of a batch, that were refused, by stable reason.",
        calls.refusals().map(|(reason, count)| (vec![("reason", reason)], count)),
    )?;
    page.by("countersign_credentials_refused", "Credentials that opened no door.", "reason", &metrics.credentials)
}

fn decisions(page: &mut Page<'_>, metrics: &Metrics) -> fmt::Result {
    let evaluations = metrics
        .evaluations
        .read()
        .map(|(reason, count)| (vec![("decision", decision_of(reason)), ("reason", reason.as_str())], count));
    page.counters("countersign_evaluations", "What Evaluate answered, by decision and reason.", evaluations)?;
    let records = metrics.writer().map(|writer| writer.records).unwrap_or_default();
    let of = |kinds: &'static [(&'static str, AuditKind)]| {
        let records = &records;
        kinds.iter().filter_map(move |(value, kind)| {
            let (_, count) = records.iter().find(|(known, _)| known == kind)?;
            Some((*value, *count))
        })
    };
    page.counters(
        "countersign_approvals",
        "Approvals that reached a state, as it was written down.",
        of(&REACHED).map(|(state, count)| (vec![("state", state)], count)),
    )?;
    page.histograms(
        "countersign_time_to_decide_seconds",
        "From a question to each person's answer, by that answer.",
        metrics.time_to_decide.read().map(|(verdict, histogram)| (vec![("verdict", verdict)], histogram)),
    )?;
    page.counters(
        "countersign_executions_started",
        "Executions that started, by what let them through.",
        of(&STARTED).map(|(by, count)| (vec![("by", by)], count)),
    )?;
    page.by(
        "countersign_executions_reported",
        "Outcomes that were reported.",
        "outcome",
        &metrics.executions_reported,
    )?;
    page.counters(
        "countersign_replays",
        "Permits that were handed out again for the same attempt.",
        of(&REPLAYED).map(|(_, count)| (Vec::new(), count)),
    )
}

fn waiting(page: &mut Page<'_>, metrics: &Metrics) -> fmt::Result {
    let backlog = metrics.backlog.get();
    let pending = |pending| i64::try_from(pending).unwrap_or(i64::MAX);
    page.gauge(
        "countersign_approvals_pending",
        "Approvals that wait for people, up to 100000; none while the store does not say.",
        backlog.map(|waiting| pending(waiting.pending)),
    )?;
    page.gauge(
        "countersign_oldest_pending_age_seconds",
        "How long the oldest of them has waited.",
        backlog.map(|waiting| waiting.oldest_age.as_secs_f64()),
    )?;
    page.gauge(
        "countersign_approvals_unwatched",
        "Approvals that wait for people while nobody who may answer has looked for two minutes, through any sidecar.",
        backlog.map(|waiting| if waiting.is_unwatched { pending(waiting.pending) } else { 0 }),
    )
}

fn audit(page: &mut Page<'_>, metrics: &Metrics) -> fmt::Result {
    let records = metrics.writer().map(|writer| writer.records).unwrap_or_default();
    let records = records.iter().map(|(kind, count)| (vec![("kind", kind.as_str())], *count));
    page.counters("countersign_audit_records", "Audit records that were committed.", records)?;
    let queue = &metrics.evaluation_audit;
    page.gauge(
        "countersign_evaluation_audit_waiting",
        "Evaluations that were answered and whose record is not committed yet.",
        Some(queue.waiting.get()),
    )?;
    page.counter(
        "countersign_evaluation_audit_held",
        "Evaluations that were held back until there was a place for their record.",
        queue.held.get(),
    )?;
    page.counter(
        "countersign_evaluation_audit_refused",
        "Evaluations that were refused because there was no place for their record.",
        queue.refused.get(),
    )
}

fn seals(page: &mut Page<'_>, metrics: &Metrics) -> fmt::Result {
    let sealer = metrics.sealer();
    let figures = sealer.unwrap_or_default();
    page.counter("countersign_audit_sealed", "Audit records that this process sealed.", figures.sealed)?;
    page.gauge(
        "countersign_audit_seal_lag_seconds",
        "For how long the oldest audit record without a seal has had none.",
        sealer.map(|figures| figures.lag.as_secs_f64()),
    )?;
    page.counter("countersign_audit_seal_failures", "Passes of sealing that failed.", figures.failures)?;
    page.counter("countersign_audit_checkpoints", "Checkpoints that this process signed.", figures.checkpoints)?;
    page.counter(
        "countersign_audit_checkpoints_refused",
        "Checkpoints that were due and not signed, because the log is not what was signed before.",
        figures.refusals,
    )?;
    let newest = sealer.and_then(|figures| figures.newest);
    page.gauge(
        "countersign_audit_checkpoint_size",
        "Records that the newest checkpoint covers.",
        newest.map(|(size, _)| i64::try_from(size).unwrap_or(i64::MAX)),
    )?;
    page.gauge(
        "countersign_audit_checkpoint_timestamp_seconds",
        "When the newest checkpoint was signed.",
        newest.map(|(_, time)| time),
    )
}

fn store(page: &mut Page<'_>, metrics: &Metrics) -> fmt::Result {
    let operations = metrics.store.read();
    let done = operations.iter().filter(|operation| operation.duration.count() > 0);
    page.histograms(
        "countersign_store_operation_duration_seconds",
        "How long the store took, by operation, failed ones included.",
        done.map(|operation| (vec![("operation", operation.name)], &operation.duration)),
    )?;
    let failures = operations.iter().flat_map(|operation| {
        let failures = operation.failures.read().filter(|(_, count)| *count > 0);
        failures.map(|(cause, count)| (vec![("operation", operation.name), ("cause", cause.text())], count))
    });
    page.counters("countersign_store_failures", "Operations of the store that failed.", failures)?;
    let writer = metrics.writer();
    for (name, help, figure) in [
        ("countersign_writer_writes", "Writes that were committed.", writer.as_ref().map(|writer| writer.writes)),
        (
            "countersign_writer_commits",
            "Commits that those writes shared.",
            writer.as_ref().map(|writer| writer.commits),
        ),
        (
            "countersign_writer_batches_undone",
            "Batches that were undone because one of their writes failed.",
            writer.as_ref().and_then(|writer| writer.undone),
        ),
        (
            "countersign_writer_retries",
            "Writes that ran again because those of other sidecars were in the way.",
            writer.as_ref().and_then(|writer| writer.retries),
        ),
        (
            "countersign_writer_reconnects",
            "Times that a connection that writes was given up.",
            writer.as_ref().map(|writer| writer.reconnects),
        ),
    ] {
        page.counters(name, help, figure.map(|figure| (Vec::new(), figure)))?;
    }
    Ok(())
}

fn upkeep(page: &mut Page<'_>, metrics: &Metrics) -> fmt::Result {
    let policy = metrics.policy.in_force();
    let revision = policy.as_ref().map(|(revision, _)| vec![("revision", revision.as_str())]);
    page.info("countersign_policy", "The policy in force.", revision)?;
    page.counters(
        "countersign_policy_loads",
        "How often a policy was read, the start included, and whether it was taken.",
        [
            (vec![("result", "loaded")], metrics.policy.loaded.get()),
            (vec![("result", "refused")], metrics.policy.refused.get()),
        ],
    )?;
    page.gauge(
        "countersign_policy_last_load_timestamp_seconds",
        "When the policy in force was loaded, by the store's time.",
        policy.as_ref().map(|(_, at)| seconds(at.micros())),
    )?;
    page.gauge(
        "countersign_secrets_missing",
        "Server secrets that the table wants and this sidecar lacks; not ready while there is one.",
        Some(metrics.secrets_missing.get()),
    )?;
    let sweeper = metrics.sweeper();
    let passes = sweeper.map(|sweeper| [("done", sweeper.passes), ("failed", sweeper.failures)]);
    page.counters(
        "countersign_sweeper_passes",
        "Passes of the background work.",
        passes.into_iter().flatten().map(|(result, count)| (vec![("result", result)], count)),
    )?;
    let rows = sweeper.map(|sweeper| {
        [
            ("expired", sweeper.expired),
            ("timed_out", sweeper.timed_out),
            ("erased", sweeper.erased),
            ("deleted", sweeper.deleted),
        ]
    });
    page.counters(
        "countersign_sweeper_rows",
        "Rows that it wrote down as over, erased or deleted.",
        rows.into_iter().flatten().map(|(step, count)| (vec![("step", step)], count)),
    )?;
    page.gauge(
        "countersign_sweeper_lag_seconds",
        "How overdue the most overdue is that is not written down.",
        sweeper.map(|sweeper| sweeper.lag.as_secs_f64()),
    )
}

fn build(page: &mut Page<'_>) -> fmt::Result {
    let version = vec![("version", env!("CARGO_PKG_VERSION"))];
    page.info("countersign_build", "This binary.", Some(version))
}

/// Under the names that every exporter gives them.
fn system(page: &mut Page<'_>) -> fmt::Result {
    let process = process::read();
    let cpu = process.cpu_seconds;
    let mut metric = page.family("process_cpu_seconds", "Processor time that was used.", MetricType::Counter)?;
    if let Some(cpu) = cpu {
        metric.encode_counter::<NoLabelSet, f64, f64>(&cpu, None)?;
    }
    page.gauge("process_resident_memory_bytes", "Memory that is resident.", process.resident_bytes)?;
    page.gauge("process_open_fds", "Descriptors that are open.", process.open_fds)?;
    page.gauge("process_max_fds", "Descriptors that may be open.", process.max_fds)?;
    page.gauge("process_start_time_seconds", "When this process started.", process.start_time)
}

fn seconds(micros: i64) -> f64 {
    micros as f64 / 1_000_000.0
}

type Labels<'l> = Vec<(&'static str, &'l str)>;

/// A page that is being written.
struct Page<'e>(DescriptorEncoder<'e>);

impl Page<'_> {
    fn family<'p>(&'p mut self, name: &'p str, help: &str, kind: MetricType) -> Result<MetricEncoder<'p>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.counters(name, help, [(Vec::new(), value)])
    }

    fn by<L: Label>(&mut self, name: &str, help: &str, label: &'static str, counters: &CounterBy<L>) -> fmt::Result {
        self.counters(name, help, counters.read().map(|(value, count)| (vec![(label, value.text())], count)))
    }

    fn counters<'l>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<'l>, u64)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        for (labels, value) in series {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)?;
        }
        Ok(())
    }

    fn gauge<N: prometheus_client::encoding::EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        value: Option<N>,
    ) -> fmt::Result {
        self.gauges(name, help, value.map(|value| (Vec::new(), value)))
    }

    fn gauges<'l, N: prometheus_client::encoding::EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<'l>, N)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Gauge)?;
        for (labels, value) in series {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn histograms<'l, 'h>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<'l>, &'h Histogram)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Histogram)?;
        for (labels, histogram) in series {
            let (sum, count, buckets) = histogram.read();
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }

    fn info(&mut self, name: &str, help: &str, labels: Option<Labels<'_>>) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Info)?;
        match labels {
            Some(labels) => family.encode_info(&labels),
            None => Ok(()),
        }
    }
}
