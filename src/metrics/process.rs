//! What the system knows of this process, from `/proc`, where there is one. What cannot be read is left out.

use std::fs;

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    pub(super) cpu_seconds: Option<f64>,
    pub(super) resident_bytes: Option<i64>,
    pub(super) open_fds: Option<i64>,
    pub(super) max_fds: Option<i64>,
    pub(super) start_time: Option<f64>,
}

pub(super) fn read() -> Process {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let page = i64::try_from(rustix::param::page_size()).unwrap_or(0);
    let stat = Stat::parse(&text("/proc/self/stat"));
    let boot_time = text("/proc/stat").lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
    Process {
        cpu_seconds: stat.map(|stat| stat.cpu_ticks as f64 / ticks),
        resident_bytes: stat.map(|stat| stat.resident_pages.saturating_mul(page)),
        open_fds: fs::read_dir("/proc/self/fd")
            .ok()
            // One of them is the folder itself.
            .map(|entries| i64::try_from(entries.count().saturating_sub(1)).unwrap_or(i64::MAX)),
        max_fds: max_fds(&text("/proc/self/limits")),
        start_time: stat.zip(boot_time).map(|(stat, boot)| boot + stat.start_ticks as f64 / ticks),
    }
}

/// The soft limit of descriptors.
fn max_fds(limits: &str) -> Option<i64> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    start_ticks: u64,
    resident_pages: i64,
}

impl Stat {
    /// Reads `/proc/self/stat`, whose second field is the program's name in parentheses: any text.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        // The first of the rest is the third field of the whole.
        let field = |number: usize| rest.split_whitespace().nth(number.checked_sub(3)?);
        let number = |at: usize| field(at)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: number(14)?.checked_add(number(15)?)?,
            start_ticks: number(22)?,
            resident_pages: field(24)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_have_any_name() {
        let fields = "S 1 1 1 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 123456 1000000 2048 18446744073709551615";
        for name in ["countersign", "a b", ") R 1 (", "))", ""] {
            let stat = Stat::parse(&format!("42 ({name}) {fields}\n"));
            assert_eq!(stat, Some(Stat { cpu_ticks: 300, start_ticks: 123_456, resident_pages: 2048 }), "{name:?}");
        }
        for text in ["", "42", "42 (x", "42 (x) S", "42 (x) S 1 1 1 0 -1 0 0 0 0 0 a b 0 0 0 0 0 0 1 1 1"] {
            assert_eq!(Stat::parse(text), None, "{text:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_known() {
        let process = read();
        assert!(process.resident_bytes.unwrap() > 100_000);
        assert!(process.open_fds.unwrap() >= 3);
        assert!(process.max_fds.is_none_or(|most| most >= process.open_fds.unwrap()));
        assert!(process.start_time.unwrap() > 1_600_000_000.0);
        assert!(process.cpu_seconds.unwrap() >= 0.0);
    }
}
