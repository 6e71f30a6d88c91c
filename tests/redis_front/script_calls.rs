//! Each script that is recognised, with each of its outcomes.

use crate::{
    client::{NULL, Value, bulk, int, ok},
    scripts::*,
    stage::{Backend, Stage},
};

/// What a script does to the lock of its caller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Ends,
    /// It lasts for more than 500 s.
    Renews,
    Nothing,
}

/// A script with its arguments after the value, and its replies.
pub struct Case {
    pub script: &'static str,
    pub arguments: &'static [&'static str],
    pub own: Value,
    pub effect: Effect,
    pub anothers: Value,
    pub none: Value,
    /// Whether it takes a lock that is free.
    pub takes: bool,
}

pub const TEN_MINUTES: &str = "600000";

impl Case {
    pub fn new(
        script: &'static str,
        arguments: &'static [&'static str],
        effect: Effect,
    ) -> Self {
        Self {
            script,
            arguments,
            own: int(1),
            effect,
            anothers: int(0),
            none: int(0),
            takes: false,
        }
    }

    pub fn ends(script: &'static str) -> Self {
        Self::new(script, &[], Effect::Ends)
    }

    pub fn renews(script: &'static str) -> Self {
        Self::new(script, &[TEN_MINUTES], Effect::Renews)
    }

    pub async fn holds(self, backend: Backend) {
        let stage = Stage::on(backend).await;
        let mut client = stage.client().await;
        let arguments = [&["me"], self.arguments].concat();
        // Nobody holds it.
        assert_eq!(client.eval(self.script, "free", &arguments).await, self.none);
        let expected = if self.takes { bulk("me") } else { NULL };
        assert_eq!(client.ask(&["GET", "free"]).await, expected);
        // Another one holds it.
        client.take("theirs", "other").await;
        assert_eq!(client.eval(self.script, "theirs", &arguments).await, self.anothers);
        assert_eq!(client.ask(&["GET", "theirs"]).await, bulk("other"));
        assert!(client.ask(&["PTTL", "theirs"]).await.number() <= 62_000);
        // The caller holds it.
        client.take("mine", "me").await;
        assert_eq!(client.eval(self.script, "mine", &arguments).await, self.own);
        let left = client.ask(&["PTTL", "mine"]).await.number();
        match self.effect {
            Effect::Ends => assert_eq!(left, -2),
            Effect::Renews => assert!(left > 500_000, "{left}"),
            Effect::Nothing => assert!((1..=62_000).contains(&left), "{left}"),
        }
    }
}

#[tokio::test]
async fn release_of_redis_documentation() {
    Case::ends(RELEASE).holds(Backend::Memory).await;
}

#[tokio::test]
async fn extension_of_redislock_redsync_and_shedlock() {
    Case::renews(RENEW).holds(Backend::Memory).await;
}

#[tokio::test]
async fn extension_in_seconds() {
    Case::new(RENEW_SECONDS, &["600"], Effect::Renews).holds(Backend::Memory).await;
}

#[tokio::test]
async fn unlock_of_daprd() {
    let case = Case { anothers: int(-2), none: int(-1), ..Case::ends(DAPRD_UNLOCK) };
    case.holds(Backend::Memory).await;
}

#[tokio::test]
async fn release_of_redis_py() {
    Case::ends(REDIS_PY_RELEASE).holds(Backend::Memory).await;
}

#[tokio::test]
async fn extension_of_redis_py_that_replaces_the_ttl() {
    Case::new(REDIS_PY_EXTEND, &[TEN_MINUTES, "1"], Effect::Renews)
        .holds(Backend::Memory)
        .await;
}

#[tokio::test]
async fn extension_of_redis_py_that_adds_to_the_ttl() {
    Case::new(REDIS_PY_EXTEND, &[TEN_MINUTES, "0"], Effect::Renews)
        .holds(Backend::Memory)
        .await;
}

#[tokio::test]
async fn reacquisition_of_redis_py() {
    Case::renews(REDIS_PY_REACQUIRE).holds(Backend::Memory).await;
}

#[tokio::test]
async fn unlock_of_redsync() {
    Case { none: int(-1), ..Case::ends(REDSYNC_UNLOCK) }.holds(Backend::Memory).await;
}

