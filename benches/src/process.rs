//! The kernel's figures of a process.

use std::fs;

use anyhow::{Context as _, Result};

/// The unit of `/proc/PID/stat`.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process's resident memory.
pub(crate) fn rss_mib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib: f64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().split(' ').next())
        .context("VmRSS")?
        .parse()?;
    Ok(kib / 1024.0)
}

/// User and system time of a process so far.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program, which may have spaces, ends in a parenthesis.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse::<f64>)
        .sum::<Result<f64, _>>()?;
    Ok(ticks / TICKS_PER_SECOND)
}
