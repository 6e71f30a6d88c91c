//! Whether events contain secrets.

use std::collections::{BTreeSet, HashSet};

use leasehold_proto::locks::LockEvent;

use crate::history::{Call, Operation};

/// Tokens below this are also the numbers of resources and clients.
const TOKEN_MIN: i64 = 1_000_000_000;

/// The words in the texts of events. A secret has no characters that end a word.
#[derive(Clone, Debug, Default)]
pub struct Words(HashSet<String>);

impl Words {
    /// Adds the texts of an event.
    pub fn add(&mut self, event: &LockEvent) {
        let states = event.state.iter();
        let ended = event.ended.iter().filter_map(|ended| ended.grant.as_ref());
        let grants = states.clone().flat_map(|state| &state.grants).chain(ended);
        let names = states.flat_map(|state| state.namespace.iter().chain([&state.resource_id]));
        for text in grants.flat_map(|grant| [&grant.grant_id, &grant.holder]).chain(names) {
            for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')) {
                if !self.0.contains(word) {
                    self.0.insert(word.to_owned());
                }
            }
        }
    }

    /// Adds the words of another watch.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend(other.0.iter().cloned());
    }

    /// Every word, in order.
    pub fn sorted(&self) -> impl Iterator<Item = &str> {
        let words: BTreeSet<_> = self.0.iter().map(String::as_str).collect();
        words.into_iter()
    }
}

impl<'a> FromIterator<&'a str> for Words {
    fn from_iter<T: IntoIterator<Item = &'a str>>(words: T) -> Self {
        Self(words.into_iter().map(str::to_owned).collect())
    }
}

/// The lock IDs, request IDs and tokens of a history that are among the words.
#[must_use]
pub fn leaked(words: &Words, operations: &[Operation]) -> Vec<String> {
    let mut leaked = BTreeSet::new();
    let mut look = |what: &str, secret: &str| {
        if words.0.contains(secret) {
            leaked.insert(format!("{what} {secret} was in an event"));
        }
    };
    for operation in operations {
        if let Some(asked) = operation.invocation.call.acquisition() {
            asked.lock_id.iter().for_each(|id| look("the lock ID", id));
            asked.request_id.iter().for_each(|id| look("the request ID", id));
        }
        if let Call::Renew { lock_id, .. } | Call::Unlock { lock_id } =
            &operation.invocation.call
        {
            look("the lock ID", lock_id);
        }
        if let Some(granted) = operation.granted() {
            look("the lock ID", &granted.lock_id);
            if granted.token >= TOKEN_MIN {
                look("the token", &granted.token.to_string());
            }
        }
    }
    leaked.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use leasehold_proto::locks::{EndedGrant, GrantInfo, LockState};

    use super::*;
    use crate::history::{Acquisition, Granted, Invocation, Outcome};

    /// A grant with the lock ID `lock-1`, the request ID `request-1` and the token
    /// 4711000000.
    fn operations() -> Vec<Operation> {
        let asked =
            Acquisition { request_id: Some("request-1".into()), ..Acquisition::default() };
        let granted = Granted {
            lock_id: "lock-1".into(),
            token: 4_711_000_000,
            grant_id: "public".into(),
            ..Granted::default()
        };
        let invocation = Invocation {
            id: 1,
            at_ns: 1,
            process: 1,
            client: 1,
            via: None,
            resource: "r".into(),
            call: Call::Try(asked),
        };
        vec![Operation { invocation, completion: Some((2, Outcome::Granted(granted))) }]
    }

    fn leaks(holder: &str, grant_id: &str) -> bool {
        let (holder, grant_id) = (holder.to_owned(), grant_id.to_owned());
        let grant = Some(GrantInfo { holder, grant_id, ..GrantInfo::default() });
        let mut words = Words::default();
        words.add(&LockEvent {
            state: Some(LockState { resource_id: "r".into(), ..LockState::default() }),
            ended: vec![EndedGrant { grant, cause: 1 }],
            ..LockEvent::default()
        });
        !leaked(&words, &operations()).is_empty()
    }

    #[test]
    fn what_everybody_may_know_is_no_secret() {
        assert!(!leaks("1-1", "public"));
    }

    #[test]
    fn lock_ids_request_ids_and_tokens_are_found() {
        assert!(leaks("1-1", "lock-1"));
        assert!(leaks("1-1 request-1", "public"));
        assert!(leaks("app/4711000000", "public"));
    }
}
