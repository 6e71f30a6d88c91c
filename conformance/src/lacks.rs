//! What the answers of a store always lack. One case reports each of these, and the other
//! cases do without.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

/// The domain of every ErrorInfo of the protocol.
pub(crate) const DOMAIN: &str = "dapr.io";

/// What the store lacks, found out before the first case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lacks {
    /// No refusal has an ErrorInfo with the protocol's domain.
    pub(crate) error_info: bool,
    /// No refusal of a bad field has a BadRequest.
    pub(crate) bad_request: bool,
    /// RenewLock is UNIMPLEMENTED.
    pub(crate) renewal: bool,
}

impl fmt::Display for Lacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lacks = [
            ("ErrorInfo", self.error_info),
            ("BadRequest", self.bad_request),
            ("RenewLock", self.renewal),
        ];
        let names: Vec<_> =
            lacks.iter().filter(|(_, lacks)| *lacks).map(|(name, _)| *name).collect();
        f.write_str(&names.join(","))
    }
}

/// Checks that a case skipped because the store lacks something.
#[derive(Debug, Default)]
pub(crate) struct Missed {
    renewal: AtomicBool,
}

impl Missed {
    pub(crate) fn miss_renewal(&self) {
        self.renewal.store(true, Ordering::Relaxed);
    }

    /// Whether the case called RenewLock on a store without it. Then its outcome is
    /// meaningless.
    pub(crate) fn renewal(&self) -> bool {
        self.renewal.load(Ordering::Relaxed)
    }
}

/// The error of a case that needs an optional part of the protocol. The case is reported as
/// ignored, with this reason.
#[derive(Debug)]
pub(crate) struct Absent(pub(crate) String);

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Absent {}
