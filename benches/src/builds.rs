//! Compares two builds of leasehold, on the same servers in turn, to see whether a
//! change has a cost. Or one build with metrics and without.

use std::path::Path;

use anyhow::Result;

use crate::{
    Options, cycles, handover,
    process::cpu_seconds,
    report::{Figures, median, median_of, row, table},
    stores::{Served, Store, each_store},
};

const WAITERS: [usize; 2] = [1, 100];

/// Compares the build of `options`, with these flags, with `against`, on each of these stores.
pub(crate) async fn compare(
    options: &Options,
    stores: &[impl AsRef<str>],
    against: &Path,
    flags: &[&str],
) -> Result<()> {
    table(
        "This build beside another, in turn (medians)",
        &[
            "store",
            "load",
            "this, a second",
            "the other, a second",
            "this/other",
            "CPU of a cycle, this/other",
            "the server's CPU of a cycle, this/other",
        ],
    );
    each_store(options, stores, async |store| on_store(options, &store, against, flags).await)
        .await
}

async fn on_store(
    options: &Options,
    store: &Store<'_>,
    against: &Path,
    flags: &[&str],
) -> Result<()> {
    let this = store.serve_with(&options.leasehold, flags).await?;
    let other = store.serve(against).await?;
    for &callers in &options.callers {
        let load = format!("lock and unlock, {callers} callers");
        let mut rounds = Rounds::default();
        for round in 0..options.rounds {
            let side = async |side: &Served| {
                cycles::measure(&side.client, callers, options.duration()).await
            };
            rounds.add(round, &this, &other, store.server, side).await?;
        }
        rounds.report(&store.title, &load);
    }
    for waiters in WAITERS {
        let load = format!("hand-over, {waiters} waiters");
        let mut rounds = Rounds::default();
        for round in 0..options.rounds {
            let side = async |side: &Served| {
                let run = handover::measure(&side.client, waiters, options.duration()).await?;
                Ok(run.figures)
            };
            rounds.add(round, &this, &other, store.server, side).await?;
        }
        rounds.report(&store.title, &load);
    }
    Ok(())
}

/// The results of both sides by rounds.
#[derive(Default)]
struct Rounds {
    this: Vec<Round>,
    other: Vec<Round>,
}

/// The rate and the cost of a build in a round.
struct Round {
    rate: f64,
    cpu_s_of_cycle: f64,
    /// That of the store's server; not a number if it has none.
    server_cpu_s_of_cycle: f64,
}

impl Round {
    async fn of(
        side: &Served,
        server: Option<u32>,
        measure: &impl AsyncFn(&Served) -> Result<Figures>,
    ) -> Result<Self> {
        let pid = side.leasehold.pid()?;
        let server_s = || server.map_or(Ok(f64::NAN), cpu_seconds);
        let (before_s, server_before_s) = (cpu_seconds(pid)?, server_s()?);
        let figures = measure(side).await?;
        let cycles = figures.cycles();
        Ok(Self {
            rate: figures.rate,
            cpu_s_of_cycle: (cpu_seconds(pid)? - before_s) / cycles,
            server_cpu_s_of_cycle: (server_s()? - server_before_s) / cycles,
        })
    }
}

impl Rounds {
    /// Measures both sides once. Each begins every other round, so that neither always
    /// follows the other.
    async fn add(
        &mut self,
        round: usize,
        this: &Served,
        other: &Served,
        server: Option<u32>,
        measure: impl AsyncFn(&Served) -> Result<Figures>,
    ) -> Result<()> {
        if round.is_multiple_of(2) {
            self.this.push(Round::of(this, server, &measure).await?);
            self.other.push(Round::of(other, server, &measure).await?);
        } else {
            self.other.push(Round::of(other, server, &measure).await?);
            self.this.push(Round::of(this, server, &measure).await?);
        }
        Ok(())
    }

    fn report(&self, store: &str, load: &str) {
        let ratio = |figure: fn(&Round) -> f64| {
            let pairs = self.this.iter().zip(&self.other);
            median(pairs.map(|(this, other)| figure(this) / figure(other)).collect())
        };
        row(&[
            store.to_owned(),
            load.to_owned(),
            format!("{:.0}", median_of(&self.this, |round| round.rate)),
            format!("{:.0}", median_of(&self.other, |round| round.rate)),
            format!("{:.2}", ratio(|round| round.rate)),
            format!("{:.2}", ratio(|round| round.cpu_s_of_cycle)),
            match ratio(|round| round.server_cpu_s_of_cycle) {
                none if none.is_nan() => "none".to_owned(),
                ratio => format!("{ratio:.2}"),
            },
        ]);
    }
}
