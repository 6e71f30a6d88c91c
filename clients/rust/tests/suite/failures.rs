//! Work that fails.

use std::{error, fmt, sync::Arc};

use leasehold_client::{Cause, Error, Lock, LockLost, Locks, RunError, raw};
use raw::locks_client::LocksClient;
use tonic::Code;

use crate::{
    stage::Backend,
    support::{PATIENCE, cause_of, eventually_free, eventually_waiting, force_unlock},
};

#[derive(Debug, PartialEq)]
struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the work is broken")
    }
}

impl error::Error for Broken {}

/// Loses the lock from another task, and waits for the loss.
async fn lose(locks: &Locks, lock: &Lock) -> LockLost {
    let (locks, name) = (locks.clone(), lock.resource().to_owned());
    tokio::spawn(async move { force_unlock(&locks, &name).await });
    lock.lost().await
}

pub(crate) async fn the_error_of_the_work_wins(backend: Arc<Backend>) {
    let locks = backend.shared().locks();
    let failing = locks.lock("fails").run(async |lock| {
        lose(&locks, lock).await;
        Err::<(), _>(Broken)
    });
    let error = failing.await.unwrap_err();
    assert_eq!(error.work(), Some(&Broken));
    assert_eq!(error.lost().map(LockLost::cause), Some(&Cause::Forced));
    assert_eq!(error.to_string(), "the work is broken (lock \"fails\" lost: forced)");
}

pub(crate) async fn a_loss_that_the_work_returns_is_no_error_of_its_own(backend: Arc<Backend>) {
    async fn cause<E: 'static + fmt::Debug + From<LockLost>>(locks: &Locks) -> Cause {
        let mut returned = false;
        let losing = locks.lock("loses").wait(PATIENCE).run(async |lock| {
            let lost = lose(locks, lock).await;
            returned = true;
            Err::<(), _>(E::from(lost))
        });
        let error = losing.await.unwrap_err();
        assert!(returned);
        cause_of(&error)
    }
    let locks = backend.shared().locks();
    assert_eq!(cause::<LockLost>(&locks).await, Cause::Forced);
    assert_eq!(cause::<Error>(&locks).await, Cause::Forced);
    assert_eq!(cause::<Box<dyn error::Error + Send + Sync>>(&locks).await, Cause::Forced);
    assert_eq!(cause::<Box<dyn error::Error>>(&locks).await, Cause::Forced);

    // A loss of another lock is an error of the work, whether or not this one is lost too.
    let both = locks.lock("loses").wait(PATIENCE).run(async |lock| {
        let inner = locks.lock("loses-too").acquire().await?;
        let loss = lose(&locks, &inner).await;
        lose(&locks, lock).await;
        Err::<(), _>(Error::from(loss))
    });
    let error = both.await.unwrap_err();
    assert!(error.work().is_some_and(|error| error.to_string().contains("loses-too")));
    assert_eq!(error.lost().map(LockLost::cause), Some(&Cause::Forced));
    let other = locks.lock("not-lost").run(async |_| {
        let lost = locks
            .lock("loses")
            .wait(PATIENCE)
            .run(async |lock| Err::<(), LockLost>(lose(&locks, lock).await));
        Err::<(), RunError<LockLost>>(lost.await.unwrap_err())
    });
    let error = other.await.unwrap_err();
    assert!(error.work().is_some() && error.lost().is_none());
}

pub(crate) async fn a_failed_unlock_does_not_hide_the_error_of_the_work(backend: Arc<Backend>) {
    let stage = backend.start();
    let locks = stage.locks();
    let failing = locks.lock("suspended").run(async |_| {
        stage.command("suspend");
        Err::<(), _>(Broken)
    });
    let error = failing.await.unwrap_err();
    assert!(matches!(error, RunError::Work { error: Broken, lost: None }), "{error}");
    stage.command("resume");
    // The stream was closed, which releases the lock.
    eventually_free(&stage.locks(), "suspended").await;
}

