//! The threads that a process runs on.

use std::{env, io, thread::available_parallelism};

use tokio::runtime::{Builder, Runtime};

/// A runtime on half of the machine's cores, at least one: the callers and often
/// the backend need the others, and one busy worker is faster than two that wake
/// each other (docs/decisions/0007). `TOKIO_WORKER_THREADS` overrides the number.
///
/// # Errors
///
/// The system refuses threads or an event queue.
pub fn on_half_of_the_cores() -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if env::var_os("TOKIO_WORKER_THREADS").is_none() {
        let cores = available_parallelism().map_or(1, usize::from);
        builder.worker_threads((cores / 2).max(1));
    }
    builder.enable_all().build()
}
