//! The calls of a client of fronts, as its library makes them, and their outcomes.

use std::time::Duration;

use redis::Script;
use tokio::time::Instant;

use super::{
    Held, User,
    libraries::{Calling, Library, Missing, Renew, Take},
    link::Sent,
    resp::Reply,
};
use crate::history::{Acquisition, Call, FRONT_VIA, Granted, NOT_SENT, Outcome};

/// How the errors of a front begin for commands that it does not serve, and for others.
const NOT_SERVED: &str = "ERR leasehold serves locks only: ";
const FAILED: &str = "ERR leasehold: ";

impl User {
    pub(super) async fn take(
        &mut self,
        resource: &str,
        value: &str,
        ttl_ms: u64,
    ) -> anyhow::Result<Outcome> {
        let call = front_try(value, ttl_ms);
        let (ttl, length) = (ttl_ms.to_string(), value.len().to_string());
        let seconds = (ttl_ms / 1_000).to_string();
        let take = self.library.take;
        self.record(resource, &call, async |user| {
            let sent = match take {
                Take::Milliseconds => {
                    user.link.ask(&["SET", resource, value, "NX", "PX", &ttl]).await
                }
                Take::Seconds => {
                    user.link.ask(&["SET", resource, value, "EX", &seconds, "NX"]).await
                }
                Take::Script(script) => user.script(script, resource, &[value, &ttl]).await,
                Take::WithLength(script) => {
                    user.script(script, resource, &[value, &length, &ttl]).await
                }
            };
            match answered(sent) {
                Err(outcome) => outcome,
                Ok((reply, _)) if is_done(&reply) => {
                    let (lock_id, ttl_ns) = (value.to_owned(), ttl_ms * 1_000_000);
                    Outcome::Granted(Granted { lock_id, ttl_ns, ..Granted::default() })
                }
                // An earlier sending may have taken it.
                Ok((_, true)) => Outcome::Unknown("no answer".into()),
                Ok(_) => Outcome::Locked,
            }
        })
        .await
    }

    /// Sends a request for a lock, and disconnects.
    pub(super) async fn ask_and_leave(
        &mut self,
        resource: &str,
        value: &str,
        ttl_ms: u64,
    ) -> anyhow::Result<()> {
        let call = front_try(value, ttl_ms);
        let ttl = ttl_ms.to_string();
        self.record(resource, &call, async |user| {
            match user.link.ask_and_leave(&["SET", resource, value, "NX", "PX", &ttl]).await {
                Sent::Never => Outcome::Refused(NOT_SENT.into()),
                _ => Outcome::Unknown("cancelled".into()),
            }
        })
        .await
        .map(drop)
    }

    pub(super) async fn renew(&mut self, held: &mut Held) -> anyhow::Result<()> {
        let (renew, ttl_ms) = (self.library.renew, held.ttl_ms);
        if renew == Renew::Never {
            return Ok(());
        }
        let call = Call::Renew { lock_id: held.value.clone(), ttl_ms };
        let (resource, value, ttl) = (&held.resource, &held.value, ttl_ms.to_string());
        let sent_at = Instant::now();
        let outcome = self
            .record(resource, &call, async |user| {
                let sent = match renew {
                    Renew::Never => Sent::Never,
                    Renew::Set => {
                        user.link.ask(&["SET", resource, value, "XX", "PX", &ttl]).await
                    }
                    Renew::Script(script) => {
                        user.script(script, resource, &[value, &ttl]).await
                    }
                    Renew::Replacing(script) => {
                        user.script(script, resource, &[value, &ttl, "1"]).await
                    }
                };
                match answered(sent) {
                    Err(outcome) => outcome,
                    Ok((reply, _)) if is_done(&reply) => {
                        Outcome::Renewed { ttl_ns: ttl_ms * 1_000_000 }
                    }
                    Ok(_) => Outcome::NotHeld { held: None },
                }
            })
            .await?;
        if matches!(outcome, Outcome::Renewed { .. }) {
            held.ends = sent_at + Duration::from_millis(ttl_ms);
        }
        Ok(())
    }

    pub(super) async fn release(&mut self, resource: &str, value: &str) -> anyhow::Result<()> {
        let call = Call::Unlock { lock_id: value.to_owned() };
        self.release_as(resource, value, &call).await
    }

