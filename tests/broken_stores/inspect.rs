//! Defects of inspection: an `Inspect` around that of memory.

use async_trait::async_trait;
use leasehold_lock::{
    Backend as _, BackendError, Holder, ResourceId,
    inspect::{Inspect, Inspected, LockView, Mirror, Page, PageRequest, Selection, WaiterView},
};
use tokio::time::Instant;

use crate::defect::{Broken, Defect};

impl Broken {
    fn inspected(&self) -> &dyn Inspect {
        self.memory.inspect().unwrap()
    }
}

#[async_trait]
impl Inspect for Broken {
    async fn get(
        &self,
        resource: &ResourceId,
        grants: &PageRequest,
        until: Instant,
    ) -> Result<Inspected, BackendError> {
        let mut found = self.inspected().get(resource, grants, until).await?;
        let granted = self.granted.lock().unwrap();
        let first = granted.iter().find(|granted| granted.resource == *resource);
        for (grant, first) in found.lock.grants.iter_mut().zip(first) {
            match self.defect {
                Defect::GetLockShowsALockId => {
                    grant.holder = Holder::new(first.lock_id.as_str()).unwrap();
                }
                Defect::ASuccessorIsEnded => grant.id = first.id,
                _ => {}
            }
        }
        Ok(found)
    }

    async fn list(
        &self,
        selection: &Selection,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<LockView>, BackendError> {
        let mut found = self.inspected().list(selection, page, until).await?;
        if self.defect == Defect::AListSkipsBetweenPages && page.after.is_some() {
            found.items.drain(..found.items.len().min(1));
        }
        Ok(found)
    }

    async fn waiters(
        &self,
        resource: &ResourceId,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<WaiterView>, BackendError> {
        self.inspected().waiters(resource, page, until).await
    }

    async fn watch(&self, mirror: &Mirror) -> BackendError {
        if self.defect != Defect::AWatchMissesChanges {
            return self.inspected().watch(mirror).await;
        }
        let all = (Selection::default(), PageRequest::first(100_000));
        if let Ok(page) = self.inspected().list(&all.0, &all.1, Instant::now()).await {
            page.items.into_iter().for_each(|lock| mirror.set(lock, Vec::new()));
        }
        mirror.complete_up_to(u64::MAX);
        std::future::pending().await
    }
}
