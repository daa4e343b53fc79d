//! What differs between the configuration that a process runs with and one that was read later.

use super::{Config, PostgresSettings, SqliteSettings, StoreSettings};

impl Config {
    /// The keys of `newer` that differ from this and are taken only at start, as the file spells them. Callers,
    /// the files of secrets and the content of TLS files are not among them: they are replaced while the sidecar runs.
    pub fn needs_restart(&self, newer: &Self) -> Vec<&'static str> {
        // Whoever adds a key says here whether it needs a restart.
        let Self {
            listen,
            socket_mode,
            health_listen,
            tls,
            doors,
            policy,
            policy_settle,
            reflection,
            grace_period,
            store,
            secret_file: _,
            further_secret_files: _,
            arguments_bytes,
            connections,
            handshake_timeout,
            question_limits,
            message_bytes,
            sweep_every,
            retention,
            preview,
            log_format,
            log_filter,
            audited_evaluations,
            permits,
            sealing,
            callers: _,
        } = self;
        let mut keys = changed([
            ("listen", *listen == newer.listen),
            ("socket_mode", *socket_mode == newer.socket_mode),
            ("health_listen", *health_listen == newer.health_listen),
            ("tls", *tls == newer.tls),
            ("doors.agent", doors.agent == newer.doors.agent),
            ("doors.approver", doors.approver == newer.doors.approver),
            ("doors.operator", doors.operator == newer.doors.operator),
            ("policy", *policy == newer.policy),
            ("policy_settle", *policy_settle == newer.policy_settle),
            ("reflection", *reflection == newer.reflection),
            ("grace_period", *grace_period == newer.grace_period),
            ("limits.arguments_bytes", *arguments_bytes == newer.arguments_bytes),
            ("limits.connections", *connections == newer.connections),
            ("limits.handshake_timeout", *handshake_timeout == newer.handshake_timeout),
            ("limits.open_per_principal", question_limits.per_principal == newer.question_limits.per_principal),
            ("limits.open_per_agent", question_limits.per_agent == newer.question_limits.per_agent),
            ("limits.open_per_action", question_limits.per_action == newer.question_limits.per_action),
            ("limits.asked_per_principal", question_limits.asked == newer.question_limits.asked),
            ("limits.cool_off", question_limits.cool_off == newer.question_limits.cool_off),
            ("limits.message_bytes", *message_bytes == newer.message_bytes),
            ("sweeper.every", *sweep_every == newer.sweep_every),
            ("retention", *retention == newer.retention),
            ("audit.evaluations", *audited_evaluations == newer.audited_evaluations),
            ("permits", *permits == newer.permits),
            ("audit.origin", sealing.origin == newer.sealing.origin),
            ("audit.seal_every", sealing.seal_every == newer.sealing.seal_every),
            ("audit.checkpoint_every", sealing.checkpoint_every == newer.sealing.checkpoint_every),
            ("audit.checkpoint_file", sealing.checkpoint_file == newer.sealing.checkpoint_file),
            ("preview", *preview == newer.preview),
            ("log.format", *log_format == newer.log_format),
            ("log.filter", *log_filter == newer.log_filter),
        ]);
        keys.extend(store.needs_restart(&newer.store));
        keys
    }
}

impl StoreSettings {
    fn needs_restart(&self, newer: &Self) -> Vec<&'static str> {
        match (self, newer) {
            (Self::Sqlite(settings), Self::Sqlite(newer)) => settings.needs_restart(newer),
            (Self::Postgres(settings), Self::Postgres(newer)) => settings.needs_restart(newer),
            (Self::Sqlite(_), Self::Postgres(_)) | (Self::Postgres(_), Self::Sqlite(_)) => vec!["store"],
        }
    }
}

impl SqliteSettings {
    fn needs_restart(&self, newer: &Self) -> Vec<&'static str> {
        let Self { path, accept_clock, readers, acquire_timeout, statement_timeout } = self;
        changed([
            ("store.sqlite", *path == newer.path),
            ("store.accept_clock", *accept_clock == newer.accept_clock),
            ("store.readers", *readers == newer.readers),
            ("store.acquire_timeout", *acquire_timeout == newer.acquire_timeout),
            ("store.statement_timeout", *statement_timeout == newer.statement_timeout),
        ])
    }
}

impl PostgresSettings {
    fn needs_restart(&self, newer: &Self) -> Vec<&'static str> {
        let Self {
            url,
            password,
            password_file,
            tls,
            root_certificate,
            client_certificate,
            connections,
            acquire_timeout,
            statement_timeout,
            poll_every,
            migrate,
            notify,
            clock: _,
        } = self;
        changed([
            ("store.postgres.url", *url == newer.url),
            ("COUNTERSIGN_POSTGRES_PASSWORD", *password == newer.password),
            ("store.postgres.password_file", *password_file == newer.password_file),
            ("store.postgres.tls", *tls == newer.tls),
            ("store.postgres.root_certificate_file", *root_certificate == newer.root_certificate),
            ("store.postgres.client_certificate_file", *client_certificate == newer.client_certificate),
            ("store.postgres.connections", *connections == newer.connections),
            ("store.acquire_timeout", *acquire_timeout == newer.acquire_timeout),
            ("store.statement_timeout", *statement_timeout == newer.statement_timeout),
            ("store.postgres.poll_every", *poll_every == newer.poll_every),
            ("store.postgres.migrate", *migrate == newer.migrate),
            ("store.postgres.notify", *notify == newer.notify),
        ])
    }
}

/// The keys of what is not the same.
fn changed<const N: usize>(keys: [(&'static str, bool); N]) -> Vec<&'static str> {
    keys.into_iter().filter_map(|(key, same)| (!same).then_some(key)).collect()
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
        newer.secret_file = "another".into();
        newer.store.sqlite_mut().unwrap().readers += 1;
        newer.policy_settle = Duration::from_secs(1);
        newer.connections += 1;
        let own = crate::config::OwnListener { address: newer.listen.clone(), socket_mode: 0o600, tls: None };
        newer.doors.approver = Some(own);
        newer.log_filter = "debug".to_owned();
        assert_eq!(
            config.needs_restart(&newer),
            ["doors.approver", "policy_settle", "limits.connections", "log.filter", "store.readers"]
        );
        let postgres = PostgresSettings::at("postgres://u@db/cs");
        newer.store = StoreSettings::Postgres(postgres.clone());
        assert_eq!(
            config.needs_restart(&newer),
            ["doors.approver", "policy_settle", "limits.connections", "log.filter", "store"]
        );
        let mut other = newer.clone();
        assert!(newer.needs_restart(&other).is_empty());
        let password = Some(zeroize::Zeroizing::new("hunter2".to_owned()));
        other.store = StoreSettings::Postgres(PostgresSettings { password, notify: false, ..postgres });
        assert_eq!(newer.needs_restart(&other), ["COUNTERSIGN_POSTGRES_PASSWORD", "store.postgres.notify"]);
    }
}
