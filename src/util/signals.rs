//! The signals that the process handles.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT. They are listened for from the moment that this is made: a signal that
/// comes while the process starts is not lost, and does not end the process without its
/// clean-up.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    /// Without a handler, SIGHUP would end the process.
    _hangup: Hangup,
}

/// SIGHUP, which makes the sidecar read its component YAML again.
#[derive(Debug)]
pub struct Hangup(Signal);

impl Hangup {
    /// Starts to listen. Must be called within a runtime.
    ///
    /// # Errors
    ///
    /// The system refuses another signal handler.
    pub fn listen() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Waits for a signal, or returns at once if one has come since the last call.
    pub async fn next(&mut self) {
        self.0.recv().await;
    }
}

impl StopSignals {
    /// Starts to listen. Must be called within a runtime.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _hangup: Hangup::listen()?,
        })
    }

    /// Waits for a signal, or returns at once if one has come since the last call.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
