//! The names of resources, grants, requests, holders and attempts.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use uuid::Uuid;

use super::Violation;

/// Longest resource ID in bytes, prefix included.
const RESOURCE_ID_BYTES_MAX: usize = 1024;
/// Longest lock ID, request ID and holder in bytes.
const NAME_BYTES_MAX: usize = 256;

/// What is locked: 1 to 1,024 bytes of UTF-8 without control characters.
///
/// Cheap to clone. Because no control character is allowed, a backend may use
/// keys that begin with one for its own records.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(Arc<str>);

impl ResourceId {
    /// Checks and takes a resource ID; the violation names `resource_id`.
    pub fn new(id: &str) -> Result<Self, Violation> {
        const FIELD: &str = "resource_id";
        if id.is_empty() {
            return Err(Violation::new(FIELD, "is empty; name what is to be locked"));
        }
        check_text(FIELD, id, RESOURCE_ID_BYTES_MAX)?;
        Ok(Self(id.into()))
    }

    /// The ID as the caller gave it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Ordered and hashed like its text.
impl Borrow<str> for ResourceId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for ResourceId {
    type Err = Violation;

    fn from_str(id: &str) -> Result<Self, Violation> {
        Self::new(id)
    }
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The opaque name of a grant and the only proof of its ownership: 1 to 256 bytes.
///
/// `Debug` shows only its first characters, so that no log contains a proof.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LockId(Arc<str>);

impl LockId {
    /// Checks and takes a caller's lock ID; the violation names `lock_id`.
    pub fn new(id: &str) -> Result<Self, Violation> {
        const FIELD: &str = "lock_id";
        if id.is_empty() {
            return Err(Violation::new(
                FIELD,
                "is empty; give the ID that came with the grant",
            ));
        }
        limit(FIELD, id, NAME_BYTES_MAX)?;
        Ok(Self(id.into()))
    }

    /// Checks a lock ID that the caller may leave out: an empty one means none.
    pub fn optional(id: &str) -> Result<Option<Self>, Violation> {
        if id.is_empty() { Ok(None) } else { Self::new(id).map(Some) }
    }

    /// A random UUID, which nobody can guess.
    #[must_use]
    pub fn random() -> Self {
        let mut buffer = Uuid::encode_buffer();
        Self(Arc::from(&*Uuid::new_v4().hyphenated().encode_lower(&mut buffer)))
    }

    /// Whether it has the form of [`LockId::random`]. If not, a caller chose it.
    #[must_use]
    pub fn may_be_random(&self) -> bool {
        self.0.len() == uuid::fmt::Hyphenated::LENGTH && Uuid::parse_str(&self.0).is_ok()
    }

    /// The whole ID: for the wire and the backend, never for a log.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LockId {
    type Err = Violation;

    fn from_str(id: &str) -> Result<Self, Violation> {
        Self::new(id)
    }
}

impl fmt::Debug for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.0.chars().take(4).collect();
        write!(f, "{shown:?}…")
    }
}

/// A caller's secret with which a repeated request finds its own grant again: 1 to 256
/// bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// Checks and takes a request ID, an empty one meaning none; the violation
    /// names `request_id`.
    pub fn new(id: &str) -> Result<Option<Self>, Violation> {
        limit("request_id", id, NAME_BYTES_MAX)?;
        Ok((!id.is_empty()).then(|| Self(id.into())))
    }

    /// The whole ID: for the backend, never for a log.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// A public label of who holds a lock, at most 256 bytes; never a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder(Arc<str>);

impl Holder {
    /// Checks and takes a holder, an empty one meaning none; the violation
    /// names `holder`.
    pub fn new(label: &str) -> Result<Option<Self>, Violation> {
        limit("holder", label, NAME_BYTES_MAX)?;
        Ok((!label.is_empty()).then(|| Self(label.into())))
    }

    /// The label as the caller gave it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Identifies one attempt to acquire, so that its clean-up never affects
/// another attempt's grant, even with the same lock ID.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttemptId(u128);

impl AttemptId {
    /// An ID that no other attempt of any process has.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4().as_u128())
    }
}

/// The public name of a grant: 128 random bits, which identify it among all grants of all
/// times. It is no proof: whoever inspects the locks can see it.
///
/// It is the ID of the attempt that made the grant. Its bits are kept as bytes, because the
/// alignment of a `u128` would make the errors that contain one larger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(Uuid);

