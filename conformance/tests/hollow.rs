//! Checks the suite itself: no case passes on every store.
//!
//! Two stores keep no locks. One refuses every call, the other grants every
//! call; both declare every feature. A case that passes on both checks nothing.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::{collections::BTreeSet, path::Path};

use leasehold_conformance::{
    Component, Feature, Options, Outcome, Restart, Suite, catalogue, run_collect,
};
use leasehold_proto::components::{
    FeaturesRequest, FeaturesResponse, LockRequest, LockResponse, LockStoreInitRequest,
    LockStoreInitResponse, PingRequest, PingResponse, RenewLockRequest, RenewLockResponse,
    UnlockRequest, UnlockResponse,
    lock_store_server::{LockStore, LockStoreServer},
};
use tempfile::TempDir;
use tokio::{net::UnixListener, runtime::Runtime};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::Server};

/// True of any store that answers at all.
const TRUE_OF_BOTH: [&str; 7] = [
    "init: Init repeated with equal metadata is accepted",
    "init: Ping answers before Init",
    "init: Features answers before Init",
    "services: Ping answers",
    "services: Features names each feature once",
    // Both lack these services.
    "services: reflection v1, where there is one, lists the lock store",
    "services: health, where it is served, is SERVING",
];

/// A store without locks.
#[derive(Clone, Copy)]
struct Hollow {
    grants: bool,
    features: &'static [Feature],
}

impl Hollow {
    fn answer<T>(self, granted: T) -> Result<Response<T>, Status> {
        if self.grants { Ok(Response::new(granted)) } else { Err(Status::internal("no")) }
    }

    fn grant(self, request: LockRequest) -> Result<Response<LockResponse>, Status> {
        let LockRequest { lock_id, ttl, .. } = request;
        self.answer(LockResponse {
            lock_id,
            fencing_token: 1,
            ttl,
            waited: None,
            grant_id: String::new(),
        })
    }
}

#[tonic::async_trait]
impl LockStore for Hollow {
    async fn init(
        &self,
        _request: Request<LockStoreInitRequest>,
    ) -> Result<Response<LockStoreInitResponse>, Status> {
        Ok(Response::new(LockStoreInitResponse {}))
    }

    async fn features(
        &self,
        _request: Request<FeaturesRequest>,
    ) -> Result<Response<FeaturesResponse>, Status> {
        let features = self.features.iter().map(ToString::to_string).collect();
        Ok(Response::new(FeaturesResponse { features }))
    }

    async fn ping(
        &self,
        _request: Request<PingRequest>,
    ) -> Result<Response<PingResponse>, Status> {
        Ok(Response::new(PingResponse {}))
    }

    async fn try_lock(
        &self,
        request: Request<LockRequest>,
    ) -> Result<Response<LockResponse>, Status> {
        self.grant(request.into_inner())
    }

    async fn lock(
        &self,
        request: Request<LockRequest>,
    ) -> Result<Response<LockResponse>, Status> {
        self.grant(request.into_inner())
    }

    async fn renew_lock(
        &self,
        request: Request<RenewLockRequest>,
    ) -> Result<Response<RenewLockResponse>, Status> {
        self.answer(RenewLockResponse { ttl: request.into_inner().ttl })
    }

    async fn unlock(
        &self,
        _request: Request<UnlockRequest>,
    ) -> Result<Response<UnlockResponse>, Status> {
        self.answer(UnlockResponse {})
    }
}

/// A hollow store on a socket of its own, until it is dropped.
struct Served {
    folder: TempDir,
    _runtime: Runtime,
}

impl Served {
    fn new(store: Hollow) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let listener = {
            let _entered = runtime.enter();
            UnixListener::bind(folder.path().join("hollow.sock")).unwrap()
        };
        runtime.spawn(
            Server::builder()
                .add_service(LockStoreServer::new(store))
                .serve_with_incoming(UnixListenerStream::new(listener)),
        );
        Self { folder, _runtime: runtime }
    }

    fn options(&self) -> Options {
        let component = Path::new(env!("CARGO_MANIFEST_DIR")).join("thirdparty/component.yaml");
        let socket = self.folder.path().join("hollow.sock");
        let mut options = Options::new(&socket, Component::read(&component).unwrap());
        options.second_socket = Some(socket);
        options.restart = Some(Restart::new(|| Ok(())));
        options.threads = 32;
        options
    }
}

