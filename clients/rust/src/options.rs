//! The options of a request.

use std::time::Duration;

use crate::{
    error::{Error, Failure},
    raw,
};

/// Whether others may hold the lock at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Nobody else.
    #[default]
    Exclusive,
    /// Others that share it, too. Not every store supports this.
    Shared,
}

/// Not `Debug`: the request ID is a secret.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) resource: String,
    pub(crate) immediate: bool,
    pub(crate) wait: Option<Duration>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) mode: Mode,
    pub(crate) namespace: Vec<String>,
    pub(crate) label: String,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) request_id: String,
    pub(crate) stop_before: Option<Duration>,
    pub(crate) reentrant: bool,
}

impl Options {
    /// Names the first invalid option.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.resource.is_empty() {
            return Err(Failure::option("name", "is empty"));
        }
        for (option, value) in [("ttl", self.ttl), ("max_hold", self.max_hold)] {
            if value.is_some_and(|value| value.is_zero()) {
                return Err(Failure::option(option, "must be positive"));
            }
        }
        if let (Some(stop_before), Some(max_hold)) = (self.stop_before, self.max_hold)
            && stop_before >= max_hold
        {
            let problem =
                format!("is not shorter than max_hold of {} s", max_hold.as_secs_f64());
            return Err(Failure::option("stop_before", &problem));
        }
        Ok(())
    }

    pub(crate) fn request(&self, store: &str) -> raw::LockRequest {
        raw::LockRequest {
            immediate: self.immediate,
            resource_id: self.resource.clone(),
            ttl: self.ttl.map(to_wire),
            store_name: store.to_owned(),
            request_id: self.request_id.clone(),
            mode: match self.mode {
                Mode::Exclusive => raw::LockMode::Exclusive.into(),
                Mode::Shared => raw::LockMode::Shared.into(),
            },
            max_hold: self.max_hold.map(to_wire),
            label: self.label.clone(),
            wait: self.wait.map(to_wire),
            namespace: self.namespace.clone(),
            ..Default::default()
        }
    }
}

/// The longest that `google.protobuf.Duration` allows is 10,000 years.
const WIRE_MAX: Duration = Duration::from_secs(315_576_000_000);

fn to_wire(duration: Duration) -> prost_types::Duration {
    let duration = duration.min(WIRE_MAX);
    prost_types::Duration {
        seconds: duration.as_secs().try_into().unwrap_or(i64::MAX),
        nanos: duration.subsec_nanos().try_into().unwrap_or(i32::MAX),
    }
}

/// A negative or absent duration is zero.
pub(crate) fn from_wire(duration: Option<prost_types::Duration>) -> Duration {
    duration.and_then(|duration| duration.try_into().ok()).unwrap_or_default()
}