impl GrantId {
    /// The ID with these bits.
    #[must_use]
    pub fn from_u128(bits: u128) -> Self {
        Self(Uuid::from_u128(bits))
    }
}

impl From<AttemptId> for GrantId {
    fn from(attempt: AttemptId) -> Self {
        Self::from_u128(attempt.0)
    }
}

/// Reads 32 lower-case hexadecimal digits; the violation names `grant_id`.
impl FromStr for GrantId {
    type Err = Violation;

    fn from_str(id: &str) -> Result<Self, Violation> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let bits = (id.len() == 32 && id.bytes().all(is_digit))
            .then(|| u128::from_str_radix(id, 16).ok())
            .flatten();
        bits.map(Self::from_u128).ok_or_else(|| {
            Violation::new(
                "grant_id",
                "is no grant's ID, which has 32 lower-case hexadecimal digits",
            )
        })
    }
}

impl fmt::Display for GrantId {
    /// 32 lower-case hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0.as_simple(), f)
    }
}

impl fmt::Debug for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for AttemptId {
    /// 32 lower-case hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Checks that a text has at most `bytes_max` bytes and no control character.
pub fn check_text(field: &'static str, text: &str, bytes_max: usize) -> Result<(), Violation> {
    limit(field, text, bytes_max)?;
    match text.char_indices().find(|(_, c)| c.is_control()) {
        None => Ok(()),
        Some((at, c)) => Err(Violation::new(
            field,
            format!("has the control character {c:?} at byte {at}; remove it"),
        )),
    }
}

fn limit(field: &'static str, value: &str, bytes_max: usize) -> Result<(), Violation> {
    if value.len() > bytes_max {
        return Err(Violation::new(
            field,
            format!("has {} bytes; at most {bytes_max} are allowed", value.len()),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_id_of_1024_bytes_is_the_longest() {
        assert!(ResourceId::new(&"r".repeat(1024)).is_ok());
        let refused = ResourceId::new(&"r".repeat(1025)).unwrap_err();
        assert_eq!(refused.field, "resource_id");
        assert!(refused.problem.contains("1025 bytes"), "{}", refused.problem);
    }

    #[test]
    fn a_resource_id_has_no_control_character_of_either_block() {
        for bad in ["\0", "a\nb", "a\u{7f}", "a\u{85}b", "\u{1}h"] {
            assert!(ResourceId::new(bad).is_err(), "{bad:?}");
        }
        assert!(ResourceId::new("orders||42/ü {x} *").is_ok());
    }

    #[test]
    fn an_empty_resource_id_is_refused() {
        assert!(ResourceId::new("").is_err());
    }

    #[test]
    fn names_have_at_most_256_bytes() {
        let (longest, longer) = ("n".repeat(256), "n".repeat(257));
        assert!(LockId::new(&longest).is_ok() && LockId::new(&longer).is_err());
        assert!(RequestId::new(&longest).is_ok() && RequestId::new(&longer).is_err());
        assert!(Holder::new(&longest).is_ok() && Holder::new(&longer).is_err());
    }

    #[test]
    fn debug_never_shows_a_whole_lock_id_or_any_of_a_request_id() {
        let lock = LockId::random();
        assert!(!format!("{lock:?}").contains(&lock.as_str()[5..]));
        let request = RequestId::new("topsecret").unwrap();
        assert!(!format!("{request:?}").contains("top"));
    }

    #[test]
    fn a_grant_id_is_read_back_and_nothing_else_is_one() {
        let id = GrantId::from(AttemptId::random());
        assert_eq!(id.to_string().parse(), Ok(id));
        let upper = "A".repeat(32);
        for bad in ["", "1", &"0".repeat(31), &"0".repeat(33), &"g".repeat(32), &upper, "+0"] {
            assert_eq!(bad.parse::<GrantId>().unwrap_err().field, "grant_id", "{bad}");
        }
    }

    #[test]
    fn lock_ids_are_made_as_random_uuids() {
        let id = LockId::random();
        assert_eq!(Uuid::parse_str(id.as_str()).unwrap().get_version_num(), 4);
        assert!(id.may_be_random() && !LockId::new("a").unwrap().may_be_random());
        assert_ne!(id, LockId::random());
    }
}
