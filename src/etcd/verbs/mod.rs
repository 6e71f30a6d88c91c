//! The port's verbs, and the moves of grants between leases.

pub(crate) mod acquire;
#[cfg(test)]
mod costs;
mod force;
mod held;
mod inspect;
mod list;
pub(crate) mod moves;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod replay;
pub(crate) mod state;
pub(crate) mod wait;
mod walk;
mod watch;