    pub(super) async fn release_wrong(&mut self, resource: &str) -> anyhow::Result<()> {
        let lock_id = self.random_id();
        let call = Call::UnlockWrong { lock_id: lock_id.clone() };
        self.release_as(resource, &lock_id, &call).await
    }

    async fn release_as(
        &mut self,
        resource: &str,
        value: &str,
        call: &Call,
    ) -> anyhow::Result<()> {
        let Library { release, missing, .. } = self.library;
        self.record(resource, call, async |user| {
            match answered(user.script(release, resource, &[value]).await) {
                Err(outcome) => outcome,
                Ok((reply, _)) if is_done(&reply) => Outcome::Unlocked,
                // An earlier sending may have released it.
                Ok((_, true)) => Outcome::Unknown("no answer".into()),
                Ok((reply, _)) => {
                    let held = match (missing, reply) {
                        (Missing::Distinguishes { .. }, Reply::Integer(-1)) => Some(false),
                        (Missing::Distinguishes { held }, Reply::Integer(code))
                            if code == held =>
                        {
                            Some(true)
                        }
                        _ => None,
                    };
                    Outcome::NotHeld { held }
                }
            }
        })
        .await
        .map(drop)
    }

    /// Calls a script as its library does.
    async fn script(&mut self, script: &'static str, key: &str, arguments: &[&str]) -> Sent {
        let digest = Script::new(script).get_hash().to_owned();
        let with = |command, script| {
            let mut words = vec![command, script, "1", key];
            words.extend(arguments);
            words
        };
        if self.library.calling == Calling::Text {
            return self.link.ask(&with("EVAL", script)).await;
        }
        let sent = self.link.ask(&with("EVALSHA", &digest)).await;
        let Sent::Answered { reply: Reply::Error(error), is_again } = &sent else {
            return sent;
        };
        if !error.starts_with("NOSCRIPT") {
            return sent;
        }
        let again = if self.library.calling == Calling::Loading {
            let _ = self.link.ask(&["SCRIPT", "LOAD", script]).await;
            self.link.ask(&with("EVALSHA", &digest)).await
        } else {
            self.link.ask(&with("EVAL", script)).await
        };
        // A restarted front forgets scripts, and an earlier try may have been carried out.
        if *is_again { again.after_others() } else { again }
    }

    async fn record(
        &mut self,
        resource: &str,
        call: &Call,
        outcome: impl AsyncFnOnce(&mut Self) -> Outcome,
    ) -> anyhow::Result<Outcome> {
        let caller = self.client.caller.clone();
        let via = u32::try_from(self.link.home).ok().map(|home| FRONT_VIA + home);
        caller.record(resource, call, via, outcome(self)).await
    }
}

fn front_try(value: &str, ttl_ms: u64) -> Call {
    let lock_id = Some(value.to_owned());
    Call::FrontTry(Acquisition { ttl_ms, lock_id, ..Acquisition::default() })
}

/// Whether the reply means success.
fn is_done(reply: &Reply) -> bool {
    matches!(reply, Reply::Integer(1)) || *reply == Reply::Text("OK".into())
}

/// The reply, and whether the call was sent before; or the outcome if there is no usable
/// reply.
fn answered(sent: Sent) -> Result<(Reply, bool), Outcome> {
    match sent {
        Sent::Never => Err(Outcome::Refused(NOT_SENT.into())),
        Sent::Lost => Err(Outcome::Unknown("no answer".into())),
        Sent::Answered { reply: Reply::Error(error), is_again } => {
            Err(failed(&error, is_again))
        }
        Sent::Answered { reply, is_again } => Ok((reply, is_again)),
    }
}

fn failed(error: &str, is_again: bool) -> Outcome {
    if let Some(what) = error.strip_prefix(NOT_SERVED) {
        return Outcome::Refused(format!("NOT_SERVED: {what}"));
    }
    if is_again {
        return Outcome::Unknown("no answer".into());
    }
    // The script was not loaded, or the front was restarted since.
    if error.starts_with("NOSCRIPT") {
        return Outcome::Unavailable;
    }
    let reason = error.strip_prefix(FAILED).and_then(|message| message.split(':').next());
    match reason {
        Some("STORE_UNAVAILABLE" | "SHUTTING_DOWN") => Outcome::Unavailable,
        Some(reason @ ("OUTCOME_UNKNOWN" | "INTERNAL")) => Outcome::Unknown(reason.into()),
        Some(reason) => Outcome::Refused(reason.to_owned()),
        None => Outcome::Refused(error.to_owned()),
    }
}
