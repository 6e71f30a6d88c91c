//! SHARED under load: readers and writers on many connections.

use anyhow::ensure;

use super::{
    exclusion::{Held, locks, never_together, run, tokens_follow},
    shared::reader,
};
use crate::{
    case::{Cases, Demand},
    expect::Expect as _,
    feature::Feature,
    grant::{Ask, Grant},
    store::Store,
    words::Readable,
    world::World,
};

const WRITERS: usize = 2;
const READERS: usize = 6;

pub(crate) fn tests(cases: &mut Cases) {
    cases.add(
        Demand::Features(&[Feature::Shared]),
        "a writer never holds a resource together with anybody",
        |world| async move {
            let fresh = |count| (0..count).map(|_| world.fresh()).collect();
            load(&world, fresh(WRITERS), fresh(READERS), apart).await
        },
    );
    cases.alone();
    cases.add(
        Demand::Features(&[Feature::Shared, Feature::Fencing]),
        "tokens of writers follow the order in which all held the resource",
        |world| async move {
            let fresh = |count| (0..count).map(|_| world.fresh()).collect();
            load(&world, fresh(WRITERS), fresh(READERS), tokens_order).await
        },
    );
    cases.alone();
    cases.add(
        Demand::TwoProcesses(&[Feature::Shared]),
        "a writer at one never holds a resource together with anybody at the other",
        |world| async move {
            let (writers, readers) = at_both(&world)?;
            load(&world, writers, readers, apart).await
        },
    );
    cases.alone();
    cases.add(
        Demand::TwoProcesses(&[Feature::Shared, Feature::Fencing]),
        "tokens of writers at both follow the order in which all held the resource",
        |world| async move {
            let (writers, readers) = at_both(&world)?;
            load(&world, writers, readers, tokens_order).await
        },
    );
    cases.alone();
}

fn at_both(world: &World) -> anyhow::Result<(Vec<Store>, Vec<Store>)> {
    let at = |nth: usize| {
        if nth.is_multiple_of(2) { Ok(world.fresh()) } else { world.second() }
    };
    let both = |count| (0..count).map(at).collect::<anyhow::Result<Vec<_>>>();
    Ok((both(WRITERS)?, both(READERS)?))
}

/// Lets writers and readers use a resource at the same time, and judges what they held.
async fn load(
    world: &World,
    writers: Vec<Store>,
    readers: Vec<Store>,
    judge: fn(&[Held], &[Held]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let resource = world.resource();
    let (written, read) =
        tokio::join!(run(&writers, &resource, locks), run(&readers, &resource, reads));
    judge(&written?, &read?)
}

async fn reads(store: Store, ask: Ask) -> anyhow::Result<Grant> {
    store.lock(&reader(&ask.request.resource_id)).await.or_fail("Lock of a reader")
}

/// Fails if a writer's grant was certainly live together with another.
fn apart(written: &[Held], read: &[Held]) -> anyhow::Result<()> {
    never_together(written)?;
    for (writer, reader) in pairs(written, read) {
        let begin = writer.grant.answered_at.max(reader.grant.answered_at);
        let end = writer.released_at.min(reader.released_at);
        let overlap = end.saturating_duration_since(begin);
        ensure!(
            overlap.is_zero(),
            "the writer {} and the reader {} held the resource together for {}",
            writer.grant.lock_id,
            reader.grant.lock_id,
            Readable(overlap)
        );
    }
    Ok(())
}

/// Fails if, of a writer's grant and another, the later does not have the greater token.
fn tokens_order(written: &[Held], read: &[Held]) -> anyhow::Result<()> {
    tokens_follow(written)?;
    for (writer, reader) in pairs(written, read) {
        let (writer_token, reader_token) = (writer.grant.token, reader.grant.token);
        let is_right = if reader.grant.answered_at < writer.grant.answered_at {
            reader_token < writer_token
        } else {
            writer_token < reader_token
        };
        ensure!(
            is_right,
            "of the writer's token {writer_token} and the reader's {reader_token} the earlier \
             grant has the greater"
        );
    }
    Ok(())
}

fn pairs<'a>(
    written: &'a [Held],
    read: &'a [Held],
) -> impl Iterator<Item = (&'a Held, &'a Held)> {
    written.iter().flat_map(move |writer| read.iter().map(move |reader| (writer, reader)))
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::cases::exclusion::tests::held;

    #[test]
    fn a_reader_beside_a_writer_is_found() {
        let start = Instant::now();
        let written = [held(start, 10, 20, 2)];
        let before_and_after =
            [held(start, 0, 10, 1), held(start, 1, 9, 1), held(start, 20, 30, 3)];
        assert!(apart(&written, &before_and_after).is_ok());
        assert!(apart(&written, &[held(start, 0, 11, 1)]).is_err());
        assert!(apart(&written, &[held(start, 19, 30, 3)]).is_err());
        assert!(apart(&written, &[held(start, 12, 13, 3)]).is_err());
    }

    #[test]
    fn a_token_of_a_reader_out_of_order_is_found() {
        let start = Instant::now();
        let written = [held(start, 10, 20, 5)];
        assert!(
            tokens_order(&written, &[held(start, 0, 9, 4), held(start, 21, 22, 6)]).is_ok()
        );
        assert!(tokens_order(&written, &[held(start, 0, 9, 5)]).is_err());
        assert!(tokens_order(&written, &[held(start, 21, 22, 5)]).is_err());
    }
}
