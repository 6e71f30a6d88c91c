//! The library of functions that decide everything on the server.
//!
//! Its text is the files below, with the constants that Rust and Lua share. Names of functions
//! are global on a server, so they end with a hash of the text: different versions can work
//! beside each other. Where functions are missing, forbidden or cannot be loaded, the same
//! text runs as a script, which gives the same answers and costs the server more.

use std::{fmt::Write as _, sync::LazyLock, time::Duration};

use ::redis::{Cmd, Script, cmd};

use super::{keys::Keys, times::TIMES};

/// How long a queue exists after the last look at it. A process that waits for 100,000
/// resources needs half an hour to look at all of them if a round trip takes a second.
const QUEUE: Duration = Duration::from_secs(60 * 60);
/// How long a question exists.
const QUESTION: Duration = Duration::from_secs(60 * 60);
/// How many places a function checks at most, so that it does not block the server for long.
const CHUNK: usize = 512;
/// How many hand-overs of shared grants of a resource may be unconfirmed at the same time, and
/// how many expired shared grants a function removes at most.
const BATCH: usize = 64;
/// How far apart the two keys of a grant may end in a Cluster. A slot is moved key by key, and
/// each goes on with the time that it has left.
const APART: Duration = Duration::from_secs(1);
/// How much longer than the last shared grant the keys of shared grants are kept when their
/// expiry is moved.
const KEPT: Duration = Duration::from_secs(10);

/// What it means that a PUBLISH reached no subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unheard {
    /// Its process has gone.
    Gone,
    /// The same, but a notice also reaches clients that subscribe by a pattern.
    Monitored,
    /// Its process may have gone.
    InDoubt,
}

impl Unheard {
    /// Its letter in the library.
    pub(super) fn letter(self) -> u8 {
        match self {
            Self::Gone => b'g',
            Self::Monitored => b'm',
            Self::InDoubt => b'd',
        }
    }
}

/// What a refused try must do: look at the resource at once, or soon.
pub(super) const LOOK_NOW: u8 = 1;
pub(super) const LOOK_SOON: u8 = 2;

/// The version of records and places that this library writes.
pub(crate) const VERSION: u8 = 1;

/// In this order, each can use those before it.
const FILES: [&str; 12] = [
    include_str!("library/format.lua"),
    include_str!("library/grant.lua"),
    include_str!("library/question.lua"),
    include_str!("library/queue.lua"),
    include_str!("library/readers.lua"),
    include_str!("library/readers_turns.lua"),
    include_str!("library/readers_acquire.lua"),
    include_str!("library/acquire.lua"),
    include_str!("library/release.lua"),
    include_str!("library/look.lua"),
    include_str!("library/inspect.lua"),
    include_str!("library/verbs.lua"),
];

/// Runs the text as a script: the first argument is the verb.
const AS_SCRIPT: [&str; 2] =
    [include_str!("library/script_head.lua"), include_str!("library/script_tail.lua")];

/// A function of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Acquires a free resource.
    Try,
    /// Acquires a free resource, or enters the queue.
    Enter,
    /// Confirms a hand-over.
    Confirm,
    /// Finds what an attempt has, without a new grant.
    Find,
    /// Starts the TTL of a grant again.
    Renew,
    /// Ends a grant.
    Release,
    /// Ends the grant of an attempt, or removes its place.
    Withdraw,
    /// Identifies what holds a resource.
    Target,
    /// Hands over an expired resource, and checks a place in the queue.
    Look,
    /// Removes the places of dead processes from a full queue.
    Sweep,
    /// Reads resources.
    Inspect,
    /// Reads one key.
    Peek,
    /// Reads the waiters of a resource.
    Waiters,
    /// Searches for the records of grants.
    Scan,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Try => "try",
            Self::Enter => "enter",
            Self::Confirm => "confirm",
            Self::Find => "find",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Withdraw => "withdraw",
            Self::Target => "target",
            Self::Look => "look",
            Self::Sweep => "sweep",
            Self::Inspect => "inspect",
            Self::Peek => "peek",
            Self::Waiters => "waiters",
            Self::Scan => "scan",
        }
    }

    /// What to call if the server has no memory for this verb.
    pub(super) fn without_memory(self) -> Option<Self> {
        matches!(self, Self::Try | Self::Enter).then_some(Self::Find)
    }
}

