//! The commands that are served.

use bytes::Bytes;
use leasehold_lock::ResourceId;

use super::{
    arguments::{Refusal, compared, integer, key},
    reply::{Protocol, Reply},
    request::Request,
    set,
    verb::{Call, Replies, Verb},
};

/// How many keys a command may have. Each is looked up by itself.
const KEYS_MAX: usize = 16;

/// A command that is served, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// An operation on locks.
    Locks(Call),
    /// A script, which is an operation on locks if it is known.
    Script(ScriptCall),
    /// Affects the connection only.
    Connection(ConnectionCommand),
    /// Ends the connection.
    Quit,
}

/// A command that concerns the connection, or the front as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConnectionCommand {
    Hello {
        protocol: Option<Bytes>,
        credentials: Option<Credentials>,
        name: Option<Bytes>,
    },
    Auth(Credentials),
    Select(i64),
    Client(ClientCommand),
    Ping(Option<Bytes>),
    Echo(Bytes),
    Info {
        sections: Vec<String>,
    },
    /// `COMMAND` and its subcommands, which clients use for completion only.
    DescribeCommands(Reply),
    Reset,
    ScriptLoad(Bytes),
    ScriptExists(Vec<Bytes>),
}

/// The user name and password of a client.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) user: Option<Bytes>,
    pub(super) password: Bytes,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

/// The subcommands of `CLIENT` that are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClientCommand {
    Id,
    GetName,
    SetName(Bytes),
    SetInfo,
    /// Unknown to Redis 7.2 as well, so clients do without it.
    MaintNotifications,
}

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

/// Reads a request that has at least its command.
pub(super) fn read(request: &Request, may_delete: bool) -> Result<Command, Refusal> {
    let (command, arguments) = match request.arguments.split_first() {
        Some((command, arguments)) if !command.is_empty() => (command, arguments),
        _ => return Err(Refusal::not_served("an empty command is not served")),
    };
    let command = String::from_utf8_lossy(command).to_ascii_uppercase();
    let locks = |verb, replies| Ok(Command::Locks(Call { verb, replies }));
    match (command.as_str(), arguments) {
        ("SET", arguments) => set::read(arguments).map(Command::Locks),
        ("EVAL", arguments) => script("eval", arguments, ScriptName::Text).map(Command::Script),
        ("EVALSHA", arguments) => {
            script("evalsha", arguments, ScriptName::Digest).map(Command::Script)
        }
        ("GET", [name]) => locks(Verb::Get(key(name)?), Replies::or_null(Reply::Null)),
        ("PTTL", [name]) => locks(Verb::Remaining(key(name)?), Replies::integers(0, -2, -2)),
        ("EXISTS", [_, ..]) => locks(Verb::Count(keys(arguments)?), Replies::integers(0, 0, 0)),
        ("DELEX", [name, condition, value]) if lower(condition) == "ifeq" => {
            let verb = compared(name, value)?.map_or_else(Verb::Mismatch, Verb::Release);
            locks(verb, Replies::integers(1, 0, 0))
        }
        ("DEL" | "UNLINK", [_, ..]) if !may_delete => Err(Refusal::not_served(format!(
            "{command} would end the lock of any holder; unlock with a script that compares the \
             value, or start the front with --allow-delete"
        ))),
        ("DEL" | "UNLINK", [_, ..]) => {
            locks(Verb::Delete(keys(arguments)?), Replies::integers(0, 0, 0))
        }
        ("QUIT", _) => Ok(Command::Quit),
        (command, arguments) => of_connection(command, arguments).map(Command::Connection),
    }
}

