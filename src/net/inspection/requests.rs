//! Reads requests: their subject, and the grants to end.

use leasehold_lock::{
    GrantId, Violation, check_text,
    inspect::{EndOf, EndRequest, Scope},
};
use leasehold_proto::locks as pb;

use super::{names::Names, pages::limit};

/// The longest reason for ending a grant, and the longest prefix of a holder, in bytes.
const TEXT_BYTES_MAX: usize = 256;
/// The longest prefix of a name, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// The subject of a request, in the caller's names.
enum Subject {
    /// A resource: its ID and its namespace.
    Resource(String, Vec<String>),
    Scope(pb::LockScope),
}

/// Reads the scope to watch: one resource, or `scope`; without either, the empty scope.
pub(super) fn watched_scope(
    asked: pb::WatchLocksRequest,
    names: &impl Names,
) -> Result<Scope, Violation> {
    match subject(asked.resource_id, asked.namespace, asked.scope)? {
        Some(Subject::Resource(id, namespace)) => {
            Ok(Scope::resource(names.resource(&id, namespace)?))
        }
        Some(Subject::Scope(asked)) => names.scope(asked),
        None => names.scope(pb::LockScope::default()),
    }
}

/// Reads which grants are to be ended.
pub(super) fn end_request(
    asked: pb::EndLocksRequest,
    names: &impl Names,
) -> Result<EndRequest, Violation> {
    let limit = limit("limit", asked.limit)?;
    let holder_prefix = holder_prefix(asked.holder_prefix)?;
    let bad = |field: &str, problem: &str| Err(Violation::new(field, problem));
    let of = match subject(asked.resource_id, asked.namespace, asked.scope)? {
        None => return bad("resource_id", "is missing; give it, or a scope"),
        Some(Subject::Resource(..)) if !holder_prefix.is_empty() => {
            return bad("holder_prefix", "was given beside resource_id; give a scope");
        }
        Some(Subject::Resource(id, namespace)) => {
            let grant_id = grant_id(&asked.grant_id)?;
            EndOf::Resource(names.resource(&id, namespace)?, grant_id)
        }
        Some(Subject::Scope(whole)) if is_whole(&whole) && !asked.all => {
            let problem = "must be true for a scope without a namespace and without a prefix; add \
                           all=true";
            return bad("all", problem);
        }
        Some(Subject::Scope(_)) if !asked.grant_id.is_empty() => {
            return bad("grant_id", "was given beside a scope; give its resource_id");
        }
        Some(Subject::Scope(wanted)) => {
            EndOf::Scope { scope: names.scope(wanted)?, holder_prefix }
        }
    };
    Ok(EndRequest { of, dry_run: asked.dry_run, limit })
}

/// `None` if the request has no subject. `namespace` is the resource's.
fn subject(
    resource_id: String,
    namespace: Vec<String>,
    scope: Option<pb::LockScope>,
) -> Result<Option<Subject>, Violation> {
    match (resource_id.is_empty(), scope) {
        (true, _) if !namespace.is_empty() => Err(Violation::new(
            "namespace",
            "was given without resource_id; a scope has a namespace of its own",
        )),
        (true, scope) => Ok(scope.map(Subject::Scope)),
        (false, None) => Ok(Some(Subject::Resource(resource_id, namespace))),
        (false, Some(_)) => {
            Err(Violation::new("scope", "was given beside resource_id; give one of them"))
        }
    }
}

/// Whether a scope limits neither the namespaces nor the names.
fn is_whole(scope: &pb::LockScope) -> bool {
    scope.namespace.is_empty() && scope.prefix.is_empty()
}

/// Reads a reason, for the log; the violation names `reason`.
pub fn reason(text: String) -> Result<String, Violation> {
    check_text("reason", &text, TEXT_BYTES_MAX)?;
    Ok(text)
}

/// Reads the prefix of a holder; the violation names `holder_prefix`.
pub(super) fn holder_prefix(text: String) -> Result<String, Violation> {
    check_text("holder_prefix", &text, TEXT_BYTES_MAX)?;
    Ok(text)
}

/// Reads the prefix of names; the violation names `prefix`.
pub fn name_prefix(text: String) -> Result<String, Violation> {
    check_text("prefix", &text, NAME_BYTES_MAX)?;
    Ok(text)
}

/// Reads the ID of a single grant; an empty one means all.
pub fn grant_id(id: &str) -> Result<Option<GrantId>, Violation> {
    if id.is_empty() { Ok(None) } else { id.parse().map(Some) }
}
