//! Durable `Consume` against the same statements without a server, against a bare commit, and against an empty call.

use super::Plan;
use super::echo;
use super::load::{Caller, Sample};
use super::process::Server;
use super::report::{Bound, Part};
use super::world::{self, ASKED, Database, World, message};
use crate::domain::decision::PolicyReason;
use crate::domain::execution::Start;
use crate::domain::ids::{AttemptId, ExecutionId};
use crate::proto;
use crate::storage::Accepting;
use crate::storage::sqlite::BareConnection;
use prost::Message as _;
use prost::bytes::Bytes;
use std::io;
use std::time::{Duration, Instant};
use uuid::Uuid;

pub(super) const PATH: &str = "/countersign.v1.AgentService/Consume";
/// Callers at once, and statements in one commit.
const TOGETHER: usize = 64;
/// One after the other, for each of those that come together.
const ALONE: usize = 8;
/// Long enough for everything that is to be consumed.
const NO_END: Duration = Duration::from_secs(600);

/// Measures it.
pub(super) fn run(world: &World, plan: &Plan) -> io::Result<Part> {
    let rounds = plan.rounds as usize;
    let together = plan.count(4_000).next_multiple_of(TOGETHER);
    let alone = (together / ALONE).max(1);
    let each = together.saturating_add(alone);
    let served = world.database("served.db", each.saturating_mul(rounds), true)?;
    let bare = world.database("bare.db", each.saturating_mul(rounds), true)?;

    let messages = (0..served.copies.len()).map(|number| consume(&served, number)).collect::<io::Result<Vec<_>>>()?;
    let starts = (0..bare.copies.len()).map(|number| start(&bare, number)).collect::<io::Result<Vec<_>>>()?;
    let sidecar = Server::sidecar(&world.config(), &served.place)?;
    let mut caller = Caller::connect(sidecar.address, PATH, Some(&world.agent_token))?;
    // An answer is a permit: three ids, a time, a decision and a reason.
    let echo = Server::echo(180)?;
    let mut empty = Caller::connect(echo.address, echo::PATH, Some(&world.agent_token))?;
    let nothing = Bytes::from(vec![b'q'; messages.first().map_or(0, Vec::len)]).encode_to_vec();
    empty.run(1, plan.span, std::iter::repeat(nothing.as_slice()))?;
    let opened = world.runtime.block_on(BareConnection::open(&world.options(&world.file("bare.db"))));
    let mut connection = opened.map_err(io::Error::other)?;

    let mut part = Part::new("consume");
    for (messages, starts) in messages.chunks_exact(each).zip(starts.chunks_exact(each)) {
        let ((many, few), (batched, single)) = (messages.split_at(together), starts.split_at(together));
        let batched = in_process(world, &mut connection, batched, TOGETHER)?;
        let single = in_process(world, &mut connection, single, 1)?;
        let commits = commits(world, &mut connection, alone)?;
        let cpu = sidecar.cpu()?;
        let served = caller.run(TOGETHER, NO_END, many.iter().map(Vec::as_slice))?;
        let cpu = sidecar.cpu()?.saturating_sub(cpu);
        let lone = caller.run(1, NO_END, few.iter().map(Vec::as_slice))?;
        let echoed = empty.run(1, NO_END, few.iter().map(|_| nothing.as_slice()))?;

        part.add("in process, 64 to a commit: rate", "calls/s", batched.rate());
        part.add("in process, one to a commit: rate", "calls/s", single.rate());
        part.add("in process, one to a commit: p50", "us", single.latency_us(0.5));
        part.add("in process, one to a commit: p99", "us", single.latency_us(0.99));
        part.add("bare commit: p50", "us", commits.latency_us(0.5));
        part.add("bare commit: p99", "us", commits.latency_us(0.99));
        part.add("empty call, 1 caller: p50", "us", echoed.latency_us(0.5));
        part.add("empty call, 1 caller: p99", "us", echoed.latency_us(0.99));
        part.add("consume, 64 callers: rate", "calls/s", served.rate());
        part.add("consume, 64 callers: CPU", "us/call", cpu.as_secs_f64() * 1e6 / f64::from(served.answered.max(1)));
        part.add("consume, 64 callers: p50", "us", served.latency_us(0.5));
        part.add("consume, 64 callers: p99", "us", served.latency_us(0.99));
        part.add("consume, 1 caller: p50", "us", lone.latency_us(0.5));
        part.add("consume, 1 caller: p99", "us", lone.latency_us(0.99));
        let above = |share| lone.latency_us(share) - commits.latency_us(share) - echoed.latency_us(share);
        part.add("consume, 1 caller, above a commit and a call: p50", "us", above(0.5));
        let most = Bound::AtMost(100.0);
        part.hold("consume, 1 caller, above a commit and a call: p99", "us", above(0.99), most);
        let to = |floor: &Sample| served.rate() / floor.rate();
        part.hold("consume, 64 callers, to 64 to a commit: rate", "", to(&batched), Bound::AtLeast(0.6));
        part.hold("consume, 64 callers, to one to a commit: rate", "", to(&single), Bound::AtLeast(4.0));
    }
    world.runtime.block_on(connection.close()).map_err(io::Error::other)?;
    Ok(part)
}

/// The request that uses copy `number` up.
pub(super) fn consume(database: &Database, number: usize) -> io::Result<Vec<u8>> {
    let id = *database.copies.get(number).ok_or(io::ErrorKind::NotFound)?;
    let request = proto::ConsumeRequest {
        consume_token: database.keys.consume_token(id).to_string(),
        attempt_id: Uuid::new_v4().to_string(),
        invocation: Some(message(ASKED, number)),
        retry_of: String::new(),
    };
    Ok(request.encode_to_vec())
}

/// What the sidecar makes of such a request.
pub(super) fn start(database: &Database, number: usize) -> io::Result<(Start, Accepting)> {
    let question = &database.template.question;
    let start = Start {
        id: ExecutionId::new(Uuid::now_v7()),
        approval: database.copies.get(number).copied(),
        subject: world::invocation(ASKED, number)?.subject,
        caller: world::caller()?,
        attempt: AttemptId::new(Uuid::new_v4()),
        new_idempotency_key: Uuid::new_v4().to_string(),
        retry_of: None,
        policy_revision: question.policy_revision.clone(),
        decision: "CONFIRMATION_REQUIRED",
        reason: PolicyReason::ConfirmationByMode,
        report_within: Duration::from_secs(300),
    };
    Ok((start, Accepting::Digest(question.requirement.digest())))
}

fn in_process(
    world: &World,
    connection: &mut BareConnection,
    calls: &[(Start, Accepting)],
    batch: usize,
) -> io::Result<Sample> {
    let mut sample = Sample::default();
    let begin = Instant::now();
    for batch in calls.chunks(batch) {
        let before = Instant::now();
        let consumed = world.runtime.block_on(connection.consume(batch)).map_err(io::Error::other)?;
        if consumed != batch.len() {
            return Err(io::Error::other("an approval was not consumed"));
        }
        sample.latencies.push(before.elapsed());
        sample.answered += u32::try_from(consumed).unwrap_or(0);
    }
    sample.elapsed = begin.elapsed();
    Ok(sample)
}

fn commits(world: &World, connection: &mut BareConnection, count: usize) -> io::Result<Sample> {
    let mut sample = Sample::default();
    let begin = Instant::now();
    for _ in 0..count {
        let before = Instant::now();
        world.runtime.block_on(connection.commit()).map_err(io::Error::other)?;
        sample.latencies.push(before.elapsed());
        sample.answered += 1;
    }
    sample.elapsed = begin.elapsed();
    Ok(sample)
}
