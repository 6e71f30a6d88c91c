//! The locks that an app reports it could not unlock, in the answers to its health probes:
//!
//! ```json
//! {"details":{"lock":[{"store_name":"s","resource_id":"r","lock_id":"…","type":"unlock_fail"}]}}
//! ```
//!
//! The release of a lock that this sidecar granted is retried until it is settled. For
//! any other lock, the entry must have the grant's `fencing_token`: its lock ID may have
//! been used again since, and an old report must not end a later grant.

use std::collections::HashMap;

use futures_util::{StreamExt as _, stream};
use leasehold_held::Known;
use leasehold_lock::{FencingToken, LockError, LockId, ResourceId, UnlockRequest};
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::{
    api::alpha2::Locks,
    name::{Namespace, ResourceName},
};

/// How many entries of one answer are read.
const ENTRIES_MAX: usize = 1000;
/// How many answers may wait. More are dropped: the app repeats its reports.
pub const REPORTS_WAITING_MAX: usize = 1;
/// How many reported locks are settled at the same time.
const IN_FLIGHT_MAX: usize = 64;
/// The only type of entry.
const UNLOCK_FAILED: &str = "unlock_fail";

/// A lock that an app could not unlock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FailedUnlock {
    store_name: String,
    resource: ResourceName,
    lock_id: LockId,
    /// The token of the grant, if the app sent it.
    token: Option<FencingToken>,
}

/// The failed unlocks that one answer of an app reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    failed: Vec<FailedUnlock>,
    /// The problem of the first invalid entry.
    problem: Option<String>,
}

impl Reports {
    /// Reads the body of an answer. A body that is not about locks has no reports.
    #[must_use]
    pub fn read(body: &[u8]) -> Self {
        let answer = serde_json::from_slice::<Value>(body).unwrap_or_default();
        let Some(entries) = answer.pointer("/details/lock") else { return Self::default() };
        let Some(entries) = entries.as_array() else {
            return Self {
                problem: Some("details.lock is not an array".into()),
                ..Self::default()
            };
        };
        let mut reports = Self::default();
        if entries.len() > ENTRIES_MAX {
            let problem = format!(
                "it has {} entries; only the first {ENTRIES_MAX} are read",
                entries.len()
            );
            reports.problem = Some(problem);
        }
        for (at, entry) in entries.iter().take(ENTRIES_MAX).enumerate() {
            match FailedUnlock::read(entry) {
                Ok(failed) => reports.failed.push(failed),
                Err(problem) => {
                    reports.problem.get_or_insert(format!("details.lock[{at}].{problem}"));
                }
            }
        }
        reports
    }

    /// The reports of an answer that is too long to be read.
    #[must_use]
    pub fn too_long() -> Self {
        let problem =
            "the answer to the health probe has more than 64 KiB; nothing of it is read";
        Self { problem: Some(problem.into()), ..Self::default() }
    }

    /// Whether nothing is reported.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.failed.is_empty() && self.problem.is_none()
    }
}

impl FailedUnlock {
    fn read(entry: &Value) -> Result<Self, String> {
        let text =
            |name: &str| entry[name].as_str().ok_or_else(|| format!("{name} is not a string"));
        let kind = text("type")?;
        if kind != UNLOCK_FAILED {
            return Err(format!("type is {kind:?}; there is only {UNLOCK_FAILED:?}"));
        }
        let namespace = match &entry["namespace"] {
            Value::Null => Some(Vec::new()),
            Value::Array(segments) => {
                segments.iter().map(|segment| segment.as_str().map(str::to_owned)).collect()
            }
            _ => None,
        };
        let namespace = namespace.ok_or("namespace is not an array of strings")?;
        let namespace = Namespace::new(namespace).map_err(|bad| bad.to_string())?;
        let key = ResourceId::new(text("resource_id")?).map_err(|bad| bad.to_string())?;
        let token = match &entry["fencing_token"] {
            Value::Null => None,
            token => {
                let number = token.as_u64().and_then(FencingToken::new);
                Some(number.ok_or(
                    "fencing_token is not a positive whole number; give it without quotes",
                )?)
            }
        };
        Ok(Self {
            store_name: text("store_name")?.to_owned(),
            resource: ResourceName::new(&namespace, key).map_err(|bad| bad.to_string())?,
            lock_id: LockId::new(text("lock_id")?).map_err(|bad| bad.to_string())?,
            token,
        })
    }

    fn is_held_here(&self, locks: &Locks) -> bool {
        let resource = locks.resource(&self.store_name, &self.resource);
        resource.is_ok_and(|resource| {
            matches!(locks.engine().known(&resource, &self.lock_id), Known::Held(_))
        })
    }