/// Reads a command that concerns the connection.
fn of_connection(command: &str, arguments: &[Bytes]) -> Result<ConnectionCommand, Refusal> {
    Ok(match (command, arguments) {
        ("HELLO", arguments) => hello(arguments)?,
        ("AUTH", [password]) => {
            ConnectionCommand::Auth(Credentials { user: None, password: password.clone() })
        }
        ("AUTH", [user, password]) => ConnectionCommand::Auth(Credentials {
            user: Some(user.clone()),
            password: password.clone(),
        }),
        ("SELECT", [database]) => ConnectionCommand::Select(integer(database)?),
        ("CLIENT", [subcommand, arguments @ ..]) => {
            ConnectionCommand::Client(client(subcommand, arguments)?)
        }
        ("PING", []) => ConnectionCommand::Ping(None),
        ("PING", [message]) => ConnectionCommand::Ping(Some(message.clone())),
        ("ECHO", [message]) => ConnectionCommand::Echo(message.clone()),
        ("INFO", sections) => {
            ConnectionCommand::Info { sections: sections.iter().map(lower).collect() }
        }
        ("COMMAND", arguments) => ConnectionCommand::DescribeCommands(describe(arguments)?),
        ("RESET", []) => ConnectionCommand::Reset,
        ("SCRIPT", [subcommand, arguments @ ..]) => match (&*lower(subcommand), arguments) {
            ("load", [text]) => ConnectionCommand::ScriptLoad(text.clone()),
            ("exists", [_, ..]) => ConnectionCommand::ScriptExists(arguments.to_vec()),
            (other, _) => return Err(no_subcommand("SCRIPT", other)),
        },
        (other, _) => return Err(unknown(other)),
    })
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

fn no_subcommand(command: &str, subcommand: &str) -> Refusal {
    let shown: String = subcommand.to_ascii_uppercase().escape_debug().take(64).collect();
    Refusal::not_served(format!("{command} {shown} is not served"))
}

fn keys(arguments: &[Bytes]) -> Result<Vec<ResourceId>, Refusal> {
    if arguments.len() > KEYS_MAX {
        return Err(Refusal::not_served(format!("more than {KEYS_MAX} keys in one command")));
    }
    arguments.iter().map(key).collect()
}

fn lower(argument: &Bytes) -> String {
    String::from_utf8_lossy(argument).to_ascii_lowercase()
}

fn hello(arguments: &[Bytes]) -> Result<ConnectionCommand, Refusal> {
    let (protocol, mut rest) = match arguments {
        [] => (None, arguments),
        [protocol, rest @ ..] => (Some(protocol.clone()), rest),
    };
    let (mut credentials, mut name) = (None, None);
    loop {
        rest = match rest {
            [] => return Ok(ConnectionCommand::Hello { protocol, credentials, name }),
            [option, user, password, rest @ ..] if lower(option) == "auth" => {
                let (user, password) = (Some(user.clone()), password.clone());
                credentials = Some(Credentials { user, password });
                rest
            }
            [option, given, rest @ ..] if lower(option) == "setname" => {
                name = Some(given.clone());
                rest
            }
            _ => return Err(Refusal::WrongCount("hello")),
        };
    }
}

fn client(subcommand: &Bytes, arguments: &[Bytes]) -> Result<ClientCommand, Refusal> {
    Ok(match (&*lower(subcommand), arguments) {
        ("id", []) => ClientCommand::Id,
        ("getname", []) => ClientCommand::GetName,
        ("setname", [name]) => ClientCommand::SetName(name.clone()),
        ("setinfo", [_, _]) => ClientCommand::SetInfo,
        ("maint_notifications", _) => ClientCommand::MaintNotifications,
        (other, _) => return Err(no_subcommand("CLIENT", other)),
    })
}

/// Answers that no command can be described; clients do without it.
fn describe(arguments: &[Bytes]) -> Result<Reply, Refusal> {
    match arguments.first().map(lower).as_deref() {
        None | Some("info" | "list") => Ok(Reply::Array(Vec::new())),
        Some("docs") => Ok(Reply::Map(Vec::new())),
        Some("count") => Ok(Reply::Integer(0)),
        Some(other) => Err(no_subcommand("COMMAND", other)),
    }
}

/// Reads `script numkeys key … argument …`.
fn script(
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

/// The version of the protocol that `HELLO` asks for, if it is one.
pub(super) fn protocol(argument: &Bytes) -> Option<Protocol> {
    match argument.as_ref() {
        b"2" => Some(Protocol::Resp2),
        b"3" => Some(Protocol::Resp3),
        _ => None,
    }
}
