//! Logs: `tracing`, for people or as JSON, on standard error.

use crate::config::LogFormat;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

/// Standard error for log lines. Where it is full, closed or broken, lines are lost and nothing else: whatever logs must go
/// on, and what cannot be logged cannot be complained of either.
struct Lines;

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = std::io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes log lines to standard error from now on. Standard output is for what a command answers.
///
/// # Errors
/// The filter is none, or a subscriber has been set before.
pub fn start(format: LogFormat, filter: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let filter = EnvFilter::try_new(filter)?;
    let lines = fmt::Subscriber::builder()
        .with_env_filter(filter)
        .with_writer(|| Lines)
        .log_internal_errors(false)
        .with_target(false);
    match format {
        LogFormat::Human => lines.with_ansi(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).try_init(),
    }
}
