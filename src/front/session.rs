//! Per-connection state and dispatch.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use leasehold_lock::{Holder, LockError, Receipt};
use leasehold_net::status::ErrorDescription;
use tracing::debug;

use super::{
    arguments::{Refusal, integer},
    command::{self, ScriptName, lower, no_subcommand},
    info,
    locks::{Done, Locks},
    password::Password,
    reply::{Protocol, Reply},
    request::Request,
    scripts::Scripts,
    verb::Call,
};

/// The only user.
const USER: &[u8] = b"default";
/// The longest name that a connection may have. It is shown as a holder, which has 256 bytes.
const NAME_BYTES_MAX: usize = 250;

/// What all connections of a front share.
pub(super) struct Shared {
    pub(super) locks: Locks,
    pub(super) scripts: Scripts,
    pub(super) password: Option<Password>,
    pub(super) may_delete: bool,
    pub(super) sessions: AtomicU64,
}

/// The state of a connection that its commands use.
pub(super) struct Session {
    shared: Arc<Shared>,
    id: u64,
    /// The client's address.
    peer: String,
    protocol: Protocol,
    is_authenticated: bool,
    /// Whether a transaction, which is refused, has begun and not ended.
    is_in_transaction: bool,
    name: Bytes,
    holder: Option<Holder>,
}

/// The answer to a request.
pub(super) struct Answer {
    pub(super) reply: Reply,
    /// The receipt of an acquired lock. A new lock is released unless this is accepted.
    pub(super) receipt: Option<Receipt>,
    /// Whether the connection ends with it.
    pub(super) is_last: bool,
}

/// The next step for a request.
pub(super) enum Step {
    /// Answer it.
    Answer(Answer),
    /// Carry out this call on locks.
    Locks(Call),
}

impl Step {
    fn reply(reply: Reply) -> Self {
        Self::Answer(reply.into())
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self { reply, receipt: None, is_last: false }
    }
}

impl Session {
    /// A connection of a client at `peer`.
    pub(super) fn new(shared: Arc<Shared>, peer: String) -> Self {
        let mut session = Self {
            id: shared.sessions.fetch_add(1, Ordering::Relaxed) + 1,
            is_authenticated: shared.password.is_none(),
            shared,
            peer,
            protocol: Protocol::default(),
            is_in_transaction: false,
            name: Bytes::new(),
            holder: None,
        };
        session.set_name(b"");
        session
    }

    /// The version of the protocol that it speaks.
    pub(super) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Whether it may use locks.
    pub(super) fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Reads a request, and carries it out if it concerns the connection only.
    pub(super) fn read(&mut self, request: &Request) -> Step {
        let refusal = match self.dispatch(request) {
            Ok(Some(step)) => return step,
            Err(refusal) if self.is_authenticated => Reply::failure(refusal),
            Ok(None) | Err(_) => Reply::Error("NOAUTH Authentication required.".into()),
        };
        // A page in a browser can send such lines as headers or body of a request.
        Step::Answer(Answer { is_last: request.is_line, ..refusal.into() })
    }

    /// `None` if the command needs a password that is missing.
    fn dispatch(&mut self, request: &Request) -> Result<Option<Step>, Refusal> {
        if self.is_of_transaction(request) {
            return Err(Refusal::not_served(
                "MULTI is not served, and nothing is carried out until EXEC or DISCARD",
            ));
        }
        let (command, arguments) = command::split(request)?;
        let needs_no_password = matches!(&*command, "AUTH" | "HELLO" | "RESET" | "QUIT");
        if !self.is_authenticated && !needs_no_password {
            return Ok(None);
        }
        let step = match (&*command, arguments) {
            ("QUIT", _) => Step::Answer(Answer { is_last: true, ..Reply::OK.into() }),
            ("EVAL", _) => self.script("eval", arguments, ScriptName::Text)?,
            ("EVALSHA", _) => self.script("evalsha", arguments, ScriptName::Digest)?,
            _ => match self.answer(&command, arguments)? {
                Some(reply) => Step::reply(reply),
                None => {
                    Step::Locks(command::on_locks(&command, arguments, self.shared.may_delete)?)
                }
            },
        };
        Ok(Some(step))
    }

    fn script(
        &self,
        command: &'static str,
        arguments: &[Bytes],
        named: fn(Bytes) -> ScriptName,
    ) -> Result<Step, Refusal> {
        let call = command::script(command, arguments, named)?;
        Ok(self.shared.scripts.read(&call).map_or_else(Step::reply, Step::Locks))
    }

    /// Whether it is `MULTI` or a command within a transaction: carried out alone, it would be
    /// half a transaction.
    fn is_of_transaction(&mut self, request: &Request) -> bool {
        let is_one_of = |names: &[&str]| {
            let word = request.arguments.first();
            word.is_some_and(|word| {
                names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
            })
        };
        if is_one_of(&["MULTI"]) {
            self.is_in_transaction = self.is_authenticated;
            return true;
        }
        if is_one_of(&["EXEC", "DISCARD", "RESET", "QUIT"]) {
            self.is_in_transaction = false;
        }
        self.is_in_transaction
    }

