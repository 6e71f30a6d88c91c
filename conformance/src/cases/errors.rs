//! The details of refusals. A store without them fails here once; all other cases then check
//! only its codes.

use anyhow::{bail, ensure};

use crate::{
    answer::Answer,
    case::Cases,
    expect::Expect as _,
    grant::Ask,
    lacks::{Absent, DOMAIN},
    reason::Reason,
    words::Accepted,
    world::{World, hold},
};

pub(crate) fn tests(cases: &mut Cases) {
    cases.core("a refusal has an ErrorInfo with its reason and the domain dapr.io", error_info);
    cases.core("a refusal of a bad field has a BadRequest that names it", bad_request);
}

async fn error_info(world: World) -> anyhow::Result<()> {
    let ask = Ask::of(&world.resource());
    hold(&world.store(), &ask).await?;
    let tried = world.store().try_lock(&ask).await;
    if world.lacks().error_info {
        bail!(
            "no refusal of this store has a google.rpc.ErrorInfo of domain {DOMAIN}; a TryLock \
             of a held resource was answered with {}. Send the details of a refusal in the trailer \
             grpc-status-details-bin: a google.rpc.Status with an ErrorInfo, whose reason is \
             one of the protocol's error table, here {}, and whose domain is {DOMAIN}. Until \
             then the other cases check only its codes",
            outcome(&tried),
            Reason::ResourceLocked.name()
        );
    }
    tried.refused(Reason::ResourceLocked).map(drop)
}

async fn bad_request(world: World) -> anyhow::Result<()> {
    let unlocked = world.store().unlock("", &World::secret()).await;
    let lacks = world.lacks();
    if lacks.bad_request && lacks.error_info {
        bail!(Absent(
            "the store sends no ErrorInfo, which is reported by a case of its own".to_owned()
        ));
    }
    ensure!(
        !lacks.bad_request,
        "no refusal of a bad field has a google.rpc.BadRequest; an Unlock with an empty \
         resource_id was answered with {}. Add a BadRequest to the details, with the field's name in the \
         proto, here `resource_id`. Until then the other cases do not check for it",
        outcome(&unlocked)
    );
    unlocked.refused(Reason::InvalidRequest)?.names(&["resource_id"])
}

fn outcome<T: Accepted>(answer: &Answer<T>) -> String {
    match answer {
        Ok(accepted) => accepted.describe(),
        Err(rejection) => rejection.to_string(),
    }
}
