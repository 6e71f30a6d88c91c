//! The results of runs, as text.

use std::{collections::BTreeMap, fmt};

use super::Situation;
use crate::{
    check::{Verdict, Write},
    faults::Injected,
    world::Weight,
};

/// The result of one round.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// The situation of its clients.
    pub situation: Situation,
    /// The injected faults.
    pub faults: Vec<Injected>,
    /// The result of the check.
    pub verdict: Verdict,
    /// The resources that each leasehold process used at the end.
    pub weights: Vec<Weight>,
}

/// The results of many rounds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Rounds.
    pub runs: usize,
    /// Their situations, by name.
    pub situations: BTreeMap<&'static str, usize>,
    /// Their verdicts, added up.
    pub verdict: Verdict,
    /// Faults by name.
    pub faults: BTreeMap<String, usize>,
}

impl Summary {
    /// Adds a round.
    pub fn add(&mut self, report: Report) {
        self.runs += 1;
        *self.situations.entry(report.situation.name()).or_default() += 1;
        for fault in report.faults {
            *self.faults.entry(fault.name).or_default() += 1;
        }
        let (sum, verdict) = (&mut self.verdict, report.verdict);
        sum.operations += verdict.operations;
        sum.unknown += verdict.unknown;
        sum.grants += verdict.grants;
        sum.ordered_pairs += verdict.ordered_pairs;
        sum.histories += verdict.histories;
        sum.violations.extend(verdict.violations);
        for (write, count) in verdict.excused {
            *sum.excused.entry(write).or_default() += count;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, situation, faults, verdict, .. } = self;
        write!(f, "seed {seed} ({}): {verdict}; {} faults", situation.name(), faults.len())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations ({} unknown), {} grants, {} ordered pairs, {} histories, {} violations",
            self.operations,
            self.unknown,
            self.grants,
            self.ordered_pairs,
            self.histories,
            self.violations.len()
        )?;
        for (write, count) in &self.excused {
            let lost = match write {
                Some(Write::Grant) => "a lost grant",
                Some(Write::Renewal) => "a lost renewal",
                Some(Write::Unlock) => "a lost unlock",
                None => "several lost writes",
            };
            write!(f, ", {count} excused by {lost}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} runs: {}", self.runs, self.verdict)?;
        write!(f, "situations:")?;
        for (name, count) in &self.situations {
            write!(f, " {name} {count},")?;
        }
        writeln!(f)?;
        write!(f, "{} faults:", self.faults.values().sum::<usize>())?;
        for (name, count) in &self.faults {
            write!(f, " {name} {count},")?;
        }
        Ok(())
    }
}
