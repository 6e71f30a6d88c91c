//! Faults that change keys and leases in etcd.

use anyhow::{Context as _, bail};
use etcd_client::{
    Client, Compare, CompareOp, GetOptions, GetResponse, PutOptions, Txn, TxnOp,
};

use super::{
    Done, Voids,
    pick::{duration_ms, last},
};
use crate::world::{etcd::EtcdCluster, member::PREFIX};

pub(super) const NAMES: &[&str] = &[
    "etcd-lease-revoked",
    "etcd-session-revoked",
    "etcd-holder-deleted",
    "etcd-holder-replaced",
    "etcd-compacted",
];

/// How often to look for a held resource.
const LOOKS: usize = 20;
const FOREIGN: &str = "put here by hand";

/// A key as it was found.
struct Found {
    key: String,
    mod_revision: i64,
    lease: i64,
}

pub(super) async fn inject(
    etcd: &mut EtcdCluster,
    name: &str,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Done> {
    // During an election etcd refuses writes without reporting which it carried out.
    etcd.agree().await?;
    let mut client = etcd.client().await?;
    if name == "etcd-compacted" {
        let revision = all(&mut client, None).await?.header().context("no header")?.revision();
        client.compact(revision, None).await?;
        return Ok(Done::harmless(format!("at revision {revision}")));
    }
    let wanted = match name {
        "etcd-session-revoked" => is_session,
        // Replacing one of several readers would leave a state that no lock has.
        "etcd-holder-replaced" => is_exclusive_holder,
        _ => is_holder,
    };
    let Some(found) = somebody_s(&mut client, rng, wanted).await? else {
        return Ok(Done::harmless("nobody's was there"));
    };
    match name {
        "etcd-lease-revoked" => revoke(&mut client, &found).await,
        "etcd-session-revoked" => {
            client.lease_revoke(found.lease).await?;
            Ok(Done::harmless(format!("{}: its waiters queue again", found.key)))
        }
        "etcd-holder-deleted" => delete(&mut client, &found).await,
        "etcd-holder-replaced" => replace(&mut client, &found, rng).await,
        _ => bail!("unknown"),
    }
}

/// The lease may have gone to another grant meanwhile: the revocation deleted
/// the keys that had it one revision before.
async fn revoke(client: &mut Client, found: &Found) -> anyhow::Result<Done> {
    let revoked = client.lease_revoke(found.lease).await?;
    let revision = revoked.header().context("no header")?.revision();
    let before = all(client, Some(revision - 1)).await?;
    let victim = before.kvs().iter().find(|pair| pair.lease() == found.lease);
    let resource = victim.and_then(|pair| resource(pair.key_str().ok()?));
    let detail = format!("lease {:x} of {resource:?}", found.lease);
    Ok(Done { detail, voids: resource.map_or(Voids::Nothing, Voids::GrantOf) })
}

async fn delete(client: &mut Client, found: &Found) -> anyhow::Result<Done> {
    let deleted = client.delete(found.key.as_str(), None).await?.deleted();
    let resource = resource(&found.key).context("a holder's key")?;
    let detail = format!("{}: {deleted} deleted", found.key);
    Ok(Done {
        detail,
        voids: if deleted == 1 { Voids::GrantOf(resource) } else { Voids::Nothing },
    })
}

/// Writes another value under the same lease, so that it ends with the lease at the latest.
async fn replace(
    client: &mut Client,
    found: &Found,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Done> {
    let key = found.key.as_str();
    let resource = resource(key).context("a holder's key")?;
    let keep_lease = PutOptions::new().with_ignore_lease();
    let put = Txn::new()
        .when([Compare::mod_revision(key, CompareOp::Equal, found.mod_revision)])
        .and_then([TxnOp::put(key, FOREIGN, Some(keep_lease))]);
    if !client.txn(put).await?.succeeded() {
        return Ok(Done::harmless(format!("{key} had changed")));
    }
    let during = duration_ms(rng, 100..=2_000);
    last(during).await;
    let take_back = Txn::new()
        .when([Compare::value(key, CompareOp::Equal, FOREIGN)])
        .and_then([TxnOp::delete(key, None)]);
    client.txn(take_back).await?;
    let detail = format!("{key}, taken back after {during:?}");
    Ok(Done { detail, voids: Voids::GrantOf(resource) })
}

/// A random key of those that exist now.
async fn somebody_s(
    client: &mut Client,
    rng: &mut fastrand::Rng,
    wanted: fn(&str) -> bool,
) -> anyhow::Result<Option<Found>> {
    for _ in 0..LOOKS {
        let there = all(client, None).await?;
        let pairs: Vec<_> =
            there.kvs().iter().filter(|pair| pair.key_str().is_ok_and(wanted)).collect();
        if let Some(pair) = rng.choice(&pairs) {
            return Ok(Some(Found {
                key: pair.key_str()?.to_owned(),
                mod_revision: pair.mod_revision(),
                lease: pair.lease(),
            }));
        }
        last(std::time::Duration::from_millis(10)).await;
    }
    Ok(None)
}

async fn all(client: &mut Client, revision: Option<i64>) -> anyhow::Result<GetResponse> {
    let options = GetOptions::new().with_prefix().with_keys_only();
    let options = match revision {
        Some(revision) => options.with_revision(revision),
        None => options,
    };
    Ok(client.get(PREFIX, Some(options)).await?)
}

fn is_session(key: &str) -> bool {
    key.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with("/s/"))
}

fn is_holder(key: &str) -> bool {
    resource(key).is_some()
}

fn is_exclusive_holder(key: &str) -> bool {
    is_holder(key) && key.ends_with("/h")
}

/// The resource that a holder's key is of; docs/etcd.md says how it is written. A reader's
/// key is that of the exclusive holder with the hash of its lock ID.
fn resource(key: &str) -> Option<String> {
    let (escaped, part) = key.strip_prefix(PREFIX)?.strip_prefix("/r/")?.split_once('/')?;
    let is_holder = part == "h" || part.starts_with("h/");
    is_holder.then(|| escaped.replace("%2F", "/").replace("%25", "%"))
}
