//! Faults of the Redis server.

use anyhow::bail;
use redis::{aio::MultiplexedConnection, cmd};

use super::{
    Done, Voids,
    pick::{duration_ms, last, outage},
};
use crate::world::redis::RedisServer;

pub(super) const NAMES: &[&str] = &[
    "redis-suspended",
    "redis-restarted",
    "redis-restarted-empty",
    "redis-flushed",
    "redis-library-flushed",
    "redis-clients-killed-normal",
    "redis-clients-killed-pubsub",
    "redis-client-killed-by-id",
    "redis-out-of-memory",
    "redis-clock-forward",
    "redis-clock-back",
];

pub(super) async fn inject(
    redis: &mut RedisServer,
    name: &str,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Done> {
    match name {
        "redis-suspended" => {
            let during = outage(rng);
            redis.suspend()?;
            last(during).await;
            redis.resume()?;
            Ok(Done::harmless(format!("for {during:?}")))
        }
        "redis-restarted" => restart(redis, rng, redis.persists()).await,
        "redis-restarted-empty" => restart(redis, rng, false).await,
        "redis-flushed" => {
            let voids = data_lost(redis);
            let () = cmd("FLUSHALL").query_async(&mut redis.connect().await?).await?;
            Ok(Done { detail: "FLUSHALL".into(), voids })
        }
        "redis-library-flushed" => {
            let mut connection = redis.connect().await?;
            for what in ["FUNCTION", "SCRIPT"] {
                let () = cmd(what).arg("FLUSH").query_async(&mut connection).await?;
            }
            Ok(Done::harmless("FUNCTION FLUSH, SCRIPT FLUSH"))
        }
        "redis-clients-killed-normal" => kill_type(redis, "normal").await,
        "redis-clients-killed-pubsub" => kill_type(redis, "pubsub").await,
        "redis-client-killed-by-id" => kill_one(redis.connect().await?, rng).await,
        "redis-out-of-memory" => {
            let during = outage(rng);
            let mut connection = redis.connect().await?;
            let mut limit = async |bytes: &str| -> anyhow::Result<()> {
                let set = ["SET", "maxmemory", bytes];
                Ok(cmd("CONFIG").arg(&set).query_async(&mut connection).await?)
            };
            limit("1").await?;
            last(during).await;
            limit("0").await?;
            Ok(Done::harmless(format!("maxmemory 1, noeviction, for {during:?}")))
        }
        "redis-clock-forward" => {
            let by_ms = rng.i64(500..20_000);
            redis.clock().jump(by_ms)?;
            // Redis uses this clock for expiry: grants end early.
            Ok(Done { detail: format!("by {by_ms} ms"), voids: Voids::Grants })
        }
        "redis-clock-back" => {
            let by_ms = rng.i64(200..3_000);
            redis.clock().jump(-by_ms)?;
            // Grants end late, and tokens follow the counters, if they exist.
            let voids = if redis.clock().is_before_loss() {
                Voids::GrantsAndTokens
            } else {
                Voids::Nothing
            };
            Ok(Done { detail: format!("by {by_ms} ms"), voids })
        }
        _ => bail!("unknown"),
    }
}

async fn restart(
    redis: &mut RedisServer,
    rng: &mut fastrand::Rng,
    keeps: bool,
) -> anyhow::Result<Done> {
    let down = duration_ms(rng, 0..=1_500);
    let voids = if keeps { Voids::Nothing } else { data_lost(redis) };
    redis.kill();
    if !keeps {
        redis.lose_data()?;
    }
    last(down).await;
    redis.restart().await?;
    let data = if keeps { "with its data" } else { "without data" };
    Ok(Done { detail: format!("killed, started {data} after {down:?}"), voids })
}

/// Without the counters, tokens follow the clock alone, which orders them
/// unless it repeats a time.
fn data_lost(redis: &mut RedisServer) -> Voids {
    redis.clock().data_lost();
    if redis.clock().repeats() { Voids::GrantsAndTokens } else { Voids::Grants }
}

async fn kill_type(redis: &RedisServer, which: &str) -> anyhow::Result<Done> {
    let mut connection = redis.connect().await?;
    let kill = ["KILL", "TYPE", which, "SKIPME", "yes"];
    let killed: u64 = cmd("CLIENT").arg(&kill).query_async(&mut connection).await?;
    Ok(Done::harmless(format!("CLIENT {}: {killed} killed", kill.join(" "))))
}

async fn kill_one(
    mut connection: MultiplexedConnection,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Done> {
    let mine: u64 = cmd("CLIENT").arg("ID").query_async(&mut connection).await?;
    let list: String = cmd("CLIENT").arg("LIST").query_async(&mut connection).await?;
    let ids = list.lines().filter_map(|line| {
        line.split(' ').find_map(|field| field.strip_prefix("id=")?.parse::<u64>().ok())
    });
    let ids: Vec<u64> = ids.filter(|id| *id != mine).collect();
    let Some(id) = rng.choice(&ids) else {
        return Ok(Done::harmless("nobody else is connected"));
    };
    let killed: u64 =
        cmd("CLIENT").arg("KILL").arg("ID").arg(id).query_async(&mut connection).await?;
    Ok(Done::harmless(format!("CLIENT KILL ID {id}: {killed} killed")))
}
