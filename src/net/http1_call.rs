//! Whether a call is under way on an HTTP/1 connection, which has one at a time.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::Version;

/// Whether a call is under way on an HTTP/1 connection; unused for HTTP/2. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Http1Call(Arc<AtomicBool>);

impl Http1Call {
    /// Begins a call, which is under way until the returned value is dropped.
    pub(super) fn begin(&self, version: Version) -> Call {
        let is_http1 = version < Version::HTTP_2;
        if is_http1 {
            self.0.store(true, Ordering::Relaxed);
        }
        Call(is_http1.then(|| self.clone()))
    }

    pub(super) fn is_call_under_way(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A call that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct Call(Option<Http1Call>);

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(http1_call) = &self.0 {
            http1_call.0.store(false, Ordering::Relaxed);
        }
    }
}
