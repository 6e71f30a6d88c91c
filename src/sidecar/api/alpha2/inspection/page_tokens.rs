//! The page tokens that the app has received.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use uuid::Uuid;

/// How many tokens are kept. Beyond that, the oldest becomes invalid.
const TOKENS_MAX: usize = 4096;

/// Keeps the tokens that stores make, and gives the app random names for them. A store's
/// token may contain the name at which the page ended, which can be that of another app.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageTokens(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    tokens: HashMap<Uuid, Box<str>>,
    /// The names, the oldest first.
    names: VecDeque<Uuid>,
}

impl PageTokens {
    /// A new name for a token; empty for the empty token, which means that there is no
    /// further page.
    pub(super) fn name(&self, token: String) -> String {
        if token.is_empty() {
            return token;
        }
        let name = Uuid::new_v4();
        let mut state = self.0.lock();
        if state.names.len() == TOKENS_MAX
            && let Some(oldest) = state.names.pop_front()
        {
            state.tokens.remove(&oldest);
        }
        state.names.push_back(name);
        state.tokens.insert(name, token.into());
        name.simple().to_string()
    }

    /// The token with this name; empty for the empty name, `None` if there is none.
    pub(super) fn find(&self, name: &str) -> Option<Box<str>> {
        if name.is_empty() {
            return Some("".into());
        }
        self.0.lock().tokens.get(&Uuid::try_parse(name).ok()?).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_name_which_does_not_reveal_it() {
        let tokens = PageTokens::default();
        let name = tokens.name("lock||other||secret".into());
        assert!(name.len() == 32 && !name.contains("secret"), "{name}");
        for _ in 0..2 {
            assert_eq!(tokens.find(&name).as_deref(), Some("lock||other||secret"));
        }
        assert_eq!(tokens.name(String::new()), "");
        assert_eq!(tokens.find("").as_deref(), Some(""));
        for bad in ["x", "lock||other||secret", &"0".repeat(32)] {
            assert_eq!(tokens.find(bad), None);
        }
    }

    #[test]
    fn the_oldest_tokens_are_forgotten() {
        let tokens = PageTokens::default();
        let names: Vec<_> = (0..=TOKENS_MAX).map(|at| tokens.name(at.to_string())).collect();
        assert_eq!(tokens.find(&names[0]), None);
        assert_eq!(tokens.find(&names[1]).as_deref(), Some("1"));
        assert_eq!(tokens.0.lock().tokens.len(), TOKENS_MAX);
    }
}
