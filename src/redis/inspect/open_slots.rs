//! Reads exclusive locks whose slots are open.
//!
//! While a slot is moved, one of two nodes has each key, and no call that needs several is
//! answered. So the keys of a resource are read one by one.

use ::redis::{Value, from_redis_value};
use leasehold_lock::{BackendError, ResourceId};
use tokio::time::Instant;

use super::{
    super::{
        keys::{Keys, Part},
        library::Verb,
        router::Router,
    },
    reads::strange,
    seen::{Seen, read_seen},
};

impl Router {
    /// Reads a resource key by key, without waiting for the end of the move.
    pub(super) async fn peek(
        &self,
        resource: &ResourceId,
        until: Instant,
    ) -> Result<Option<Seen>, BackendError> {
        let part = async |part| {
            let keys = Keys::Part(resource, part);
            let answer = self.call(Verb::Peek, keys, |_, _| {}, false, until).await?;
            let parts: Vec<Value> = from_redis_value(answer.value).map_err(|_| strange())?;
            Ok::<_, BackendError>(parts)
        };
        let mut record = part(Part::Record).await?;
        let mut own = part(Part::Resource).await?;
        let mut view = part(Part::Queue).await?;
        if view.is_empty() {
            view.push(Value::Int(0));
        }
        if let (Some(left_ms), Some(value)) = (own.pop(), own.pop()) {
            record.truncate(1);
            view.extend([value, record.pop().unwrap_or(Value::Nil), left_ms]);
        }
        Ok(read_seen(Value::Array(view)))
    }
}
