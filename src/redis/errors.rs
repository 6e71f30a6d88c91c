//! What the errors of Redis mean.

use std::sync::Arc;

use ::redis::{ErrorKind, RedisError};
use leasehold_lock::{BackendError, Violation};

/// Whether the server does not know the library, for example because it was restarted.
pub(super) fn is_not_loaded(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT") || is_inside(error, "Function not found")
}

pub(super) fn is_from_server(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// Whether the server refused the request only temporarily. It did not execute it.
pub(super) fn is_temporary(error: &RedisError) -> bool {
    matches!(error.code(), Some("LOADING" | "BUSY" | "TRYAGAIN" | "NOREPLICAS"))
        || is_not_loaded(error)
}

/// Whether the server is not a master (any more). The request had no effect, because a replica
/// refuses a function before it starts, and a script its first command.
pub(super) fn is_not_master(error: &RedisError) -> bool {
    matches!(error.code(), Some("READONLY" | "MASTERDOWN" | "MOVED" | "CLUSTERDOWN"))
        || is_inside(error, "-READONLY ")
}

/// Whether the request may have been carried out in part: a node of a Cluster ended it, because its
/// slot is being moved.
pub(super) fn may_be_partial(error: &RedisError) -> bool {
    ["attempted to access a non local key", "undeclared keys were accessed during rehashing"]
        .iter()
        .any(|text| is_inside(error, text))
}

/// Whether the server refused the request, because it would need memory.
pub(super) fn is_out_of_memory(error: &RedisError) -> bool {
    error.code() == Some("OOM") || is_inside(error, "-OOM ")
}

/// Before Redis 7.0 the error of a command in a script is part of the text of another error.
fn is_inside(error: &RedisError, text: &str) -> bool {
    error.detail().is_some_and(|detail| detail.contains(text))
}

/// An answer, or `None` without the permission for the command.
pub(super) fn allowed<T>(answer: Result<T, RedisError>) -> Result<Option<T>, RedisError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if is_denied(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the user lacks the permission, or the server (a proxy) lacks the command.
pub(super) fn is_denied(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOPERM" | "ERR"))
}

pub(super) fn refused(error: &RedisError, lost: bool) -> BackendError {
    let why = describe(error);
    if lost {
        BackendError::Unknown(why)
    } else if error.code() == Some("WRONGTYPE") || why.contains("WRONGTYPE") {
        BackendError::Invalid(Violation::new(
            "resource_id",
            "names a Redis key that is not a string; use another name or database",
        ))
    } else {
        BackendError::Unavailable(why)
    }
}

/// The message of the server or the system, without what was sent. A server quotes the arguments
/// of a command that it does not know, and those of `HELLO` contain the password.
pub(super) fn describe(error: &RedisError) -> Arc<str> {
    let detail = error.detail().and_then(|detail| detail.split(", with args").next());
    let is_refused = detail.is_some_and(|it| it.contains("The user executing the script"));
    let hint = if is_refused { "; docs/redis.md lists the permissions" } else { "" };
    match (error.code(), detail) {
        (Some(code), Some(detail)) => format!("Redis answered {code} {detail}{hint}").into(),
        (Some(code), None) => format!("Redis answered {code}").into(),
        (None, _) => format!("cannot reach Redis: {error}").into(),
    }
}

#[cfg(test)]
mod tests {
    use ::redis::parse_redis_value;

    use super::*;

    fn error(line: &str) -> RedisError {
        let value = parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    #[test]
    fn a_refusal_inside_a_script_is_recognised_in_the_text_of_each_version() {
        let oom = "command not allowed when used memory > 'maxmemory'.";
        assert!(is_out_of_memory(&error(&format!("OOM {oom}"))));
        let inside =
            format!("ERR Error running script (call to f_1): @user_script:9: -OOM {oom}");
        assert!(is_out_of_memory(&error(&inside)));
        assert!(is_not_master(&error("ERR @user_script:9: -READONLY You can't write")));
        assert!(is_not_loaded(&error("ERR Function not found")));
        assert!(!is_out_of_memory(&error("ERR unknown command")));
        let moved = "Script attempted to access a non local key in a cluster node";
        assert!(may_be_partial(&error(&format!("ERR {moved} script: on @user_function:9."))));
        assert!(!may_be_partial(&error("ERR unknown command")));
    }

    #[test]
    fn a_description_does_not_quote_what_was_sent() {
        let known = "ERR unknown command 'HELLO'";
        let quoted =
            error(&format!("{known}, with args beginning with: '3' 'AUTH' 'me' 'secret' "));
        assert_eq!(&*describe(&quoted), format!("Redis answered {known}"));
    }

    #[test]
    fn a_command_of_a_function_that_is_not_allowed_names_the_permissions() {
        let refused = error("ERR The user executing the script can't run this command");
        assert!(describe(&refused).ends_with("; docs/redis.md lists the permissions"));
    }

    #[test]
    fn a_busy_server_does_not_count_as_a_missing_permission() {
        let answer = |line| allowed(Err::<(), _>(error(line)));
        assert!(matches!(answer("NOPERM this user has no permissions"), Ok(None)));
        for passing in ["BUSY Redis is busy running a script", "LOADING Redis is loading"] {
            assert!(answer(passing).is_err(), "{passing}");
        }
    }
}
