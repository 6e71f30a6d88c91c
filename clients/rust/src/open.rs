//! Waits for a lock.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, timeout_at};
use tonic::{Status, Streaming};

use crate::{
    client::Client,
    clock::now,
    error::{Error, Failure},
    held::MaxHold,
    options::{Options, from_wire},
    raw::{LockAcquired, LockServerStream, lock_server_stream::LockServerStream as Event},
    status,
};

/// A ping comes every 10 s; a sidecar that is silent for longer than this is gone.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long the answer may take beyond the wait.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// By how much clocks may differ in a TTL, besides a twentieth of it.
const DRIFT_MIN: Duration = Duration::from_millis(20);
/// Longer than any process lives.
const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);

/// A lock that was just granted.
pub(crate) struct Opened {
    pub(crate) acquired: LockAcquired,
    pub(crate) stream: Streaming<LockServerStream>,
    pub(crate) ttl: Duration,
    /// Not later than the sidecar granted it.
    pub(crate) granted: Instant,
    /// Nobody else can get it before.
    pub(crate) safe_deadline: Instant,
    pub(crate) max_hold: Option<MaxHold>,
}

/// Asks for a lock and waits for it; dropping the future withdraws the request.
pub(crate) async fn open(client: &Client, options: &Options) -> Result<Opened, Error> {
    let (begun, sent) = (Instant::now(), now());
    let wait = if options.immediate { Some(Duration::ZERO) } else { options.wait };
    let limit = wait.map(|wait| after(begun, wait.saturating_add(ANSWER_MAX)));
    let give_up = |heard| {
        let silent = after(heard, SILENCE_MAX);
        limit.map_or(silent, |limit| limit.min(silent))
    };
    let refused = |status| status::not_acquired(options, client.address(), status);

    let opening = client.open(options.request(&client.store));
    let mut stream = answered(client, give_up(begun), opening).await?.map_err(refused)?;
    let acquired = loop {
        let message = answered(client, give_up(Instant::now()), stream.message()).await?;
        match message.map_err(refused)?.map(|message| message.lock_server_stream) {
            Some(Some(Event::LockAcquired(acquired))) => break acquired,
            Some(_) => {}
            None => return Err(Failure::unavailable("the sidecar ended the stream")),
        }
    };

    let ttl = from_wire(acquired.ttl);
    let granted = after(sent, from_wire(acquired.waited));
    let drift = ttl / 20 + DRIFT_MIN;
    // Returning drops the stream, which releases the lock.
    check_stop_before(options, ttl, drift)?;
    let safe_deadline = after(granted, ttl.saturating_sub(drift));
    let max_hold = options.max_hold.map(|max_hold| MaxHold {
        end: after(granted, max_hold),
        from: after(granted, max_hold.saturating_sub(drift)),
    });
    let capped = max_hold.as_ref().map_or(safe_deadline, |limit| safe_deadline.min(limit.end));
    if capped <= now() {
        let late = "the lock was granted too long ago to count as held";
        return Err(Failure::unavailable(late));
    }
    Ok(Opened { acquired, stream, ttl, granted, safe_deadline, max_hold })
}

/// Whether `stop_before` leaves any time for the work.
fn check_stop_before(options: &Options, ttl: Duration, drift: Duration) -> Result<(), Error> {
    let longest = ttl.saturating_sub(drift);
    if options.stop_before.is_none_or(|stop_before| stop_before < longest) {
        return Ok(());
    }
    let problem = format!("is not shorter than the granted TTL of {} s", ttl.as_secs_f64());
    Err(Failure::option("stop_before", &problem))
}

async fn answered<T>(
    client: &Client,
    limit: Instant,
    answer: impl Future<Output = Result<T, Status>>,
) -> Result<Result<T, Status>, Error> {
    let silent = |_| {
        client.fall_silent();
        Failure::unavailable("the sidecar does not answer")
    };
    timeout_at(limit, answer).await.map_err(silent)
}

/// `duration` after `instant`, or a time that never comes.
pub(crate) fn after(instant: Instant, duration: Duration) -> Instant {
    instant + duration.min(FAR)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tonic::transport::Channel;

    use super::*;
    use crate::{LockBuilder, Locks};

    /// With paused time no second passes here.
    #[tokio::test(start_paused = true)]
    async fn a_sidecar_that_never_answers_is_given_up() {
        // The system accepts its connections, and nothing reads them.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        // A channel of the caller's has no pings, which would end it earlier.
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        let locks = Locks::builder("lockstore").channel(channel).build().unwrap();
        let (try_lock, lock) = (|| locks.try_lock("order"), || locks.lock("order"));
        let secs = Duration::from_secs;

        let begin = Instant::now();
        assert_eq!(try_lock().acquire().await.unwrap_err().reason(), "UNAVAILABLE");
        assert_eq!(begin.elapsed().as_secs(), 10);
        for (wait, given_up) in [(Some(secs(5)), 15), (Some(secs(60)), 30), (None, 30)] {
            let begin = Instant::now();
            let lock = wait.into_iter().fold(lock(), LockBuilder::wait);
            assert_eq!(lock.acquire().await.unwrap_err().reason(), "UNAVAILABLE");
            assert_eq!(begin.elapsed().as_secs(), given_up);
        }
    }
}
