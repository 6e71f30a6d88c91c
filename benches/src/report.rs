//! Figures: medians of rounds, and ratios pair by pair.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The result of one measurement.
#[derive(Clone)]
pub(crate) struct Figures {
    /// Completed rounds of work a second.
    pub(crate) rate: f64,
    /// Latencies in microseconds.
    pub(crate) latency_us: Histogram<u64>,
}

impl Figures {
    /// The number of completed rounds of work.
    pub(crate) fn cycles(&self) -> f64 {
        u32::try_from(self.latency_us.len()).map_or(f64::NAN, f64::from)
    }

    pub(crate) fn ms(&self, quantile: f64) -> f64 {
        Duration::from_micros(self.latency_us.value_at_quantile(quantile)).as_secs_f64() * 1e3
    }
}

/// A histogram of microseconds, to three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    let mut latencies = Histogram::new_with_bounds(1, 120_000_000, 3)
        .unwrap_or_else(|_| unreachable!("the bounds are valid"));
    latencies.auto(true);
    latencies
}

/// The middle value.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The median of a figure over rounds.
pub(crate) fn median_of<T>(rounds: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    median(rounds.iter().map(figure).collect())
}

/// Prints a Markdown table row.
pub(crate) fn row(cells: &[String]) {
    println!("| {} |", cells.join(" | "));
}

/// Prints a heading and a Markdown table's header.
pub(crate) fn table(title: &str, columns: &[&str]) {
    println!("\n### {title}\n");
    println!("| {} |", columns.join(" | "));
    println!("|{}", "---|".repeat(columns.len()));
}