    /// Ends the grant, or lets the engine do it. Returns why it is not settled.
    async fn settle(&self, locks: &Locks) -> Result<(), String> {
        let resource = locks.resource(&self.store_name, &self.resource);
        let resource = resource.map_err(|error| error.to_string())?;
        if locks.engine().give_up(&resource, &self.lock_id) {
            return Ok(());
        }
        let Some(token) = self.token else {
            if resource.store().is_ending(&resource.id, &self.lock_id) {
                return Ok(());
            }
            return Err(
                "it is not held through this sidecar; its fencing_token is needed".to_owned()
            );
        };
        let grant = UnlockRequest::grant(resource.id.clone(), self.lock_id.clone(), token);
        match resource.store().unlock(grant).await {
            Ok(()) => {
                let resource = self.resource.encoded().as_str();
                info!(store = self.store_name, resource, "unlocked as its app reported");
                Ok(())
            }
            // After an unknown outcome the store goes on releasing it by itself.
            Err(LockError::NotFound { .. } | LockError::OutcomeUnknown(_)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Ends the locks that are reported, until `queue` is closed. A lock that is reported again
/// after it was settled is left alone.
pub(super) async fn run(mut queue: mpsc::Receiver<Reports>, locks: Locks) {
    // The locks of the previous reports, and whether each is settled.
    let mut before = HashMap::new();
    let mut problem_before = None;
    while let Some(Reports { mut failed, problem }) = queue.recv().await {
        if problem != problem_before
            && let Some(problem) = &problem
        {
            warn!(problem, "the app's report of failed unlocks is not understood");
        }
        problem_before = problem;
        // Locks held here come first: settling them takes no time, and they must not be renewed
        // while others are waited for.
        failed.sort_by_key(|failed| !failed.is_held_here(&locks));
        let (locks, known) = (&locks, &before);
        let settling = stream::iter(failed).map(|failed| async move {
            if known.get(&failed) == Some(&true) {
                return (failed, true);
            }
            let settled = failed.settle(locks).await;
            if let Err(why) = &settled
                && !known.contains_key(&failed)
            {
                let resource = failed.resource.encoded().as_str();
                warn!(
                    store = failed.store_name,
                    resource, why, "a lock that its app could not unlock is not released yet"
                );
            }
            (failed, settled.is_ok())
        });
        before = settling.buffer_unordered(IN_FLIGHT_MAX).collect().await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry() -> Value {
        json!({ "store_name": "s", "resource_id": "r", "lock_id": "id", "type": "unlock_fail" })
    }

    fn with(name: &str, value: Value) -> Value {
        let mut entry = entry();
        entry[name] = value;
        entry
    }

    fn read(entries: &Value) -> Reports {
        Reports::read(json!({ "details": { "lock": entries } }).to_string().as_bytes())
    }

    #[test]
    fn an_entry_names_a_lock() {
        let mut entry = with("namespace", json!(["a", "b"]));
        entry["fencing_token"] = 7.into();
        let reports = read(&json!([entry]));
        assert_eq!(reports.problem, None);
        let [failed] = &reports.failed[..] else { panic!("{reports:?}") };
        assert_eq!((&*failed.store_name, failed.lock_id.as_str()), ("s", "id"));
        assert_eq!(failed.resource.encoded().as_str(), "||a/b//r");
        assert_eq!(failed.token, FencingToken::new(7));
    }

    #[test]
    fn an_answer_that_is_not_about_locks_reports_nothing() {
        for body in ["", "ok", "7", "[]", "{}", r#"{"details":{}}"#, r#"{"details":[]}"#, "{"] {
            assert!(Reports::read(body.as_bytes()).is_empty(), "{body:?}");
        }
        assert!(read(&json!([])).is_empty());
    }

    #[test]
    fn a_bad_entry_is_reported_and_the_others_are_read() {
        for (bad, name) in [
            (json!(7), "type"),
            (json!({}), "type"),
            (with("type", "other".into()), "type"),
            (with("store_name", 7.into()), "store_name"),
            (with("resource_id", "".into()), "resource_id"),
            (with("resource_id", "a||b".into()), "resource_id"),
            (with("lock_id", "".into()), "lock_id"),
            (with("lock_id", "x".repeat(257).into()), "lock_id"),
            (with("namespace", "a".into()), "namespace"),
            (with("namespace", json!([7])), "namespace"),
            (with("namespace", json!([""])), "namespace"),
            (with("fencing_token", 0.into()), "fencing_token"),
            (with("fencing_token", (-1).into()), "fencing_token"),
            (with("fencing_token", "7".into()), "fencing_token"),
        ] {
            let reports = read(&json!([entry(), bad, entry()]));
            assert_eq!(reports.failed.len(), 2, "{bad}");
            let problem = reports.problem.unwrap();
            assert!(problem.starts_with(&format!("details.lock[1].{name}")), "{problem}");
        }
        assert!(read(&json!({})).problem.is_some());
    }

    #[test]
    fn a_thousand_entries_are_read() {
        let reports = read(&json!(vec![entry(); 1001]));
        assert_eq!(reports.failed.len(), 1000);
        assert!(reports.problem.unwrap().contains("1001"));
        assert_eq!(read(&json!(vec![entry(); 1000])).problem, None);
    }
}
