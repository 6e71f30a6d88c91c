//! Fencing tokens.

use std::fmt;

/// A number that comes with a grant and is greater than that of every earlier
/// grant of the same resource.
///
/// From 1 to 2^53 - 1, so that it survives every JSON parser. A token never
/// changes during its grant and is given to nobody but its holder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The greatest token there can be.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// Takes a backend's number, if it is within the range.
    #[must_use]
    pub fn new(token: u64) -> Option<Self> {
        (1..=Self::MAX.0).contains(&token).then_some(Self(token))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// The number as the wire carries it, where 0 stands for no token.
    #[must_use]
    pub fn as_i64(self) -> i64 {
        self.0.cast_signed()
    }

    /// The token of a next grant: greater than this one.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_positive_and_below_two_to_the_53() {
        assert!(FencingToken::new(0).is_none());
        assert!(FencingToken::new(1).is_some());
        assert_eq!(FencingToken::new((1 << 53) - 1), Some(FencingToken::MAX));
        assert!(FencingToken::new(1 << 53).is_none());
        assert!(FencingToken::MAX.next().is_none());
    }
}
