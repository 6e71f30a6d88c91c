//! The figures of the process itself, under the names that all client libraries of Prometheus
//! use. Read from `/proc`.

use std::{fs, time::Duration};

use prometheus::{Counter, Gauge, IntGauge, Registry, Result};
use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

use super::families::registered;

/// The series `process_*`.
pub(crate) struct ProcessSeries {
    cpu_seconds: Counter,
    resident_bytes: IntGauge,
    virtual_bytes: IntGauge,
    threads: IntGauge,
    open_fds: IntGauge,
}

/// What `/proc/self/stat` says.
#[derive(Debug)]
struct Stat {
    cpu: Duration,
    threads: i64,
    /// After the start of the machine.
    started: Duration,
    virtual_bytes: i64,
    resident_bytes: i64,
}

impl ProcessSeries {
    pub(crate) fn register(registry: &Registry) -> Result<Self> {
        let gauge = |name, help| registered(registry, IntGauge::new(name, help)?);
        gauge("process_max_fds", "Maximum number of open file descriptors.")?
            .set(getrlimit(Resource::Nofile).current.map_or(i64::MAX, number));
        let started =
            Gauge::new("process_start_time_seconds", "Start time, in seconds since 1970.")?;
        registered(registry, started)?.set(started_at().unwrap_or_default().as_secs_f64());
        let cpu = Counter::new("process_cpu_seconds_total", "User and system CPU time spent.")?;
        Ok(Self {
            cpu_seconds: registered(registry, cpu)?,
            resident_bytes: gauge("process_resident_memory_bytes", "Resident memory size.")?,
            virtual_bytes: gauge("process_virtual_memory_bytes", "Virtual memory size.")?,
            threads: gauge("process_threads", "Number of threads.")?,
            open_fds: gauge("process_open_fds", "Number of open file descriptors.")?,
        })
    }

    /// Reads the figures. What cannot be read stays as it was.
    pub(crate) fn refresh(&self) {
        if let Some(stat) = Stat::read() {
            self.cpu_seconds.inc_by((stat.cpu.as_secs_f64() - self.cpu_seconds.get()).max(0.0));
            self.resident_bytes.set(stat.resident_bytes);
            self.virtual_bytes.set(stat.virtual_bytes);
            self.threads.set(stat.threads);
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // One of them is that of the folder.
            self.open_fds.set(i64::try_from(open.count()).unwrap_or(i64::MAX) - 1);
        }
    }
}

impl Stat {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name of the program, which may have spaces, ends in the last parenthesis.
        let fields: Vec<_> = stat.rsplit(')').next()?.split_whitespace().collect();
        let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            cpu: ticks(field(11)? + field(12)?),
            threads: number(field(17)?),
            started: ticks(field(19)?),
            virtual_bytes: number(field(20)?),
            resident_bytes: number(field(21)?.saturating_mul(page_size() as u64)),
        })
    }
}

/// When the process began, since 1970.
fn started_at() -> Option<Duration> {
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let booted = machine.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(Duration::from_secs(booted.parse().ok()?) + Stat::read()?.started)
}

fn ticks(ticks: u64) -> Duration {
    Duration::from_secs(ticks) / u32::try_from(clock_ticks_per_second()).unwrap_or(100)
}

fn number(figure: u64) -> i64 {
    i64::try_from(figure).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program_may_have_spaces_and_parentheses() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14 15 16 4 0 900 8192 3 0";
        let stat = Stat::parse(stat).unwrap();
        assert_eq!(stat.cpu, ticks(300));
        assert_eq!((stat.threads, stat.virtual_bytes), (4, 8192));
        assert_eq!(stat.resident_bytes, 3 * i64::try_from(page_size()).unwrap());
        assert!(Stat::parse("7 (a) S 1").is_none());
    }

    #[test]
    fn this_process_has_figures() {
        let registry = Registry::new();
        let series = ProcessSeries::register(&registry).unwrap();
        series.refresh();
        assert!(series.resident_bytes.get() > 1_000_000);
        assert!(series.threads.get() >= 1 && series.open_fds.get() >= 3);
        assert!(started_at().unwrap() > Duration::from_secs(1_600_000_000));
    }
}