fn not_failed(store: Hollow) -> BTreeSet<String> {
    let outcomes = run_collect(&Served::new(store).options()).unwrap();
    let failed = |outcome: &Outcome| matches!(outcome, Outcome::Failed(_));
    outcomes.into_iter().filter(|(_, outcome)| !failed(outcome)).map(|(name, _)| name).collect()
}

#[test]
fn no_case_passes_on_a_store_that_refuses_and_on_one_that_grants() {
    let refusing = not_failed(Hollow { grants: false, features: &Feature::ALL });
    let granting = not_failed(Hollow { grants: true, features: &Feature::ALL });
    let both: BTreeSet<&str> = refusing.intersection(&granting).map(String::as_str).collect();
    assert_eq!(both, BTreeSet::from(TRUE_OF_BOTH));
}

#[test]
fn a_feature_that_is_not_declared_is_ignored_by_its_name() {
    let served = Served::new(Hollow { grants: false, features: &[Feature::Fair] });
    let outcomes = run_collect(&served.options()).unwrap();
    let of = |theme: &str| {
        let cases = outcomes.iter().filter(|(name, _)| name.starts_with(theme));
        cases.map(|(_, outcome)| outcome.clone()).collect::<Vec<_>>()
    };
    let ignored = Outcome::Ignored("the store does not declare FORCE_UNLOCK".to_owned());
    assert!(of("force: ").iter().all(|outcome| *outcome == ignored), "{:?}", of("force: "));
    assert!(of("fair: ").iter().all(|outcome| matches!(outcome, Outcome::Failed(_))));
}

#[test]
fn the_junit_report_names_the_features_and_why_a_case_was_left_out() {
    let served = Served::new(Hollow { grants: false, features: &[Feature::ForceUnlock] });
    let mut options = served.options();
    options.second_socket = None;
    let xml = Suite::connect(&options).unwrap().junit().unwrap();
    assert!(xml.contains(r#"<property name="features" value="FORCE_UNLOCK"/>"#), "{xml}");
    let version = env!("CARGO_PKG_VERSION");
    let version = format!(r#"<property name="version" value="{version}"/>"#);
    assert!(xml.contains(&version), "{xml}");
    for why in [
        "no second socket was given",
        "the store declares FORCE_UNLOCK",
        "not chosen for this run",
    ] {
        assert!(xml.contains(&format!(r#"<skipped message="{why}"/>"#)), "{why}: {xml}");
    }
}

#[test]
fn a_store_that_goes_away_is_reported_once_and_ends_the_run() {
    let served = Served::new(Hollow { grants: false, features: &[] });
    let mut options = served.options();
    let cases = catalogue().into_iter().map(|case| case.name);
    options.only = Some(cases.filter(|name| name.starts_with("unlock: ")).collect());
    let suite = Suite::connect(&options).unwrap();
    drop(served);
    let one_by_one = libtest_mimic::Arguments {
        test_threads: Some(1),
        ..libtest_mimic::Arguments::default()
    };
    let _ = libtest_mimic::run(&one_by_one, suite.trials());
    let reports = suite.recorder().reports();
    let failed: Vec<_> =
        reports.iter().filter(|report| matches!(report.outcome, Outcome::Failed(_))).collect();
    let why = suite.stopped().expect("the store is gone");
    assert_eq!(failed.len(), 1, "{failed:#?}");
    assert!(why.contains(&format!("went away during `{}`", failed[0].case.name)), "{why}");
}

#[test]
fn a_socket_that_nobody_serves_is_named() {
    let served = Served::new(Hollow { grants: false, features: &[] });
    let mut options = served.options();
    options.socket = served.folder.path().join("nobody.sock");
    let error = Suite::connect(&options).err().expect("nobody serves it");
    let message = format!("{error:#}");
    assert!(
        message.contains("nothing listens at") && message.contains("nobody.sock"),
        "{message}"
    );
}
