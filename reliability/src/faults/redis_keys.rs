//! Faults that edit keys of holders by hand.

use anyhow::{Context as _, bail};
use redis::{Script, aio::MultiplexedConnection, cmd};

use super::{
    Done, Voids,
    pick::{duration_ms, last},
};
use crate::world::redis::RedisServer;

pub(super) const NAMES: &[&str] = &[
    "redis-holder-deleted",
    "redis-holder-replaced",
    "redis-holder-of-wrong-type",
    "redis-holder-without-expiry",
];

/// How often to look for a held resource.
const LOOKS: usize = 20;
/// The value that edits write; it expires even if the edit is not undone.
const FOREIGN: &str = "put here by hand";
const FOREIGN_MS: u64 = 5_000;

/// `[edit, undo]`: the first returns 0 if there was no holder, otherwise for how many
/// milliseconds the undo lets the key live at most; the second leaves later changes by others
/// alone.
const REPLACE: [&str; 2] = [
    "if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
     redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
     return ARGV[2]",
    "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
     return 1",
];
const WRONG_TYPE: [&str; 2] = [
    "if redis.call('DEL', KEYS[1]) == 0 then return 0 end
     redis.call('RPUSH', KEYS[1], ARGV[1])
     redis.call('PEXPIRE', KEYS[1], ARGV[2])
     return ARGV[2]",
    "if redis.call('TYPE', KEYS[1]).ok == 'list' then redis.call('DEL', KEYS[1]) end
     return 1",
];
const PERSIST: [&str; 2] = [
    // The whole remaining TTL: a shorter one would end the grant early.
    "local left = redis.call('PTTL', KEYS[1])
     if left < 0 then return 0 end
     redis.call('PERSIST', KEYS[1])
     return left",
    "if redis.call('PTTL', KEYS[1]) == -1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
     return 1",
];

pub(super) async fn inject(
    redis: &mut RedisServer,
    name: &str,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Done> {
    let mut connection = redis.connect().await?;
    let Some(resource) = somebody_s(&mut connection).await? else {
        return Ok(Done::harmless("nobody held anything"));
    };
    let of = Voids::GrantOf(resource.clone());
    let (edit, voids) = match name {
        "redis-holder-deleted" => {
            let deleted: u64 = cmd("DEL").arg(&resource).query_async(&mut connection).await?;
            let voids = if deleted == 1 { of } else { Voids::Nothing };
            return Ok(Done { detail: format!("DEL {resource}: {deleted}"), voids });
        }
        "redis-holder-replaced" => (REPLACE, of),
        "redis-holder-of-wrong-type" => (WRONG_TYPE, of),
        // It lives longer than granted, until it is ended.
        "redis-holder-without-expiry" => (PERSIST, Voids::Nothing),
        _ => bail!("unknown"),
    };
    let during = duration_ms(rng, 100..=2_000);
    let left_ms = run(&mut connection, edit[0], &resource, FOREIGN_MS).await?;
    if left_ms == 0 {
        return Ok(Done::harmless(format!("{resource} was not held any more")));
    }
    last(during).await;
    run(&mut connection, edit[1], &resource, left_ms).await?;
    Ok(Done { detail: format!("{resource}, taken back after {during:?}"), voids })
}

async fn run(
    connection: &mut MultiplexedConnection,
    script: &str,
    resource: &str,
    ms: u64,
) -> anyhow::Result<u64> {
    let script = Script::new(script);
    let mut script = script.key(resource);
    script.arg(FOREIGN).arg(ms);
    script.invoke_async(connection).await.context("the edit")
}

/// A resource that is held now.
async fn somebody_s(connection: &mut MultiplexedConnection) -> anyhow::Result<Option<String>> {
    for _ in 0..LOOKS {
        let key: Option<Vec<u8>> = cmd("RANDOMKEY").query_async(connection).await?;
        if let Some(key) = key.filter(|key| !key.starts_with(b"\x01")) {
            return Ok(Some(String::from_utf8(key)?));
        }
        last(std::time::Duration::from_millis(10)).await;
    }
    Ok(None)
}
