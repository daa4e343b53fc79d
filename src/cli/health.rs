//! `countersign health`: asks a sidecar's health, for probes that run a command.

use super::exit::Exit;
use super::remote::{self, Refused, TlsFlags};
use super::terminal;
use clap::Args;
use serde_json::json;
use std::io::{self, Write};
use std::time::Duration;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// What `health` is told.
#[derive(Args, Debug)]
pub(super) struct HealthCommand {
    /// The plaintext health listener, or one of doors: `unix:/PATH` of a socket, or `https://HOST:PORT`, the only form that is
    /// asked over TLS.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7401", value_parser = remote::server)]
    address: String,
    /// One service: `liveness`, or a gRPC service's full name [default: the sidecar as a whole].
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    service: String,
    /// How long the answer may take, such as `500ms`.
    #[arg(long, value_name = "SPAN", default_value = "5s", value_parser = remote::span)]
    timeout: Duration,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: TlsFlags,
}

/// 0 for `SERVING`, 1 for anything else that is answered, 3 for no answer.
pub(super) fn run(command: &HealthCommand, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let answer = remote::block_on(async {
        let channel = command.tls.channel_as_written(&command.address)?;
        let request = HealthCheckRequest { service: command.service.clone() };
        let mut health = HealthClient::new(channel);
        match tokio::time::timeout(command.timeout, health.check(request)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner().status()),
            Ok(Err(status)) => Err(Refused::of(&status)),
            Err(_) => Err(Refused::no_answer(command.timeout)),
        }
    })?;
    let (word, exit) = match answer {
        Ok(ServingStatus::Serving) => ("SERVING", Exit::Done),
        Ok(ServingStatus::NotServing) => ("NOT_SERVING", Exit::No),
        Ok(ServingStatus::Unknown | ServingStatus::ServiceUnknown) => ("UNKNOWN", Exit::No),
        Err(refused) if refused.code == Code::NotFound => ("SERVICE_UNKNOWN", Exit::No),
        Err(refused) => {
            writeln!(err, "{}: {refused}", command.address)?;
            let exit = if refused.is_usage() { Exit::Usage } else { Exit::Unreachable };
            ("UNREACHABLE", exit)
        }
    };
    if command.json {
        let answer = json!({ "address": command.address, "service": command.service, "status": word });
        writeln!(out, "{}", terminal::json(&answer))?;
    } else {
        writeln!(out, "{word}")?;
    }
    Ok(exit)
}
