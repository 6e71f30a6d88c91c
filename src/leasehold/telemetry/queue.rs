//! A queue of log lines for a reader that may not read.
//!
//! A full pipe blocks its writer, and with it every task of the thread. So
//! lines are queued, and a dedicated thread writes them. Lines that do not fit
//! are dropped and counted.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tracing::warn;

/// Room for some ten thousand lines.
const QUEUED_BYTES_MAX: usize = 1024 * 1024;
/// The delay before a write to a full non-blocking target is retried.
const WRITE_DELAY: Duration = Duration::from_millis(10);

/// Of the process, which has one log.
static LINES_DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many log lines were dropped so far.
pub fn lines_dropped() -> u64 {
    LINES_DROPPED.load(Ordering::Relaxed)
}

/// Whole lines that are not written yet. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct LogQueue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<LogLines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogLines {
    queued: Vec<u8>,
    is_writing: bool,
    /// Lines dropped since the last report of dropped lines.
    dropped: u64,
}

impl LogQueue {
    /// Starts the thread that writes to `target`. It ends with the process.
    pub(super) fn start(target: impl Write + Send + 'static) -> io::Result<Self> {
        let queue = Self::default();
        let writing = queue.clone();
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writing.write_to(target))?;
        Ok(queue)
    }

    /// Waits until all lines are written, at most for `within`.
    pub(super) fn flush(&self, within: Duration) {
        let is_pending = |state: &mut LogLines| {
            state.is_writing || !state.queued.is_empty() || state.dropped > 0
        };
        let mut state = self.state();
        self.0.changed.wait_while_for(&mut state, is_pending, within);
    }

    /// Queues a line, or drops it.
    fn push(&self, line: &[u8]) {
        let mut state = self.state();
        if state.queued.len() + line.len() <= QUEUED_BYTES_MAX {
            state.queued.extend_from_slice(line);
        } else {
            state.dropped += 1;
            LINES_DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        self.0.changed.notify_all();
    }

    fn write_to(&self, mut target: impl Write) {
        let mut lines = Vec::new();
        loop {
            let dropped = {
                let mut state = self.state();
                state.is_writing = false;
                self.0.changed.notify_all();
                while state.queued.is_empty() && state.dropped == 0 {
                    self.0.changed.wait(&mut state);
                }
                state.is_writing = true;
                std::mem::swap(&mut lines, &mut state.queued);
                std::mem::take(&mut state.dropped)
            };
            // Without the lock, because the log line goes through `push`.
            if dropped > 0 {
                warn!(lines = dropped, "log lines were dropped: stderr was not read in time");
            }
            write_all(&mut target, &lines);
            lines.clear();
        }
    }

    fn state(&self) -> MutexGuard<'_, LogLines> {
        self.0.state.lock()
    }
}

/// Writes as much as possible. Errors are ignored, as they could not be logged.
fn write_all(target: &mut impl Write, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match target.write(bytes) {
            Ok(0) => return,
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Another process that shares the file may have made it non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(WRITE_DELAY);
            }
            Err(_) => return,
        }
    }
}

/// Each write is a whole line.
impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// A pipe without a buffer.
    struct Pipe(SyncSender<Vec<u8>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(4096);
            self.0.send(bytes[..count].to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn pipe() -> (LogQueue, Receiver<Vec<u8>>) {
        let (sender, receiver) = sync_channel(0);
        (LogQueue::start(Pipe(sender)).unwrap(), receiver)
    }

    const WITHIN: Duration = Duration::from_secs(10);

    #[test]
    fn what_is_read_comes_whole_and_in_order() {
        let (queue, receiver) = pipe();
        let reader = thread::spawn(move || {
            let mut text = Vec::new();
            while !text.ends_with(b"last\n") {
                text.extend(receiver.recv_timeout(WITHIN).unwrap());
            }
            String::from_utf8(text).unwrap()
        });
        let lines: Vec<_> = (0..5_000).map(|n| format!("line {n}\n")).collect();
        for line in &lines {
            queue.push(line.as_bytes());
        }
        queue.push(b"last\n");
        queue.flush(WITHIN);
        assert_eq!(reader.join().unwrap(), lines.concat() + "last\n");
    }

    #[test]
    fn what_does_not_fit_is_dropped_by_whole_lines_and_counted() {
        let (queue, receiver) = pipe();
        let line = [b'x'; 1023].into_iter().chain([b'\n']).collect::<Vec<_>>();
        queue.push(&line);
        // From here on, the thread is blocked in its write.
        while !queue.state().is_writing {
            thread::yield_now();
        }
        for _ in 0..2_000 {
            queue.push(&line);
        }
        assert_eq!(queue.state().queued.len(), QUEUED_BYTES_MAX);
        assert_eq!(queue.state().dropped, 2_000 - 1024);
        queue.flush(Duration::from_millis(1));
        drop(receiver);
    }
}
