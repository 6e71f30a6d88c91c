//! The page tokens that the app has received.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use leasehold_lock::Violation;
use leasehold_net::inspection::unknown_page;
use parking_lot::Mutex;
use uuid::Uuid;

/// How many tokens are kept. Beyond that, the oldest becomes invalid.
const TOKENS_MAX: usize = 4096;

/// Keeps the tokens that stores make, and gives the app random names for them. A store's
/// token may contain the name at which the page ended, which can be that of another app.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageTokens(Arc<Mutex<KeptTokens>>);

#[derive(Debug, Default)]
struct KeptTokens {
    tokens: HashMap<Uuid, String>,
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
        state.tokens.insert(name, token);
        name.simple().to_string()
    }

    /// The token with this name; empty for the empty name. The violation names `page_token`.
    pub(super) fn find(&self, name: &str) -> Result<String, Violation> {
        if name.is_empty() {
            return Ok(String::new());
        }
        let name = Uuid::try_parse(name).map_err(|_| unknown_page())?;
        self.0.lock().tokens.get(&name).cloned().ok_or_else(unknown_page)
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
            assert_eq!(tokens.find(&name).as_deref(), Ok("lock||other||secret"));
        }
        assert_eq!(tokens.name(String::new()), "");
        assert_eq!(tokens.find("").as_deref(), Ok(""));
        for bad in ["x", "lock||other||secret", &"0".repeat(32)] {
            assert_eq!(tokens.find(bad).unwrap_err().field, "page_token", "{bad}");
        }
    }

    #[test]
    fn the_oldest_tokens_are_forgotten() {
        let tokens = PageTokens::default();
        let names: Vec<_> = (0..=TOKENS_MAX).map(|at| tokens.name(at.to_string())).collect();
        assert!(tokens.find(&names[0]).is_err());
        assert_eq!(tokens.find(&names[1]).as_deref(), Ok("1"));
        assert_eq!(tokens.0.lock().tokens.len(), TOKENS_MAX);
    }
}
