//! The port's verbs. Each is a type with what it takes to carry it out.

pub(crate) mod acquire;
pub(crate) mod attempts;
mod force;
pub(crate) mod inspect;
mod list;
pub(crate) mod look;
pub(crate) mod release;
pub(crate) mod renew;
#[cfg(test)]
mod tests;
pub(crate) mod wait;
mod walk;
mod watch;
