//! Pages of lists, and their tokens.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use leasehold_lock::{
    Violation,
    inspect::{Cursor, PAGE_BYTES_MAX, PageRequest},
};
use uuid::Uuid;

const PAGE_SIZE_DEFAULT: usize = 100;
const PAGE_SIZE_MAX: usize = 1000;
/// The first bytes of a page token identify its list.
const LIST_BYTES: usize = 8;

/// Reads a number of items, where 0 means 100; the violation names `field`.
pub(super) fn limit(field: &str, asked: i32) -> Result<usize, Violation> {
    match usize::try_from(asked) {
        Ok(0) => Ok(PAGE_SIZE_DEFAULT),
        Ok(limit) if limit <= PAGE_SIZE_MAX => Ok(limit),
        _ => Err(Violation::new(
            field,
            format!("is {asked}; use 1 to {PAGE_SIZE_MAX}, or 0 for {PAGE_SIZE_DEFAULT}"),
        )),
    }
}

/// Checks a number of items that may be left out. An explicit 0 is refused: a script that found
/// nothing to end must not end 100. The violation names `field`.
pub fn given_limit(field: &str, given: i32) -> Result<i32, Violation> {
    match usize::try_from(given) {
        Ok(1..=PAGE_SIZE_MAX) => Ok(given),
        _ => Err(Violation::new(
            field,
            format!("is {given}; use 1 to {PAGE_SIZE_MAX}, or leave it out"),
        )),
    }
}

/// A list that is read in pages. Page tokens of one list are refused by any other.
#[derive(Clone, Copy, Debug)]
pub(super) struct List([u8; LIST_BYTES]);

impl List {
    /// The list with this description: everything that determines what is in it.
    pub(super) fn new(description: &[&str]) -> Self {
        // Each part with its length, so that two descriptions never coincide.
        let text: String =
            description.iter().map(|part| format!("{}:{part}", part.len())).collect();
        let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes());
        let mut list = [0; LIST_BYTES];
        list.copy_from_slice(&hash.as_bytes()[..LIST_BYTES]);
        Self(list)
    }

    /// Reads the requested page; the violation names `page_size` or `page_token`.
    pub(super) fn page(self, size: i32, token: &str) -> Result<PageRequest, Violation> {
        let limit = limit("page_size", size)?;
        let after = if token.is_empty() { None } else { Some(self.cursor(token)?) };
        Ok(PageRequest { after, limit, bytes_max: PAGE_BYTES_MAX })
    }

    fn cursor(self, token: &str) -> Result<Cursor, Violation> {
        let read = BASE64_URL_SAFE_NO_PAD.decode(token).ok();
        let cursor = read.as_deref().and_then(|bytes| bytes.strip_prefix(&self.0));
        let cursor = cursor.and_then(|cursor| std::str::from_utf8(cursor).ok());
        cursor.map(Into::into).ok_or_else(unknown_page)
    }

    /// The token of the page that follows; empty if there is none.
    pub(super) fn token(self, next: Option<&Cursor>) -> String {
        let Some(next) = next else { return String::new() };
        BASE64_URL_SAFE_NO_PAD.encode([&self.0, next.as_bytes()].concat())
    }
}

/// The refusal of a page token that is not of the list.
pub fn unknown_page() -> Violation {
    Violation::new(
        "page_token",
        "is not of this list, or is of a process that has ended; repeat the request of the last \
         page with that page's token, or begin the list again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_token_continues_its_own_list_only() {
        let list = List::new(&["ListLocks", "store", "a"]);
        let token = list.token(Some(&"3:ü/name".into()));
        assert_eq!(list.page(0, &token).unwrap().after.as_deref(), Some("3:ü/name"));
        for other in [&["ListLocks", "store", "b"][..], &["ListLocks", "storea", ""], &[]] {
            assert_eq!(List::new(other).page(0, &token).unwrap_err().field, "page_token");
        }
    }

    #[test]
    fn a_forged_page_token_is_refused() {
        let list = List::new(&["ListLocks"]);
        let invalid = BASE64_URL_SAFE_NO_PAD.encode([&list.0[..], &[0xff]].concat());
        for bad in ["x", "=", "AAAA", "ü", " ", &invalid] {
            assert_eq!(list.page(0, bad).unwrap_err().field, "page_token", "{bad:?}");
        }
    }

    #[test]
    fn a_page_has_1_to_1000_items_and_100_by_default() {
        let limit = |size| List::new(&[]).page(size, "").map(|page| page.limit);
        assert_eq!((limit(0), limit(1), limit(1000)), (Ok(100), Ok(1), Ok(1000)));
        for bad in [-1, 1001, i32::MIN, i32::MAX] {
            assert_eq!(limit(bad).unwrap_err().field, "page_size", "{bad}");
        }
    }

    #[test]
    fn a_limit_that_can_be_left_out_is_not_0() {
        assert_eq!((given_limit("limit", 1), given_limit("limit", 1000)), (Ok(1), Ok(1000)));
        for bad in [0, -1, 1001, i32::MIN, i32::MAX] {
            assert_eq!(given_limit("limit", bad).unwrap_err().field, "limit", "{bad}");
        }
    }
}
