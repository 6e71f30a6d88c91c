//! The commands on locks, and what all commands share.

use bytes::Bytes;
use leasehold_lock::ResourceId;

use super::{
    arguments::{Refusal, compared, integer, key},
    reply::Reply,
    request::Request,
    set,
    verb::{Call, Replies, Verb},
};

/// How many keys a command may have. Each is looked up by itself.
const KEYS_MAX: usize = 16;

/// A call of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScriptCall {
    pub(super) script: ScriptName,
    pub(super) keys: Vec<Bytes>,
    pub(super) arguments: Vec<Bytes>,
}

/// The script that is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ScriptName {
    /// By its text.
    Text(Bytes),
    /// By the SHA-1 of its text, in hexadecimal digits.
    Digest(Bytes),
}

/// The command of a request, in upper case, and its arguments.
pub(super) fn split(request: &Request) -> Result<(String, &[Bytes]), Refusal> {
    match request.arguments.split_first() {
        Some((command, arguments)) if !command.is_empty() => {
            Ok((String::from_utf8_lossy(command).to_ascii_uppercase(), arguments))
        }
        _ => Err(Refusal::not_served("an empty command is not served")),
    }
}

/// Reads a command on locks.
pub(super) fn on_locks(
    command: &str,
    arguments: &[Bytes],
    may_delete: bool,
) -> Result<Call, Refusal> {
    let (verb, replies) = match (command, arguments) {
        ("SET", arguments) => return set::read(arguments),
        ("GET", [name]) => (Verb::Get(key(name)?), Replies::or_null(Reply::Null)),
        ("PTTL", [name]) => (Verb::Remaining(key(name)?), Replies::integers(0, -2, -2)),
        ("EXISTS", [_, ..]) => (Verb::Count(keys(arguments)?), Replies::integers(0, 0, 0)),
        ("DELEX", [name, condition, value]) if lower(condition) == "ifeq" => {
            let verb = compared(name, value)?.map_or_else(Verb::Mismatch, Verb::Release);
            (verb, Replies::integers(1, 0, 0))
        }
        ("DEL" | "UNLINK", [_, ..]) if may_delete => {
            (Verb::Delete(keys(arguments)?), Replies::integers(0, 0, 0))
        }
        ("DEL" | "UNLINK", [_, ..]) => {
            return Err(Refusal::not_served(format!(
                "{command} would end the lock of any holder; unlock with a script that compares \
                 the value, or start the front with --allow-delete"
            )));
        }
        (other, _) => return Err(unknown(other)),
    };
    Ok(Call { verb, replies })
}

/// The commands that are served with certain numbers of arguments only.
const COUNTED: [&str; 12] = [
    "get", "pttl", "exists", "del", "unlink", "auth", "select", "client", "ping", "echo",
    "reset", "script",
];

/// A command that is not served, or one with a number of arguments that it does not take.
fn unknown(command: &str) -> Refusal {
    match COUNTED.iter().find(|known| known.eq_ignore_ascii_case(command)) {
        Some(known) => Refusal::WrongCount(known),
        None => {
            let hint = match command {
                "SETNX" | "GETSET" | "SETEX" | "PSETEX" | "MSETNX" => {
                    "; use SET with NX and PX"
                }
                "EXPIRE" | "PEXPIRE" => "; renew with SET key value XX PX, or with a script",
                "TTL" => "; use PTTL",
                "DELEX" => "; use DELEX key IFEQ value",
                _ => "",
            };
            let shown: String = command.escape_debug().take(64).collect();
            Refusal::not_served(format!("{shown} is not served{hint}"))
        }
    }
}

pub(super) fn no_subcommand(command: &str, subcommand: &str) -> Refusal {
    let shown: String = subcommand.to_ascii_uppercase().escape_debug().take(64).collect();
    Refusal::not_served(format!("{command} {shown} is not served"))
}

fn keys(arguments: &[Bytes]) -> Result<Vec<ResourceId>, Refusal> {
    if arguments.len() > KEYS_MAX {
        return Err(Refusal::not_served(format!("more than {KEYS_MAX} keys in one command")));
    }
    arguments.iter().map(key).collect()
}

pub(super) fn lower(argument: &Bytes) -> String {
    String::from_utf8_lossy(argument).to_ascii_lowercase()
}

/// Answers that no command can be described; clients do without it.
pub(super) fn describe(arguments: &[Bytes]) -> Result<Reply, Refusal> {
    match arguments.first().map(lower).as_deref() {
        None | Some("info" | "list") => Ok(Reply::Array(Vec::new())),
        Some("docs") => Ok(Reply::Map(Vec::new())),
        Some("count") => Ok(Reply::Integer(0)),
        Some(other) => Err(no_subcommand("COMMAND", other)),
    }
}

/// Reads `script numkeys key … argument …`.
pub(super) fn script(
    command: &'static str,
    arguments: &[Bytes],
    named: fn(Bytes) -> ScriptName,
) -> Result<ScriptCall, Refusal> {
    let [script, count, rest @ ..] = arguments else {
        return Err(Refusal::WrongCount(command));
    };
    let count = usize::try_from(integer(count)?).map_err(|_| Refusal::NoInteger)?;
    let Some((keys, arguments)) = rest.split_at_checked(count) else {
        return Err(Refusal::WrongCount(command));
    };
    Ok(ScriptCall {
        script: named(script.clone()),
        keys: keys.to_vec(),
        arguments: arguments.to_vec(),
    })
}