    /// Carries out a call on locks. If the future is dropped, an acquired lock is
    /// released.
    pub(super) fn carry_out(
        &self,
        call: Call,
    ) -> impl Future<Output = Answer> + Send + 'static {
        let (shared, holder) = (Arc::clone(&self.shared), self.holder.clone());
        async move {
            let Call { verb, replies } = call;
            match shared.locks.carry_out(verb, holder.as_ref()).await {
                Ok(Done { outcome, receipt }) => {
                    Answer { reply: replies.to(outcome), receipt, is_last: false }
                }
                Err(error) => failed(error).into(),
            }
        }
    }

    /// Carries out a command that concerns the connection; `None` if it does not.
    fn answer(&mut self, command: &str, arguments: &[Bytes]) -> Result<Option<Reply>, Refusal> {
        let scripts = &self.shared.scripts;
        Ok(Some(match (command, arguments) {
            ("HELLO", _) => self.hello(arguments)?,
            ("AUTH", [password]) => {
                self.authenticate(None, password).err().unwrap_or(Reply::OK)
            }
            ("AUTH", [user, password]) => {
                self.authenticate(Some(user), password).err().unwrap_or(Reply::OK)
            }
            ("SELECT", [database]) => match integer(database)? {
                0 => Reply::OK,
                _ => Reply::failure("DB index is out of range: a front has only 0"),
            },
            ("CLIENT", [subcommand, rest @ ..]) => self.client(&lower(subcommand), rest)?,
            ("PING", []) => Reply::Simple("PONG"),
            ("PING" | "ECHO", [message]) => Reply::Bulk(message.clone()),
            ("INFO", sections) => {
                Reply::text(info::text(&sections.iter().map(lower).collect::<Vec<_>>()))
            }
            ("COMMAND", _) => command::describe(arguments)?,
            ("RESET", []) => {
                self.protocol = Protocol::default();
                self.is_authenticated = self.shared.password.is_none();
                self.set_name(b"");
                Reply::Simple("RESET")
            }
            ("SCRIPT", [subcommand, rest @ ..]) => match (&*lower(subcommand), rest) {
                ("load", [text]) => scripts.load(text),
                ("exists", [_, ..]) => scripts.exist(rest),
                (other, _) => return Err(no_subcommand("SCRIPT", other)),
            },
            _ => return Ok(None),
        }))
    }

    fn client(&mut self, subcommand: &str, arguments: &[Bytes]) -> Result<Reply, Refusal> {
        Ok(match (subcommand, arguments) {
            ("id", []) => Reply::Integer(self.id.cast_signed()),
            ("getname", []) if self.name.is_empty() => Reply::Null,
            ("getname", []) => Reply::Bulk(self.name.clone()),
            ("setname", [name]) => {
                check_name(name)?;
                self.set_name(name);
                Reply::OK
            }
            ("setinfo", [_, _]) => Reply::OK,
            // Unknown to Redis 7.2 as well, so clients do without it.
            ("maint_notifications", _) => {
                Reply::failure("unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.")
            }
            (other, _) => return Err(no_subcommand("CLIENT", other)),
        })
    }

    /// Reads `HELLO [protocol [AUTH user password] [SETNAME name]]`.
    fn hello(&mut self, arguments: &[Bytes]) -> Result<Reply, Refusal> {
        let (protocol, mut rest) = match arguments {
            [] => (Some(self.protocol), arguments),
            [protocol, rest @ ..] => (Protocol::of_number(protocol), rest),
        };
        let (mut credentials, mut name) = (None, None);
        loop {
            rest = match rest {
                [] => break,
                [option, user, password, rest @ ..] if lower(option) == "auth" => {
                    credentials = Some((user, password));
                    rest
                }
                [option, given, rest @ ..] if lower(option) == "setname" => {
                    name = Some(given);
                    rest
                }
                _ => return Err(Refusal::WrongCount("hello")),
            };
        }
        let Some(protocol) = protocol else {
            return Ok(Reply::Error("NOPROTO unsupported protocol version".into()));
        };
        if let Some(Err(refusal)) = name.map(check_name) {
            return Ok(Reply::failure(refusal));
        }
        if let Some((user, password)) = credentials
            && let Err(reply) = self.authenticate(Some(user), password)
        {
            return Ok(reply);
        }
        if !self.is_authenticated {
            return Ok(Reply::Error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise \
                 the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the \
                 client and select the RESP protocol version at the same time"
                    .into(),
            ));
        }
        if let Some(name) = name {
            self.set_name(name);
        }
        self.protocol = protocol;
        Ok(info::hello(protocol, self.id))
    }

    fn authenticate(&mut self, user: Option<&Bytes>, given: &[u8]) -> Result<(), Reply> {
        let is_default = user.is_none_or(|user| user.as_ref() == USER);
        let admitted = match &self.shared.password {
            Some(password) => is_default && password.is(given),
            None if user.is_none() => {
                return Err(Reply::failure(
                    "AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                ));
            }
            None => is_default,
        };
        if admitted {
            self.is_authenticated = true;
            return Ok(());
        }
        debug!(peer = self.peer, "a client of the Redis front gave a wrong password");
        Err(Reply::Error(
            "WRONGPASS invalid username-password pair or user is disabled.".into(),
        ))
    }

    /// Sets its name, with which it is shown as the holder of its locks; without a name its
    /// address is shown.
    fn set_name(&mut self, name: &[u8]) {
        let shown = if name.is_empty() {
            format!("redis/{}", self.peer)
        } else {
            format!("redis/{}", String::from_utf8_lossy(name))
        };
        self.holder = Holder::new(&shown).ok().flatten();
        // A copy, so that the rest of the request is freed.
        self.name = Bytes::copy_from_slice(name);
    }
}

fn check_name(name: &Bytes) -> Result<(), Refusal> {
    let is_plain = name.iter().all(u8::is_ascii_graphic);
    if is_plain && name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    Err(Refusal::not_served(format!(
        "a client's name has at most {NAME_BYTES_MAX} bytes of printable ASCII without spaces"
    )))
}

/// The reply to a call that failed.
pub(super) fn failed(error: LockError) -> Reply {
    let ErrorDescription { reason, message, .. } = error.into();
    Reply::failure(format_args!("leasehold: {reason}: {message}"))
}
