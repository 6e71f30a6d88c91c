//! `leasehold watch`: a line for each change.

use std::collections::HashMap;

use futures_util::StreamExt as _;
use leasehold_net::inspection::json;
use leasehold_proto::locks as pb;

use crate::{
    Locks, ToolError,
    names::{ScopeArgs, shown},
    output::Output,
    text::{escaped, now},
};

/// The form of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum WatchForm {
    /// A line a change
    #[default]
    Table,
    /// The API's events, an object a line
    Ndjson,
}

/// The options of `watch`.
#[derive(Clone, Debug, clap::Args)]
pub struct WatchArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would print it")]
    pub scope: ScopeArgs,

    /// The form
    #[arg(short, long, value_enum, default_value_t)]
    pub output: WatchForm,
}

/// Prints each change until the watch fails.
pub async fn run(
    locks: &dyn Locks,
    args: &WatchArgs,
    output: &mut Output,
) -> Result<(), ToolError> {
    let asked =
        pb::WatchLocksRequest { scope: Some(args.scope.to_scope()), ..Default::default() };
    let mut events = locks.watch(asked).await?;
    let mut known = Known::default();
    while let Some(event) = events.next().await {
        let event = event?;
        if args.output == WatchForm::Ndjson {
            output.line(&json::of_event(&event).to_string())?;
        }
        for change in known.apply(event) {
            if args.output == WatchForm::Table {
                output.line(&format!("{} {change}", time()))?;
            }
        }
        output.flush()?;
    }
    Err(ToolError::unavailable("the watch has ended"))
}

/// The time, in seconds.
fn time() -> String {
    let mut now = prost_types::Timestamp::from(now());
    now.nanos = 0;
    now.to_string()
}

type Name = (Vec<String>, String);

/// The grants of a resource, as an event has them.
#[derive(Clone, Debug, Default)]
struct Grants {
    /// IDs and holders: of all of them, or of the first hundred.
    known: Vec<(String, String)>,
    total: i32,
}

impl Grants {
    fn are_all_known(&self) -> bool {
        usize::try_from(self.total).is_ok_and(|total| total <= self.known.len())
    }
}

/// What is held, as far as the watch has reported it.
#[derive(Default)]
struct Known {
    held: HashMap<Name, Grants>,
    /// What was held before the watch began again, and was not reported since.
    before: HashMap<Name, Grants>,
    /// Whether changes are printed: not before all states were reported once.
    has_begun: bool,
}

impl Known {
    /// Applies an event. Returns the changes, as lines.
    fn apply(&mut self, event: pb::LockEvent) -> Vec<String> {
        let mut changes = Vec::new();
        if event.restarted {
            self.before.extend(std::mem::take(&mut self.held));
        } else if let Some(state) = event.state {
            let name = (state.namespace, state.resource_id);
            let before = self
                .held
                .remove(&name)
                .or_else(|| self.before.remove(&name))
                .unwrap_or_default();
            let grants = state.grants.into_iter().map(|grant| (grant.grant_id, grant.holder));
            let now = Grants { known: grants.collect(), total: state.grants_total };
            changes = changed(&name, &before, &now, &event.ended);
            if now.total > 0 {
                self.held.insert(name, now);
            }
        } else if event.synced {
            for (name, grants) in self.before.drain() {
                changes.extend(all_ended(&name, &grants));
            }
            if !std::mem::replace(&mut self.has_begun, true) {
                return Vec::new();
            }
        }
        if self.has_begun { changes } else { Vec::new() }
    }
}

/// The changes of a resource.
fn changed(name: &Name, before: &Grants, now: &Grants, ends: &[pb::EndedGrant]) -> Vec<String> {
    let cause_of = |id: &str| {
        let is_it =
            |end: &&pb::EndedGrant| end.grant.as_ref().is_some_and(|g| g.grant_id == id);
        ends.iter().find(is_it).map(pb::EndedGrant::cause).unwrap_or_default()
    };
    if before.are_all_known() && now.are_all_known() {
        let gone = before.known.iter().filter(|grant| !now.known.contains(grant));
        let new = now.known.iter().filter(|grant| !before.known.contains(grant));
        let gone = gone.map(|(id, holder)| ended(name, cause_of(id), holder));
        return gone.chain(new.map(|(_, holder)| line(name, "granted", holder))).collect();
    }
    // Of many readers the event has the first and the ends.
    let mut changes: Vec<_> = ends
        .iter()
        .filter_map(|end| Some(ended(name, end.cause(), &end.grant.as_ref()?.holder)))
        .collect();
    let ended = i32::try_from(ends.len()).unwrap_or(i32::MAX);
    let more = now.total.saturating_sub(before.total).saturating_add(ended);
    if more > 0 {
        changes.push(line(name, &format!("granted to {more} more"), ""));
    }
    changes
}

