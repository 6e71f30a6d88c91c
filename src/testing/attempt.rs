//! An attempt made from an input, for the harnesses of the backends.

use std::time::Duration;

use leasehold_lock::{Attempt, AttemptId, Holder, LockId, Mode, RequestId, ResourceId, Ttl};

use crate::Input;

/// Makes an attempt from the next bytes and lines; `None` if one of its names is invalid.
pub fn attempt(input: &mut Input<'_>) -> Option<Attempt> {
    let flags = input.byte();
    let ttl_ms = input.u64() % 86_400_000;
    Some(Attempt {
        id: AttemptId::random(),
        resource: ResourceId::new(input.text()).ok()?,
        lock_id: LockId::new(input.text()).ok()?,
        lock_id_given: flags & 1 != 0,
        request_id: RequestId::new(input.text()).ok()?,
        published: false,
        mode: if flags & 2 != 0 { Mode::Shared } else { Mode::Exclusive },
        holder: Holder::new(input.text()).ok()?,
        ttl: Ttl::new(Duration::from_millis(ttl_ms), Duration::from_secs(86_400)).ok()?,
    })
}
