//! Detects a connection that is silent while others work: a firewall drops its packets, or
//! its host has vanished.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{
    failure::Failure,
    session::{Greeted, OPEN_TIMEOUT, Session},
};

/// How long a connection may owe an answer before it is pinged.
pub(super) const SUSPICIOUS: Duration = Duration::from_secs(1);
/// How long it may owe an answer before another connection is opened.
const SILENT: Duration = Duration::from_millis(1500);
/// How much later than the other connection it may answer.
const LEAD: Duration = Duration::from_millis(300);
/// The pause before yet another connection is tried.
const PAUSE: Duration = Duration::from_secs(1);

/// Returns another connection once it answers, and this one still owes an answer a little later.
/// If both are silent, the server is slow; then at most one other connection is open at a time.
pub(super) async fn outlived<D>(session: &Session, dial: impl Fn() -> D) -> Greeted
where
    D: Future<Output = Result<Greeted, Failure>>,
{
    loop {
        session.owed.silent_for(SILENT).await;
        let other = async {
            let other = dial().await.ok()?;
            other.answers().await.ok()?;
            Some(other)
        };
        let answered = timeout(OPEN_TIMEOUT, other).await;
        // A server that stood still answers on both.
        sleep(LEAD).await;
        if let Ok(Some(other)) = answered
            && session.owed.is_silent_for(SILENT + LEAD)
        {
            return other;
        }
        sleep(PAUSE).await;
    }
}
