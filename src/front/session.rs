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
    arguments::Refusal,
    command::{self, ClientCommand, Command, ConnectionCommand, Credentials},
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
        let command = if self.is_of_transaction(request) {
            Err(Refusal::not_served(
                "MULTI is not served, and nothing is carried out until EXEC or DISCARD",
            ))
        } else {
            command::read(request, self.shared.may_delete)
        };
        let command = match command {
            Ok(command) => command,
            Err(refusal) => {
                let reply =
                    if self.is_authenticated { Reply::failure(refusal) } else { no_auth() };
                // A page in a browser can send such lines as headers or body of a request.
                return Step::Answer(Answer { is_last: request.is_line, ..reply.into() });
            }
        };
        let needs_no_password = matches!(
            command,
            Command::Quit
                | Command::Connection(
                    ConnectionCommand::Auth(_)
                        | ConnectionCommand::Hello { .. }
                        | ConnectionCommand::Reset
                )
        );
        if !self.is_authenticated && !needs_no_password {
            return Step::reply(no_auth());
        }
        match command {
            Command::Locks(call) => Step::Locks(call),
            Command::Script(call) => {
                self.shared.scripts.read(&call).map_or_else(Step::reply, Step::Locks)
            }
            Command::Quit => Step::Answer(Answer { is_last: true, ..Reply::OK.into() }),
            Command::Connection(command) => Step::reply(self.answer(command)),
        }
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

    /// The reply to a command that concerns the connection, not a lock.
    fn answer(&mut self, command: ConnectionCommand) -> Reply {
        match command {
            ConnectionCommand::Hello { protocol, credentials, name } => {
                self.hello(protocol.as_ref(), credentials, name)
            }
            ConnectionCommand::Auth(credentials) => match self.authenticate(&credentials) {
                Ok(()) => Reply::OK,
                Err(reply) => reply,
            },
            ConnectionCommand::Select(0)
            | ConnectionCommand::Client(ClientCommand::SetInfo) => Reply::OK,
            ConnectionCommand::Select(_) => {
                Reply::failure("DB index is out of range: a front has only 0")
            }
            ConnectionCommand::Client(ClientCommand::Id) => {
                Reply::Integer(self.id.cast_signed())
            }
            ConnectionCommand::Client(ClientCommand::GetName) if self.name.is_empty() => {
                Reply::Null
            }
            ConnectionCommand::Client(ClientCommand::GetName) => Reply::Bulk(self.name.clone()),
            ConnectionCommand::Client(ClientCommand::SetName(name)) => {
                match check_name(&name) {
                    Ok(()) => {
                        self.set_name(&name);
                        Reply::OK
                    }
                    Err(refusal) => Reply::failure(refusal),
                }
            }
            ConnectionCommand::Client(ClientCommand::MaintNotifications) => {
                Reply::failure("unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.")
            }
            ConnectionCommand::Ping(None) => Reply::Simple("PONG"),
            ConnectionCommand::Ping(Some(message)) | ConnectionCommand::Echo(message) => {
                Reply::Bulk(message)
            }
            ConnectionCommand::Info { sections } => Reply::text(info::text(&sections)),
            ConnectionCommand::DescribeCommands(reply) => reply,
            ConnectionCommand::Reset => {
                self.protocol = Protocol::default();
                self.is_authenticated = self.shared.password.is_none();
                self.set_name(b"");
                Reply::Simple("RESET")
            }
            ConnectionCommand::ScriptLoad(text) => self.shared.scripts.load(&text),
            ConnectionCommand::ScriptExists(digests) => self.shared.scripts.exist(&digests),
        }
    }

    fn hello(
        &mut self,
        protocol: Option<&Bytes>,
        credentials: Option<Credentials>,
        name: Option<Bytes>,
    ) -> Reply {
        let protocol = match protocol.map(command::protocol) {
            None => self.protocol,
            Some(Some(protocol)) => protocol,
            Some(None) => return Reply::Error("NOPROTO unsupported protocol version".into()),
        };
        if let Some(name) = &name
            && let Err(refusal) = check_name(name)
        {
            return Reply::failure(refusal);
        }
        if let Some(credentials) = credentials
            && let Err(reply) = self.authenticate(&credentials)
        {
            return reply;
        }
        if !self.is_authenticated {
            return Reply::Error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise \
                 the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the \
                 client and select the RESP protocol version at the same time"
                    .into(),
            );
        }
        if let Some(name) = name {
            self.set_name(&name);
        }
        self.protocol = protocol;
        info::hello(protocol, self.id)
    }

    fn authenticate(&mut self, credentials: &Credentials) -> Result<(), Reply> {
        let is_default = credentials.user.as_ref().is_none_or(|user| user.as_ref() == USER);
        let admitted = match &self.shared.password {
            Some(password) => is_default && password.is(&credentials.password),
            None if credentials.user.is_none() => {
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

fn no_auth() -> Reply {
    Reply::Error("NOAUTH Authentication required.".into())
}

/// The reply to a call that failed.
pub(super) fn failed(error: LockError) -> Reply {
    let ErrorDescription { reason, message, .. } = error.into();
    Reply::failure(format_args!("leasehold: {reason}: {message}"))
}