/// The ends of all grants that a resource had before a watch was broken.
fn all_ended(name: &Name, grants: &Grants) -> Vec<String> {
    let unknown = pb::EndCause::Unknown;
    let known = grants.known.iter().map(|(_, holder)| ended(name, unknown, holder));
    let mut changes: Vec<_> = known.collect();
    if !grants.are_all_known() {
        changes.push(line(name, &format!("ended for all {}", grants.total), ""));
    }
    changes
}

fn ended(name: &Name, cause: pb::EndCause, holder: &str) -> String {
    match json::cause(cause) {
        "unknown" => line(name, "ended", holder),
        cause => line(name, &format!("ended ({cause})"), holder),
    }
}

fn line((namespace, resource): &Name, what: &str, holder: &str) -> String {
    let text = format!("{} {what} {}", escaped(&shown(namespace, resource)), escaped(holder));
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(resource: &str, grants: &[&str]) -> pb::LockEvent {
        state_of(resource, grants, grants.len())
    }

    /// The state of a resource with `total` grants, of which the event has these.
    fn state_of(resource: &str, grants: &[&str], total: usize) -> pb::LockEvent {
        let grants = grants.iter().map(|holder| pb::GrantInfo {
            grant_id: (*holder).to_owned(),
            holder: (*holder).to_owned(),
            ..Default::default()
        });
        let state = pb::LockState {
            resource_id: resource.into(),
            grants: grants.collect(),
            grants_total: i32::try_from(total).unwrap(),
            ..Default::default()
        };
        pb::LockEvent { state: Some(state), ..Default::default() }
    }

    fn synced() -> pb::LockEvent {
        pb::LockEvent { synced: true, ..Default::default() }
    }

    fn restarted() -> pb::LockEvent {
        pb::LockEvent { restarted: true, ..Default::default() }
    }

    fn began(events: impl IntoIterator<Item = pb::LockEvent>) -> Known {
        let mut known = Known::default();
        for event in events.into_iter().chain([synced()]) {
            assert!(known.apply(event).is_empty());
        }
        known
    }

    #[test]
    fn what_is_held_at_the_start_is_not_printed_but_its_end_is() {
        let mut known = began([state("r", &["a"])]);
        assert!(known.apply(synced()).is_empty());
        let mut free = state("r", &[]);
        free.ended = vec![pb::EndedGrant {
            grant: Some(pb::GrantInfo { grant_id: "a".into(), ..Default::default() }),
            cause: pb::EndCause::Expired.into(),
        }];
        assert_eq!(known.apply(free), ["r ended (expired) a"]);
    }

    fn end(holder: &str) -> pb::EndedGrant {
        let grant = pb::GrantInfo { holder: holder.into(), ..Default::default() };
        pb::EndedGrant { grant: Some(grant), cause: pb::EndCause::Released.into() }
    }

    /// One that moved into the event's part of the grants once counted as granted.
    #[test]
    fn of_more_readers_than_an_event_has_the_ends_and_a_count_are_printed() {
        let mut known = began([state_of("r", &["a", "b"], 3)]);
        let mut left = state_of("r", &["b", "c"], 3);
        left.ended = vec![end("a")];
        assert_eq!(known.apply(left), ["r ended (released) a", "r granted to 1 more"]);
        let mut left = state_of("r", &["b", "c"], 2);
        left.ended = vec![end("d")];
        assert_eq!(known.apply(left), ["r ended (released) d"]);
        assert_eq!(known.apply(state("r", &["b", "c", "e"])), ["r granted e"]);
    }

    #[test]
    fn a_holder_that_follows_another_is_two_changes() {
        let mut known = began([state("r", &["a"])]);
        assert_eq!(known.apply(state("r", &["b"])), ["r ended a", "r granted b"]);
        assert_eq!(known.apply(state("r", &["b", "c"])), ["r granted c"]);
    }

    #[test]
    fn what_changed_while_a_watch_was_broken_is_printed() {
        let mut known = began([state("r", &["a"]), state("s", &["b"]), state("t", &["c"])]);
        let after = [restarted(), state("r", &["a"]), state("s", &["d"])];
        let changes: Vec<_> = after.into_iter().flat_map(|event| known.apply(event)).collect();
        assert_eq!(changes, ["s ended b", "s granted d"]);
        assert_eq!(known.apply(synced()), ["t ended c"]);
    }

    #[test]
    fn a_watch_that_breaks_before_it_has_begun_prints_nothing() {
        let mut known = Known::default();
        for event in [state("r", &["a"]), restarted(), state("s", &["b"]), synced()] {
            assert!(known.apply(event).is_empty());
        }
        assert_eq!(known.apply(state("s", &[])), ["s ended b"]);
    }
}
