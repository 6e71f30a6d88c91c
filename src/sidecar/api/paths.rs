//! Recognises the paths of lock calls in every spelling.
//!
//! The server behind may normalise paths (daprd resolves `//`, `.` and `..`,
//! and drops a trailing slash), so a path that matches no route here can still
//! be a lock call there, to another lock store.

use percent_encoding::percent_decode_str;

const DAPR_SERVICE: &str = "dapr.proto.runtime.v1.Dapr";
const OWN_SERVICES: [&str; 2] = ["leasehold.v1.Locks", "leasehold.v1.Inspection"];

/// Whether an HTTP path is that of a lock call, in any spelling.
pub(crate) fn is_lock_call(path: &str) -> bool {
    in_any_spelling(path, |segments| match segments {
        [version, verb, ..] => {
            ["v1.0-alpha1", "v1.0-alpha2"].contains(version)
                && ["lock", "unlock"].contains(verb)
                || *version == "v1.0-alpha2" && ["locks", "locks:check"].contains(verb)
        }
        _ => false,
    })
}

/// Whether a gRPC path is that of a lock call, in any spelling.
pub(crate) fn is_lock_method(path: &str) -> bool {
    in_any_spelling(path, |segments| match segments {
        [.., service, method] if *service == DAPR_SERVICE => {
            ["TryLockAlpha1", "UnlockAlpha1"].contains(method)
        }
        [.., service, _] => OWN_SERVICES.contains(service),
        _ => false,
    })
}

/// Whether `holds` is true of the normalised path, with percent-encodings kept
/// or decoded. The leading slash is optional.
fn in_any_spelling(path: &str, holds: impl Fn(&[&str]) -> bool) -> bool {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    holds(&normalised(path)) || holds(&normalised(&decoded))
}

fn normalised(path: &str) -> Vec<&str> {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_call_is_known_however_it_is_written() {
        for path in [
            "/v1.0-alpha1/lock/s",
            "/v1.0-alpha1/unlock/s",
            "/v1.0-alpha2/lock/s/r",
            "//v1.0-alpha1/lock/s",
            "/v1.0-alpha1//lock/s",
            "/v1.0-alpha1/lock//s",
            "/v1.0-alpha1/lock/s//",
            "/./v1.0-alpha1/./lock/s/.",
            "/v1.0/../v1.0-alpha1/lock/s",
            "/../../v1.0-alpha1/lock/s",
            "/v1.0-alpha1/lock/x/../s",
            "/v1.0-alpha1/state/../lock/s",
            "/v1.0/invoke/a/method/../../../../v1.0-alpha1/unlock/s",
            "/v1.0-alpha1/lo%63k/s",
            "/%76%31%2e0-alpha1/lock/s",
            "/v1.0-alpha1%2Flock%2Fs",
            "/x/%2e%2E/v1.0-alpha1/lock/s",
            "/v1.0-alpha1/lock/%2e%2e/%2e%2e",
            "v1.0-alpha1/lock/s",
            "/v1.0-alpha2/locks:check",
            "/v1.0-alpha2//locks%3Acheck/",
            "/v1.0-alpha2/locks/s",
            "/v1.0-alpha2/./locks//s/",
        ] {
            assert!(is_lock_call(path), "{path}");
        }
    }

    #[test]
    fn other_calls_are_not_taken_for_lock_calls() {
        for path in [
            "/",
            "/v1.0-alpha1",
            "/v1.0/lock/s",
            "/v1.0-alpha1/locks/s",
            "/v1.0-alpha1/locks:check",
            "/v1.0-alpha1/lock/../crypto/s",
            "/v1.0/invoke/a/method/v1.0-alpha1/lock/s",
            "/v1.0/state/s/v1.0-alpha1%2Flock%2Fs",
            "/v1.0/state/s/..",
        ] {
            assert!(!is_lock_call(path), "{path}");
        }
    }

    #[test]
    fn a_lock_method_is_known_however_it_is_written() {
        for path in [
            "/dapr.proto.runtime.v1.Dapr/TryLockAlpha1",
            "/dapr.proto.runtime.v1.Dapr/UnlockAlpha1",
            "/leasehold.v1.Locks/Lock",
            "/leasehold.v1.Inspection/ListLocks",
            "//leasehold.v1.Inspection/EndLocks/",
            "dapr.proto.runtime.v1.Dapr/TryLockAlpha1",
            "//dapr.proto.runtime.v1.Dapr/TryLockAlpha1",
            "/dapr.proto.runtime.v1.Dapr//UnlockAlpha1",
            "/dapr.proto.runtime.v1.Dapr/TryLockAlpha1/",
            "/x/../dapr.proto.runtime.v1.Dapr/./UnlockAlpha1",
            "/dapr.proto.runtime.v1.Dapr/TryLock%41lpha1",
            "/dapr.proto.runtime.v1.Dapr%2FUnlockAlpha1",
        ] {
            assert!(is_lock_method(path), "{path}");
        }
        for path in [
            "/dapr.proto.runtime.v1.Dapr/GetState",
            "/dapr.proto.runtime.v1.Dapr",
            "/other.Service/TryLockAlpha1",
            "/TryLockAlpha1",
            "/",
        ] {
            assert!(!is_lock_method(path), "{path}");
        }
    }
}
