//! A black-box conformance suite for lock stores.
//!
//! It checks that a store with the service `dapr.proto.components.v1.LockStore` on a Unix
//! socket keeps the alpha2 lock protocol, in whatever language it is written. It uses the
//! protocol only, and no store's code.
//!
//! # What a run does to your store
//!
//! - It sends `Init` with the properties of the given component YAML: to the instance with the
//!   component's name, to the unnamed instance, and to some ten more, whose names are that name
//!   and a random suffix. They remain, because the protocol cannot end an instance.
//! - It locks some 2,000 resources. Their names begin with `conformance-` and eight random
//!   hexadecimal digits, in one case after a slash. So two runs on one store, or a run and
//!   your own locks, do not disturb each other. It locks, renews and unlocks nothing else.
//! - At the end of each case, passed or not, it ends the case's waits and unlocks its grants,
//!   also by force if the store declares `FORCE_UNLOCK`. Grants of a run that was killed end
//!   with their TTL: after at most a minute and a half, but after a day for the one grant of
//!   the case that asks for the longest TTL.
//! - It opens some 400 connections, at most 100 at the same time, and has at most some 400 calls
//!   in flight.
//!
//! # Core and features
//!
//! The cases of the core apply to every store. Other cases need a feature that the store names
//! in its answer to `Features`; if it does not, the case is reported as ignored, with the
//! reason. Cases across two processes are part of the run if [`Options::second_socket`] is
//! given.
//!
//! # Running it
//!
//! The command is `leasehold-conformance`. In a test, pass [`Suite::trials`] to
//! `libtest_mimic::run`, or call [`run_collect`], which returns the outcome of each case.

mod answer;
mod bound;
mod case;
mod cases;
mod component;
mod connection;
mod expect;
mod feature;
mod grant;
mod inspector;
mod junit;
mod lacks;
mod leftovers;
mod outcome;
mod probe;
mod reason;
mod restart;
mod stop;
mod store;
mod subject;
mod suite;
mod summary;
mod waiter;
mod wire;
mod words;
mod world;

pub use self::{
    case::{CaseInfo, Demand},
    cases::catalogue,
    component::Component,
    feature::Feature,
    outcome::{Outcome, Recorder, Report},
    restart::Restart,
    suite::{Options, Suite, run_collect},
    summary::summary,
};
