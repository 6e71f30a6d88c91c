//! Runs a command while a lock is held: `leasehold lock`.
//!
//! Two processes, because each must act when the other cannot:
//!
//! ```text
//!   caller ──▶ supervisor ──▶ stub, which becomes the command ──▶ descendants
//!                 │  ▲                      ▲
//!           words │  │ reports, and         │ at the deadline, if the supervisor
//!                 ▼  │ the deadline         │ does nothing
//!             lock process ─────────────────┘
//!                 │
//!                 ▼
//!               store
//! ```
//!
//! - [`supervise`] is the supervisor. `machine` decides, and has no side effects; `supervisor`
//!   does it. `family` knows the supervisor's children; orphans of the command are among them.
//! - [`LockProcess`] is the other side. Who calls it acquires, renews and releases the lock.
//! - [`StubArgs`]: what becomes the command.
//! - `protocol` has the messages, `deadline` the memory that both share.
//!
//! Nothing here knows a store.

#![cfg(target_os = "linux")]

mod args;
mod boot_time;
mod deadline;
mod family;
mod lock_process;
mod look_up;
mod machine;
mod processes;
mod protocol;
mod running;
mod say;
mod signals;
mod stub;
mod supervisor;
mod terminal;
mod texts;

pub use args::{EndSignal, LockOptions};
pub use boot_time::BootTime;
pub use lock_process::{LockProcess, Reports, Wish};
pub use protocol::{NoMessage, Report, Word};
pub use stub::{STUB, StubArgs, become_command};
pub use supervisor::{Job, supervise};
