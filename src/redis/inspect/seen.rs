//! The library's view of a resource.

use std::time::Duration;

use ::redis::{Value, from_redis_value};
use leasehold_lock::{LockId, Mode, inspect::GrantView};

use super::{
    super::{
        entry::{Record, Terms},
        reply::{grant_view, read_since},
    },
    cursors::After,
};

/// A resource that was read.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(super) grants_total: usize,
    pub(super) waiters: usize,
    pub(super) grants: Vec<GrantView>,
    /// How far its grants were read, if there may be more.
    pub(super) next: Option<After>,
    /// The lock ID of its exclusive grant, if its request published that.
    pub(super) published: Option<LockId>,
}

/// Reads the view of a resource: see `library/inspect.lua`. `None` if another client
/// has written one of its keys.
pub(crate) fn read_seen(view: Value) -> Option<Seen> {
    let Value::Array(parts) = view else { return None };
    let mut parts = parts.into_iter();
    let waiters = from_redis_value(parts.next()?).ok()?;
    let seen = match parts.next() {
        None => Seen::default(),
        Some(Value::BulkString(value)) => read_exclusive(&value, parts.next()?, parts.next()?)?,
        Some(grants_total) => read_shared(grants_total, parts)?,
    };
    Some(Seen { waiters, ..seen })
}

/// Reads a key's value, the record beside it, if there is one, and when the key expires.
fn read_exclusive(value: &[u8], record: Value, left_ms: Value) -> Option<Seen> {
    let value = str::from_utf8(value).unwrap_or_default();
    // A hand-over is no grant yet.
    if Terms::of_hand_over(value).is_some() {
        return Some(Seen::default());
    }
    let remaining = read_remaining(left_ms)?;
    let record: Option<String> = from_redis_value(record).ok().flatten();
    let own = record.as_deref().and_then(Record::read);
    let own = own.filter(|record| !value.is_empty() && record.terms.lock_id == value);
    let is_published = own.is_some_and(|record| record.terms.is_published);
    let published = if is_published { LockId::new(value).ok() } else { None };
    let grant = own.map_or_else(
        || GrantView { remaining, foreign: true, ..GrantView::unknown(Mode::Exclusive) },
        |record| read_view(record, remaining),
    );
    Some(Seen { grants_total: 1, grants: vec![grant], published, ..Seen::default() })
}

/// Reads how many shared grants there are, a page of them, and how far that goes.
fn read_shared(grants_total: Value, mut parts: impl Iterator<Item = Value>) -> Option<Seen> {
    let grants_total = from_redis_value(grants_total).ok()?;
    let Value::Array(views) = parts.next()? else { return None };
    let next = match parts.next() {
        None | Some(Value::Nil) => None,
        Some(next) => {
            let (token, id): (String, String) = from_redis_value(next).ok()?;
            Some(After { since_ms: read_since(&token)?, id: id.parse().ok() })
        }
    };
    let read = |view| {
        let (record, left_ms): (String, Value) = from_redis_value(view).ok()?;
        Some(read_view(Record::read(&record)?, read_remaining(left_ms)?))
    };
    let grants = views.into_iter().filter_map(read).collect();
    Some(Seen { grants_total, grants, next, ..Seen::default() })
}

fn read_view(record: Record<'_>, remaining: Option<Duration>) -> GrantView {
    let Record { token, id, terms } = record;
    let view = grant_view(id, terms.mode, terms.holder, token);
    GrantView { remaining, foreign: view.id.is_none(), ..view }
}

/// The remaining time of a key. Foreign locks may have no end.
fn read_remaining(left_ms: Value) -> Option<Option<Duration>> {
    let left_ms: i64 = from_redis_value(left_ms).ok()?;
    Some(u64::try_from(left_ms).ok().map(Duration::from_millis))
}

#[cfg(test)]
mod tests {
    use leasehold_lock::Holder;

    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn id() -> String {
        "0123456789abcdef".repeat(2)
    }

