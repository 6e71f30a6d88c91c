//! Adjustable clocks of a process, by a library that is preloaded into it.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use tokio::time::Instant;

const SOURCE: &str = include_str!("../shim/clock.c");

/// Controls the clocks of a process.
#[derive(Debug)]
pub struct ClockShim {
    library: PathBuf,
    offset: File,
    offset_path: PathBuf,
    now_us: i64,
    hidden: Duration,
    /// Until when it repeats times that it has shown before.
    repeats_until: Option<Instant>,
    /// When the server last lost its data.
    data_lost: Option<Instant>,
}

impl ClockShim {
    /// Builds the library if necessary, and a correct clock.
    pub fn new(folder: &Path) -> anyhow::Result<Self> {
        let offset_path = folder.join("clock-offset");
        let offset = File::create(&offset_path)?;
        offset.write_all_at(&[0; 16], 0)?;
        Ok(Self {
            library: built()?,
            offset,
            offset_path,
            now_us: 0,
            hidden: Duration::ZERO,
            repeats_until: None,
            data_lost: None,
        })
    }

    /// Hides more time from the monotonic clock, as the suspension of a machine does. The
    /// clock never goes back if the process stands still for that time.
    pub fn hide(&mut self, time: Duration) -> anyhow::Result<()> {
        self.hidden += time;
        let us = i64::try_from(self.hidden.as_micros())?;
        Ok(self.offset.write_all_at(&us.to_ne_bytes(), 8)?)
    }

    /// The environment variables of the process.
    pub fn variables(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("CLOCK_SHIM_FILE", &self.offset_path)]
    }

    /// Lets the clock jump, forward or back.
    pub fn jump(&mut self, by_ms: i64) -> anyhow::Result<()> {
        self.now_us += by_ms * 1000;
        // Eight aligned bytes of one page: read whole, before or after.
        self.offset.write_all_at(&self.now_us.to_ne_bytes(), 0)?;
        let by = Duration::from_millis(by_ms.unsigned_abs());
        let now = Instant::now();
        let reached = self.repeats_until.map_or(now, |until| until.max(now));
        self.repeats_until =
            if by_ms < 0 { Some(reached + by) } else { reached.checked_sub(by) };
        Ok(())
    }

    /// Records that the server has lost its data now.
    pub fn data_lost(&mut self) {
        self.data_lost = Some(Instant::now());
    }

    /// Whether it was set back to before the last loss of data: tokens from before
    /// the loss may repeat.
    pub fn is_before_loss(&self) -> bool {
        let now = Instant::now();
        let (Some(lost), Some(until)) = (self.data_lost, self.repeats_until) else {
            return false;
        };
        now.saturating_duration_since(lost) < until.saturating_duration_since(now)
    }

    /// Whether it repeats times that it has shown before: tokens that are made
    /// from it alone would repeat.
    pub fn repeats(&self) -> bool {
        self.repeats_until.is_some_and(|until| Instant::now() < until)
    }
}

/// The library, built with the C compiler that Rust links with.
fn built() -> anyhow::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    SOURCE.hash(&mut hasher);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/clock-shim");
    let library = folder.join(format!("clock-{:016x}.so", hasher.finish()));
    if library.exists() {
        return Ok(library.canonicalize()?);
    }
    fs::create_dir_all(&folder)?;
    // Another process may be building it too, so each uses its own folder.
    let place = tempfile::tempdir_in(&folder)?;
    let (source, object) = (place.path().join("clock.c"), place.path().join("clock.so"));
    fs::write(&source, SOURCE)?;
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-o"])
        .args([&object, &source])
        .output()
        .context("cannot run cc, the C compiler that Rust links with")?;
    let problems = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "shim/clock.c does not compile: {problems}");
    fs::rename(&object, &library)?;
    Ok(library.canonicalize()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_to_before_a_loss_of_data_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let hour_ms = 3_600_000;
        let mut clock = ClockShim::new(folder.path()).unwrap();
        clock.jump(-hour_ms).unwrap();
        assert!(!clock.is_before_loss(), "nothing was lost");
        clock.data_lost();
        assert!(clock.is_before_loss());
        clock.jump(hour_ms).unwrap();
        assert!(!clock.is_before_loss(), "the clock is right again");
        clock.jump(-hour_ms).unwrap();
        assert!(clock.is_before_loss(), "in this order too");
    }
}
