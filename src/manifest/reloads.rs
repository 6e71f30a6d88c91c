//! Whether component YAML as it is now could be read and is applied.

use std::{collections::BTreeSet, fmt, sync::Arc};

use parking_lot::Mutex;

/// Reports whether component YAML as it is now could be read and is applied.
#[derive(Clone)]
pub struct Reloads(Arc<Inner>);

struct Inner {
    report: Box<dyn Fn(bool) + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_unreadable: bool,
    /// The names of the components whose YAML is not applied.
    unapplied: BTreeSet<String>,
}

impl Reloads {
    /// Calls `report` after each change: with whether all could be read and is applied.
    pub fn new(report: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { report: Box::new(report), state: Mutex::default() }))
    }

    /// Changed YAML was read: as a whole, or with problems.
    pub(super) fn read(&self, is_readable: bool) {
        self.note(|state| state.is_unreadable = !is_readable);
    }

    /// A component is in use as its YAML says, or was removed before it was in use.
    pub fn applied(&self, component: &str) {
        self.note(|state| {
            state.unapplied.remove(component);
        });
    }

    /// A component cannot be loaded as its YAML says, or is loaded and stays as it was.
    pub fn not_applied(&self, component: &str) {
        self.note(|state| {
            state.unapplied.insert(component.to_owned());
        });
    }

    fn note(&self, change: impl FnOnce(&mut State)) {
        // Locked until it is reported, so that reports come in the order of the changes.
        let mut state = self.0.state.lock();
        change(&mut state);
        (self.0.report)(!state.is_unreadable && state.unapplied.is_empty());
    }
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reloads")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An unrelated file that could be read hid a change that waits for a restart.
    #[test]
    fn what_is_not_applied_is_reported_until_it_is() {
        let (send, reported) = std::sync::mpsc::channel();
        let reloads = Reloads::new(move |is_applied| send.send(is_applied).unwrap());
        reloads.not_applied("changed");
        reloads.read(true);
        reloads.applied("other");
        reloads.applied("changed");
        reloads.read(false);
        reloads.read(true);
        drop(reloads);
        let reported: Vec<_> = reported.iter().collect();
        assert_eq!(reported, [false, false, false, true, false, true]);
    }
}
