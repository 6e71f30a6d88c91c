//! Locks that their owner takes again.

use std::{convert::Infallible, sync::Arc, time::Duration};

use leasehold_client::{Cause, Error, Locks, Mode, RunError};

use crate::{
    holding::{SHORT, not_acquired},
    stage::Backend,
    support::{cause_of, eventually_free, force_unlock, is_held},
};

pub(crate) async fn a_reentrant_lock_counts(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), "reentrant");
    let again = || locks.lock(name).reentrant(true).wait(Duration::ZERO);
    let outer = locks.lock(name).reentrant(true).run(async |outer| {
        let inner = again().run(async |inner| {
            assert_eq!(inner.token(), outer.token());
            let innermost = again().acquire().await?;
            assert_eq!(innermost.lock_id(), outer.lock_id());
            innermost.unlock().await?;
            assert_eq!(innermost.check().unwrap_err().cause(), &Cause::Ended);
            innermost.unlock().await?;
            drop(innermost);
            inner.check()?;
            Ok::<_, Error>(())
        });
        inner.await.map_err(|error| error.into_work(|error| error))?;
        assert!(is_held(&locks, name).await);
        outer.check()?;

        let other_mode = again().mode(Mode::Shared).acquire().await.unwrap_err();
        assert!(other_mode.to_string().contains("mode"), "{other_mode}");
        let unasked = locks.lock(name).wait(Duration::ZERO).acquire().await;
        assert_eq!(not_acquired(unasked).0, "RESOURCE_LOCKED");
        let namespaced = again().namespace(["else"]).acquire().await?;
        assert_ne!(namespaced.lock_id(), outer.lock_id());
        let child = locks.clone();
        let child = async move { is_held(&child, name).await };
        assert!(tokio::spawn(child).await.unwrap());
        outer.unlock().await?;
        // Not held any more, so this is a lock of its own.
        assert!(again().acquire().await?.token() > outer.token());
        Ok::<_, Error>(())
    });
    outer.await.unwrap();
    eventually_free(&locks, name).await;
}

/// The last handle releases the lock, also one that outlives the work of the first.
pub(crate) async fn a_reentrant_lock_lasts_until_its_last_end(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), "last-end");
    let inner = locks.lock(name).reentrant(true).run(async |outer| {
        let inner = locks.lock(name).reentrant(true).acquire().await?;
        outer.unlock().await?;
        assert_eq!(outer.valid_for(), Duration::ZERO);
        assert_eq!(outer.lost().await.cause(), &Cause::Ended);
        Ok::<_, Error>(inner)
    });
    let inner = inner.await.unwrap();
    inner.check().unwrap();
    assert!(is_held(&locks, name).await);
    inner.unlock().await.unwrap();
    assert!(!is_held(&locks, name).await);

    // A clone is the same client; another client is never the same owner.
    let (clone, other) = (locks.clone(), backend.shared().locks());
    let outer = locks.lock(name).reentrant(true).run(async |_| {
        let ask = |locks: &Locks| locks.lock(name).reentrant(true).wait(Duration::ZERO);
        drop(ask(&clone).acquire().await.unwrap());
        assert_eq!(not_acquired(ask(&other).acquire().await).0, "RESOURCE_LOCKED");
        Ok::<_, Error>(())
    });
    outer.await.unwrap();
    assert!(!is_held(&locks, name).await);
}

pub(crate) async fn a_lock_is_not_reentrant_by_default(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), "not-reentrant");
    let outer = locks.lock(name).run(async |_| {
        for reentrant in [false, true] {
            let inner = locks.lock(name).reentrant(reentrant).wait(SHORT).acquire().await;
            assert_eq!(not_acquired(inner).0, "WAIT_DEADLINE");
        }
        Ok::<_, Infallible>(())
    });
    outer.await.unwrap_or_else(|error: RunError<_>| panic!("{error}"));
}

/// Although its own end releases nothing.
pub(crate) async fn an_inner_handle_reports_the_loss(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), "lost-inner");
    let again = || locks.lock(name).reentrant(true);
    let mut causes = Vec::new();
    let outer = again().run(async |_| {
        let handle = again().acquire().await?;
        let inner = again().run(async |inner| {
            let locks = locks.clone();
            tokio::spawn(async move { force_unlock(&locks, name).await });
            inner.lost().await;
            Ok::<_, Infallible>(())
        });
        causes.push(cause_of(&inner.await.unwrap_err()));
        causes.push(handle.unlock().await.unwrap_err().cause().clone());
        Ok::<_, Error>(())
    });
    assert_eq!(cause_of(&outer.await.unwrap_err()), Cause::Forced);
    assert_eq!(causes, [Cause::Forced, Cause::Forced]);
}