/// How a session runs the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As functions.
    Functions,
    /// As a script.
    Script,
}

/// The library, built once.
pub(super) static LIBRARY: LazyLock<Library> = LazyLock::new(|| Library::new(false));
/// The library in a Cluster.
pub(super) static IN_CLUSTER: LazyLock<Library> = LazyLock::new(|| Library::new(true));

/// The text of the library in both forms.
pub(super) struct Library {
    /// The end of the names of its functions.
    suffix: String,
    functions: String,
    pub(super) script: Script,
}

impl Library {
    fn new(in_cluster: bool) -> Self {
        let text = constants(in_cluster) + &FILES.concat();
        let hash = Script::new(&text).get_hash().to_owned();
        let suffix = format!("_{}", hash.get(..16).unwrap_or(&hash));
        let named = format!("local SUFFIX = '{suffix}'\n");
        let [head, tail] = AS_SCRIPT;
        Self {
            functions: format!("#!lua name=leasehold{suffix}\n{named}{text}"),
            script: Script::new(&[&*named, head, &text, tail].concat()),
            suffix,
        }
    }

    /// The command that loads the functions.
    pub(super) fn load(&self) -> Cmd {
        let mut load = cmd("FUNCTION");
        load.arg("LOAD").arg(&self.functions);
        load
    }

    /// A call, without its arguments.
    pub(super) fn call(&self, form: Form, verb: Verb, keys: Keys<'_>) -> Cmd {
        match form {
            Form::Functions => {
                let mut call = cmd("FCALL");
                keys.add_to(call.arg([verb.name(), &*self.suffix].concat()));
                call
            }
            Form::Script => {
                let mut call = cmd("EVALSHA");
                keys.add_to(call.arg(self.script.get_hash()));
                call.arg(verb.name());
                call
            }
        }
    }
}

/// The constants that Rust and Lua share.
fn constants(in_cluster: bool) -> String {
    let apart = if in_cluster { APART } else { Duration::ZERO };
    let mut lines = String::from(
        "local QUEUE, RESOURCE, RECORD, COUNTER, QUESTION, READERS, ENDS, TOKENS, CALLED = \
         1, 2, 3, 4, 5, 6, 7, 8, 9\n\
         local FREE, HANDED, MORE, WIDER, GRANTED = 0, 1, 2, 3, 4\n",
    );
    for (name, value) in [
        ("PROVISIONAL_MS", TIMES.provisional.as_millis()),
        ("LAPSED_MS", TIMES.lapsed.as_millis()),
        ("UNKNOWN_MS", TIMES.look_max.as_millis()),
        ("FOREIGN_MS", TIMES.foreign.as_millis()),
        ("ANSWER_MS", TIMES.answer.as_millis()),
        ("PAUSE_MS", TIMES.pause.as_millis()),
        ("APART_MS", apart.as_millis()),
        ("QUESTION_MS", QUESTION.as_millis()),
        ("KEPT_MS", KEPT.as_millis()),
        ("CHUNK", CHUNK as u128),
        ("BATCH", BATCH as u128),
        ("LOOK_NOW", LOOK_NOW.into()),
        ("LOOK_SOON", LOOK_SOON.into()),
        ("EXCLUSIVE", u128::from(b'x')),
        ("MONITORED", Unheard::Monitored.letter().into()),
        ("IN_DOUBT", Unheard::InDoubt.letter().into()),
    ] {
        let _ = writeln!(lines, "local {name} = {value}");
    }
    let _ = writeln!(lines, "local IN_CLUSTER = {in_cluster}");
    // Those that are given to commands: see grant.lua.
    for (name, value) in [
        ("CALLED_MS", (TIMES.provisional + TIMES.lapsed).as_millis()),
        ("QUEUE_MS", QUEUE.as_millis()),
        ("VERSION", VERSION.into()),
    ] {
        let _ = writeln!(lines, "local {name} = '{value}'");
    }
    lines
}
