//! A black-box conformance suite for lock stores.
//!
//! It holds any store that speaks `dapr.proto.components.v1.LockStore` on a
//! Unix socket to the alpha2 lock protocol, whatever it is written in. It
//! speaks the protocol alone and knows no store's code.
//!
//! # What a run does to your store
//!
//! - It sends `Init` with the properties of the component YAML that it is
//!   given: to the instance of that name, to the unnamed instance, and to some
//!   ten more whose names are that name and a random suffix. They stay: the
//!   protocol has no way to end an instance.
//! - It locks some 2,000 resources, every name of which begins with
//!   `conformance-` and eight random hexadecimal digits, in one case with a
//!   slash before that, so that two runs on one store do not meet, nor does a
//!   run meet your own locks. It locks, renews, unlocks and forces nothing
//!   else.
//! - At the end of each case, passed or not, it ends that case's waits and
//!   unlocks that case's grants, by force too where the store declares
//!   `FORCE_UNLOCK`. What a run that was killed leaves behind ends with its
//!   TTL: a minute and a half at most, but a day for the one grant of the case
//!   that asks for the longest TTL.
//! - It opens some 400 connections, at most 100 at a time, and has at most
//!   some 400 calls in flight.
//!
//! # Core and features
//!
//! The core binds every store. A case beyond it asks for a feature that the
//! store names in its answer to `Features`; where it does not, the case is
//! reported as ignored, with the reason. Cases across two processes join the
//! run when [`Options::second_socket`] is given.
//!
//! # Running it
//!
//! The command is `leasehold-conformance`. From a test, [`Suite::trials`]
//! gives the cases to `libtest_mimic::run`, and [`run_collect`] runs them and
//! returns what came of each.

mod answer;
mod bound;
mod case;
mod cases;
mod component;
mod connection;
mod expect;
mod feature;
mod grant;
mod junit;
mod lacks;
mod leftovers;
mod outcome;
mod probe;
mod store;
mod subject;
mod suite;
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
    suite::{Options, Suite, run_collect},
};
