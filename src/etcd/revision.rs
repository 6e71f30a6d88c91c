//! Revisions of etcd's data set.

use etcd_client::ResponseHeader;
use leasehold_lock::Target;

/// A revision: every write of etcd has a greater one than the write before, until the
/// data set is replaced by an older one (a restored snapshot).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Revision(pub(crate) u64);

impl Revision {
    /// From a message of etcd, where a revision is a signed number but never negative.
    pub(crate) fn from_etcd(revision: i64) -> Self {
        Self(u64::try_from(revision).unwrap_or_default())
    }

    /// The one at which etcd has answered.
    pub(crate) fn of(header: Option<&ResponseHeader>) -> Self {
        Self::from_etcd(header.map_or(0, ResponseHeader::revision))
    }

    /// The form of etcd's API.
    pub(crate) fn to_etcd(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// The revision that an earlier call has fixed as a release's target.
    pub(crate) fn fixed(target: &Target) -> Option<Self> {
        target.fixed()?.parse().ok().map(Self)
    }

    /// Fixes this revision as a release's target.
    pub(crate) fn fix(self, target: &Target) {
        target.fix(self.0.to_string());
    }
}