/// Somebody else has unlocked with the lock ID, and the report of it is still on the way.
pub(crate) async fn an_unlock_that_finds_nothing_reports_the_loss(backend: Arc<Backend>) {
    let stage = backend.start();
    let lock = stage.locks_by_proxy().lock("elsewhere").acquire().await.unwrap();
    stage.command("stall");
    let request = raw::UnlockRequest {
        resource_id: "elsewhere".to_owned(),
        lock_id: lock.lock_id().to_owned(),
        store_name: "lockstore".to_owned(),
        ..Default::default()
    };
    LocksClient::new(stage.locks().channel()).unlock(request).await.unwrap();
    lock.check().unwrap();
    // The unlock begins before the proxy lets anything pass.
    let heal = async { stage.command("heal") };
    let (unlocked, ()) = tokio::join!(biased; lock.unlock(), heal);
    assert_eq!(unlocked.unwrap_err().cause(), &Cause::Ended);
    assert_eq!(lock.unlock().await.unwrap_err().cause(), &Cause::Ended);
}

/// Neither the message of a source nor the error of the work comes twice in a chain of errors.
pub(crate) async fn the_message_is_complete_and_nothing_comes_twice(_: Arc<Backend>) {
    let nowhere = Locks::builder("lockstore").address("127.0.0.1:1").build().unwrap();
    let nobody = nowhere.lock("nobody").run(async |_| Ok::<_, Broken>(())).await.unwrap_err();
    let message = nobody.to_string();
    let (begin, end) = message.split_once("refused").unwrap();
    assert!(begin.starts_with("UNAVAILABLE: no sidecar at 127.0.0.1:1: "), "{message}");
    let advice = "; start \"leasehold sidecar\", or set DAPR_GRPC_ENDPOINT or DAPR_GRPC_PORT";
    assert!(end.ends_with(advice), "{message}");
    assert_eq!(format!("{nobody:?}"), message);
    assert!(error::Error::source(&nobody).is_none());
    let own = Locks::builder("lockstore").channel(nowhere.channel()).build().unwrap();
    let message = own.lock("nobody").acquire().await.unwrap_err().to_string();
    assert!(message.starts_with("UNAVAILABLE: no sidecar: "), "{message}");
    assert!(message.ends_with("; start \"leasehold sidecar\""), "{message}");
    let failed = matches!(&nobody, RunError::Lock(Error::Failed(failure))
        if failure.status().is_some_and(|status| status.code() == Code::Unavailable));
    assert!(failed, "{nobody:?}");
    assert!(error::Error::source(&RunError::Work { error: Broken, lost: None }).is_none());
}

pub(crate) async fn an_http_port_is_named(backend: Arc<Backend>) {
    let address = format!("127.0.0.1:{}", backend.shared().http_port);
    let locks = Locks::builder("lockstore").address(&address).build().unwrap();
    let message = locks.lock("here").acquire().await.unwrap_err().to_string();
    let begin = format!("UNIMPLEMENTED: {address} is the sidecar's HTTP port; ");
    assert!(message.starts_with(&begin) && message.contains("DAPR_GRPC_PORT"), "{message}");
}

/// Independent of tonic's code for it.
pub(crate) async fn a_wait_whose_connection_breaks_is_unavailable(backend: Arc<Backend>) {
    let stage = backend.start();
    let _held = stage.locks().lock("awaited").acquire().await.unwrap();
    for (locks, command) in [(stage.locks_by_proxy(), "cut"), (stage.locks(), "kill")] {
        let waiter = tokio::spawn(locks.lock("awaited").acquire());
        eventually_waiting(&stage.locks(), "awaited", 1).await;
        stage.command(command);
        assert_eq!(waiter.await.unwrap().unwrap_err().reason(), "UNAVAILABLE", "{command}");
    }
}