#[tokio::test]
async fn extension_of_redsync_that_may_take_the_lock() {
    let case = Case { none: int(1), takes: true, ..Case::renews(REDSYNC_EXTEND_OR_TAKE) };
    case.holds(Backend::Memory).await;
}

#[tokio::test]
async fn obtaining_of_redislock() {
    let arguments = &["2", TEN_MINUTES];
    for script in [REDISLOCK_OBTAIN, REDISLOCK_10_OBTAIN] {
        let case = Case {
            own: ok(),
            anothers: NULL,
            none: ok(),
            takes: true,
            ..Case::new(script, arguments, Effect::Renews)
        };
        case.holds(Backend::Memory).await;
    }
}

#[tokio::test]
async fn refresh_of_redislock_0_10() {
    Case { own: ok(), anothers: NULL, none: NULL, ..Case::renews(REDISLOCK_10_REFRESH) }
        .holds(Backend::Memory)
        .await;
}

#[tokio::test]
async fn release_of_redislock_0_10() {
    Case { own: ok(), anothers: NULL, none: NULL, ..Case::ends(REDISLOCK_10_RELEASE) }
        .holds(Backend::Memory)
        .await;
}

#[tokio::test]
async fn ttl_of_redislock_0_10() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    client.take("mine", "me").await;
    client.take("theirs", "other").await;
    let left = client.eval(REDISLOCK_10_TTL, "mine", &["me"]).await.number();
    assert!((1..=60_000).contains(&left), "{left}");
    assert_eq!(client.eval(REDISLOCK_10_TTL, "theirs", &["me"]).await, NULL);
    assert_eq!(client.eval(REDISLOCK_10_TTL, "free", &["me"]).await, NULL);
}

#[tokio::test]
async fn ttl_of_redislock() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    client.take("mine", "me").await;
    client.take("theirs", "other").await;
    let left = client.eval(REDISLOCK_TTL, "mine", &["me"]).await.number();
    assert!((1..=60_000).contains(&left), "{left}");
    assert_eq!(client.eval(REDISLOCK_TTL, "theirs", &["me"]).await, int(-3));
    assert_eq!(client.eval(REDISLOCK_TTL, "free", &["me"]).await, int(-3));
}

#[tokio::test]
async fn acquisition_of_node_redlock() {
    let case = Case {
        own: int(0),
        none: int(1),
        takes: true,
        ..Case::new(NODE_REDLOCK_ACQUIRE, &[TEN_MINUTES], Effect::Nothing)
    };
    case.holds(Backend::Memory).await;
}

#[tokio::test]
async fn lock_of_node_redlock_3() {
    let case = Case {
        own: NULL,
        anothers: NULL,
        none: ok(),
        takes: true,
        ..Case::new(NODE_REDLOCK_3_LOCK, &[TEN_MINUTES], Effect::Nothing)
    };
    case.holds(Backend::Memory).await;
}

#[tokio::test]
async fn extension_of_node_redlock() {
    Case::renews(NODE_REDLOCK_EXTEND).holds(Backend::Memory).await;
}

#[tokio::test]
async fn release_of_node_redlock() {
    Case::ends(NODE_REDLOCK_RELEASE).holds(Backend::Memory).await;
}

#[tokio::test]
async fn obtaining_of_spring_integration() {
    let case =
        Case { anothers: NULL, none: int(1), takes: true, ..Case::renews(SPRING_OBTAIN) };
    case.holds(Backend::Memory).await;
}

#[tokio::test]
async fn renewal_of_spring_integration() {
    Case { anothers: NULL, none: NULL, ..Case::renews(SPRING_RENEW) }
        .holds(Backend::Memory)
        .await;
}

#[tokio::test]
async fn unlock_of_spring_integration() {
    for script in [SPRING_UNLOCK, SPRING_UNLOCK_DEL] {
        let case = Case { anothers: NULL, none: NULL, ..Case::ends(script) };
        case.holds(Backend::Memory).await;
    }
}

#[tokio::test]
async fn unlock_of_spring_integration_with_a_message() {
    let ends = Case::new(SPRING_UNLOCK_UNLINK_AND_PUBLISH, &["channel"], Effect::Ends);
    Case { anothers: NULL, none: NULL, ..ends }.holds(Backend::Memory).await;
}
