//! The signals that the process handles.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, listened for from the moment that this is made: one
/// that comes while the process starts is not lost, nor does it end the
/// process without its clean-up.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    /// Keeps SIGHUP from ending the process.
    _hangup: Hangup,
}

/// SIGHUP, which asks to read component YAML again, and ends nothing.
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

    /// Ends when one comes, or has come since the last time.
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

    /// Ends when one comes, or has come since the last time.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
