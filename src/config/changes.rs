//! What differs between the configuration that a process runs with and one that was read later.

use super::Config;

impl Config {
    /// The keys of `newer` that differ from this and are taken only at start, as the file spells them. Callers are not
    /// among them: they are replaced while the sidecar runs.
    pub fn needs_restart(&self, newer: &Self) -> Vec<&'static str> {
        // Whoever adds a key says here whether it needs a restart.
        let Self {
            listen,
            socket_mode,
            health_listen,
            policy,
            policy_settle,
            reflection,
            grace_period,
            sqlite,
            secret_file,
            further_secret_files,
            arguments_bytes,
            open_limits,
            sweep_every,
            retention,
            preview,
            log_format,
            log_filter,
            audited_evaluations,
            callers: _,
        } = self;
        [
            ("listen", *listen == newer.listen),
            ("socket_mode", *socket_mode == newer.socket_mode),
            ("health_listen", *health_listen == newer.health_listen),
            ("policy", *policy == newer.policy),
            ("policy_settle", *policy_settle == newer.policy_settle),
            ("reflection", *reflection == newer.reflection),
            ("grace_period", *grace_period == newer.grace_period),
            ("store.sqlite", sqlite.path == newer.sqlite.path),
            ("store.secret_file", *secret_file == newer.secret_file),
            ("store.further_secret_files", *further_secret_files == newer.further_secret_files),
            ("store.accept_clock", sqlite.accept_clock == newer.sqlite.accept_clock),
            ("store.readers", sqlite.readers == newer.sqlite.readers),
            ("store.acquire_timeout", sqlite.acquire_timeout == newer.sqlite.acquire_timeout),
            ("store.statement_timeout", sqlite.statement_timeout == newer.sqlite.statement_timeout),
            ("limits.arguments_bytes", *arguments_bytes == newer.arguments_bytes),
            ("limits.open_per_principal", open_limits.per_principal == newer.open_limits.per_principal),
            ("limits.open_per_agent", open_limits.per_agent == newer.open_limits.per_agent),
            ("sweeper.every", *sweep_every == newer.sweep_every),
            ("retention", *retention == newer.retention),
            ("audit.evaluations", *audited_evaluations == newer.audited_evaluations),
            ("preview", *preview == newer.preview),
            ("log.format", *log_format == newer.log_format),
            ("log.filter", *log_filter == newer.log_filter),
        ]
        .into_iter()
        .filter_map(|(key, same)| (!same).then_some(key))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;
    use std::time::Duration;

    #[test]
    fn what_is_taken_at_start_alone_is_named_and_callers_are_not() {
        let config = Config::load(None, &Overrides::default()).unwrap();
        assert!(config.needs_restart(&config).is_empty());
        let mut newer = config.clone();
        newer.callers = crate::auth::Callers::new(vec![]);
        assert!(config.needs_restart(&newer).is_empty());
        newer.sqlite.readers += 1;
        newer.policy_settle = Duration::from_secs(1);
        newer.log_filter = "debug".to_owned();
        assert_eq!(config.needs_restart(&newer), ["policy_settle", "store.readers", "log.filter"]);
    }
}
