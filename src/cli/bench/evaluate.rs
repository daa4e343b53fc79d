//! `Evaluate` against an empty call of the same size on the same transport.

use super::Plan;
use super::echo;
use super::load::{Caller, Sample};
use super::process::Server;
use super::report::{Bound, Part};
use super::world::{World, message};
use crate::proto;
use prost::Message as _;
use prost::bytes::Bytes;
use std::io;
use std::time::Duration;

pub(super) const PATH: &str = "/countersign.v1.AgentService/Evaluate";
/// The bytes before the content of a field of 128 to 16,383 bytes: its number and its length.
const FIELD: usize = 3;

/// One thing that is called over and over.
struct Series<'s> {
    name: &'static str,
    server: &'s Server,
    caller: Caller,
    message: Vec<u8>,
}

/// What one round of it came to.
struct Round {
    sample: Sample,
    cpu_us: f64,
}

/// Measures it.
pub(super) fn run(world: &World, plan: &Plan) -> io::Result<Part> {
    let database = world.database("evaluate.db", 0, false)?;
    let sidecar = Server::sidecar(&world.config(), &database.place)?;
    let token = Some(world.agent_token.as_str());
    let series = |name, connector| -> io::Result<Series<'_>> {
        let request = proto::EvaluateRequest { invocation: Some(message(connector, 1)), explain: false };
        let caller = Caller::connect(sidecar.address, PATH, token)?;
        Ok(Series { name, server: &sidecar, caller, message: request.encode_to_vec() })
    };
    let (mut plain, mut ruled) = (series("evaluate", "plain")?, series("evaluate with a rule", "ruled")?);
    let answer = plain.caller.call_once(&plain.message)?;
    expect_allowed(&answer)?;
    expect_allowed(&ruled.caller.call_once(&ruled.message)?)?;
    let echo = Server::echo(answer.len().saturating_sub(FIELD))?;
    let mut floor = Series {
        name: "empty call",
        server: &echo,
        caller: Caller::connect(echo.address, echo::PATH, token)?,
        message: Bytes::from(vec![b'q'; plain.message.len().saturating_sub(FIELD)]).encode_to_vec(),
    };
    if floor.caller.call_once(&floor.message)?.len() != answer.len() || floor.message.len() != plain.message.len() {
        return Err(io::Error::other("the empty call is not of the same size"));
    }

    let mut part = Part::new("evaluate");
    for round in 0..=plan.rounds {
        // The first round warms up, and is not counted.
        let mut counted = |name: String, unit, value, bound: Option<Bound>| match bound {
            _ if round == 0 => {}
            Some(bound) => part.hold(name, unit, value, bound),
            None => part.add(name, unit, value),
        };
        let mut cost = |in_flight: usize, first: Option<Bound>, second: Option<Bound>, rate: Option<Bound>| {
            let empty = floor.round(in_flight, plan.span)?;
            let evaluate = plain.round(in_flight, plan.span)?;
            let rule = ruled.round(in_flight, plan.span)?;
            for (series, round) in [(&floor, &empty), (&plain, &evaluate), (&ruled, &rule)] {
                let name = series.name;
                counted(format!("{name}, {in_flight} in flight: CPU"), "us/call", round.cpu_us, None);
                counted(format!("{name}, {in_flight} in flight: rate"), "calls/s", round.sample.rate(), None);
                counted(format!("{name}, {in_flight} in flight: p50"), "us", round.sample.latency_us(0.5), None);
                counted(format!("{name}, {in_flight} in flight: p99"), "us", round.sample.latency_us(0.99), None);
            }
            let above = evaluate.cpu_us - empty.cpu_us;
            counted(format!("evaluate above the empty call, {in_flight} in flight: CPU"), "us/call", above, first);
            let more = rule.cpu_us - evaluate.cpu_us;
            counted(format!("a rule more, {in_flight} in flight: CPU"), "us/call", more, second);
            let share = evaluate.sample.rate() / empty.sample.rate();
            counted(format!("evaluate to empty call, {in_flight} in flight: rate"), "", share, rate);
            Ok::<(), io::Error>(())
        };
        cost(64, Some(Bound::AtMost(6.0)), Some(Bound::AtMost(3.0)), Some(Bound::AtLeast(0.8)))?;
        cost(1, None, None, None)?;
    }
    Ok(part)
}

impl Series<'_> {
    fn round(&mut self, in_flight: usize, span: Duration) -> io::Result<Round> {
        let before = self.server.cpu()?;
        let sample = self.caller.run(in_flight, span, std::iter::repeat(self.message.as_slice()))?;
        let cpu = self.server.cpu()?.saturating_sub(before);
        Ok(Round { cpu_us: cpu.as_secs_f64() * 1e6 / f64::from(sample.answered.max(1)), sample })
    }
}

fn expect_allowed(answer: &[u8]) -> io::Result<()> {
    let answer = proto::EvaluateResponse::decode(answer).map_err(io::Error::other)?;
    if answer.decision() == proto::Decision::Allow {
        return Ok(());
    }
    Err(io::Error::other(format!("the policy of the benchmark answered {}: {}", answer.reason, answer.message)))
}