    fn record(mode: &str, request: &str) -> Value {
        let requests = request.len();
        text(&format!("7000:{}:c1a:{mode}:1:1500:00:2:{requests}:my{request}me", id()))
    }

    fn exclusive(value: &str, record: Value) -> Seen {
        let view = [Value::Int(2), text(value), record, Value::Int(1500)];
        read_seen(Value::Array(view.into())).unwrap()
    }

    #[test]
    fn an_exclusive_grant_is_read_from_its_record() {
        let seen = exclusive("my", record("x", "request"));
        assert_eq!((seen.grants_total, seen.waiters, seen.published), (1, 2, None));
        let [grant] = seen.grants.as_slice() else { panic!("{:?}", seen.grants) };
        assert_eq!((grant.id, grant.since_unix_ms), (id().parse().ok(), Some(7)));
        assert_eq!(grant.holder.as_ref().map(Holder::as_str), Some("me"));
        assert_eq!(grant.remaining, Some(Duration::from_millis(1500)));
        assert!(!grant.foreign);
    }

    #[test]
    fn a_request_that_publishes_shows_the_lock_id() {
        let record = text(&format!("7000:{}:c1a:x:1:1500:01:2:0:myme", id()));
        let seen = exclusive("my", record);
        assert_eq!(seen.published, LockId::new("my").ok());
    }

    #[test]
    fn a_value_that_is_not_the_records_is_foreign() {
        for (value, record) in [
            ("other", record("x", "")),
            ("my", Value::Nil),
            ("my", text("7000:junk")),
            ("", record("x", "")),
            ("\x01s00", Value::Nil),
        ] {
            let seen = exclusive(value, record);
            assert!(seen.published.is_none());
            let [grant] = seen.grants.as_slice() else { panic!("{:?}", seen.grants) };
            assert!(grant.foreign && grant.id.is_none() && grant.remaining.is_some());
        }
    }

    #[test]
    fn a_hand_over_is_nobodys_grant() {
        let value = format!("\x01{}:{}:x:1:1500:00:2:0:myme", id(), id());
        let seen = exclusive(&value, Value::Nil);
        assert!(seen.grants_total == 0 && seen.grants.is_empty() && seen.waiters == 2);
    }

    #[test]
    fn shared_grants_are_read_with_where_they_go_on() {
        let view = Value::Array(vec![record("s", "r"), Value::Int(1500)]);
        let next = Value::Array(vec![text("7000"), text(&id())]);
        let view = [Value::Int(2), Value::Int(40), Value::Array(vec![view]), next];
        let seen = read_seen(Value::Array(view.into())).unwrap();
        assert_eq!((seen.grants_total, seen.waiters), (40, 2));
        assert_eq!(seen.next, Some(After { since_ms: 7, id: id().parse().ok() }));
        let [grant] = seen.grants.as_slice() else { panic!("{:?}", seen.grants) };
        assert_eq!(
            (grant.mode, grant.remaining),
            (Mode::Shared, Some(Duration::from_millis(1500)))
        );
    }

    #[test]
    fn a_free_resource_has_no_grants() {
        let seen = read_seen(Value::Array(vec![Value::Int(3)])).unwrap();
        assert!(seen.grants_total == 0 && seen.grants.is_empty() && seen.waiters == 3);
    }

    #[test]
    fn a_resource_that_is_not_as_leasehold_writes_it_is_unreadable() {
        let next = Value::Array(vec![text("1.5"), text("")]);
        for odd in [
            Value::Nil,
            Value::Int(1),
            Value::Array(vec![Value::Int(1), Value::Int(0)]),
            Value::Array(vec![Value::Int(1), text("my"), record("x", "")]),
            Value::Array(vec![Value::Int(1), Value::Int(1), Value::Array(Vec::new()), next]),
        ] {
            assert!(read_seen(odd.clone()).is_none(), "{odd:?}");
        }
    }
}
