//! Starting, and resting, on a database with many rows.

use super::Plan;
use super::load::Caller;
use super::process::Server;
use super::report::{Bound, Part};
use super::world::{PRINCIPAL, World};
use crate::proto;
use prost::Message as _;
use std::io;

const PATH: &str = "/countersign.v1.ApproverService/ListApprovals";
/// What a small database has.
const FEW: usize = 1_000;
const MIB: f64 = 1024.0 * 1024.0;

/// Measures it.
pub(super) fn run(world: &World, plan: &Plan) -> io::Result<Part> {
    let mut part = Part::new("start");
    let binary = std::fs::metadata(std::env::current_exe()?)?.len();
    part.add("size of the binary", "MiB", mib(binary));
    let few = world.database("few.db", plan.rows.min(FEW), false)?;
    let many = world.database("many.db", plan.rows, false)?;
    let rows = plan.rows;
    let request = proto::ListApprovalsRequest { principal: PRINCIPAL.to_owned(), ..Default::default() };
    let request = request.encode_to_vec();
    for _ in 0..plan.rounds {
        let small = Server::sidecar(&world.config(), &few.place)?;
        let idle = small.memory()?;
        let large = Server::sidecar(&world.config(), &many.place)?;
        part.hold(
            format!("start to SERVING, {rows} rows"),
            "ms",
            large.started_in.as_secs_f64() * 1e3,
            Bound::AtMost(50.0),
        );
        part.hold("idle memory", "MiB", mib(idle.resident), Bound::AtMost(25.0));
        part.add("idle memory, its own", "MiB", mib(idle.own));
        let mut pages = Vec::new();
        for server in [&small, &large] {
            let mut caller = Caller::connect(server.address, PATH, Some(&world.approver_token))?;
            let answer = caller.call_once(&request)?;
            let page = proto::ListApprovalsResponse::decode(answer.as_slice()).map_err(io::Error::other)?;
            if page.approvals.is_empty() {
                return Err(io::Error::other("the page is empty"));
            }
            pages.push((server, caller, Vec::new(), Vec::new()));
        }
        // In turn, so that whatever else the machine does meets both.
        for _ in 0..plan.count(20) {
            for (server, caller, latencies, costs) in &mut pages {
                let cpu = server.cpu()?;
                let sample = caller.run(1, plan.span, std::iter::repeat_n(request.as_slice(), 5))?;
                let cpu = server.cpu()?.saturating_sub(cpu);
                latencies.push(sample.latency_us(0.5));
                costs.push(cpu.as_secs_f64() * 1e6 / f64::from(sample.answered.max(1)));
            }
        }
        let mut medians = pages.iter_mut().map(|(_, _, latencies, costs)| {
            (super::report::quantile(latencies, 0.5), super::report::quantile(costs, 0.5))
        });
        if let (Some((small_us, small_cpu)), Some((large_us, large_cpu))) = (medians.next(), medians.next()) {
            part.add("first page, few rows: p50", "us", small_us);
            part.add("first page, many rows: p50", "us", large_us);
            part.add("first page, few rows: CPU", "us/call", small_cpu);
            part.hold("first page, many rows to few: CPU", "", large_cpu / small_cpu, Bound::AtMost(2.0));
        }
        let memory = large.memory()?;
        part.hold(format!("memory after pages of {rows} rows"), "MiB", mib(memory.resident), Bound::AtMost(64.0));
    }
    Ok(part)
}

fn mib(bytes: u64) -> f64 {
    // Far below where a double stops counting.
    #[allow(clippy::cast_precision_loss)]
    let bytes = bytes as f64;
    bytes / MIB
}
