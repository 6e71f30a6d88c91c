//! The holder that is shown for locks of this sidecar's app.

use std::{fmt, str::FromStr, sync::Arc};

use leasehold_lock::{Holder, Violation, check_text};

/// Longest `APP/INSTANCE` in bytes: with a slash and the longest label, it is as long as a
/// holder may be.
const APP_AND_INSTANCE_BYTES_MAX: usize = 127;
/// Longest label in bytes.
const LABEL_BYTES_MAX: usize = 128;

/// Identifies one process of an app among several: the name of a pod or of a host.
/// It is not empty, and has neither a slash nor a control character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance(Arc<str>);

impl Instance {
    /// The instance from `--instance`, else the environment's `POD_NAME`, else the name of
    /// this machine. Names that cannot be an instance are ignored.
    #[must_use]
    pub fn or_of_machine(given: Option<Self>, pod_name: Option<&str>) -> Self {
        given
            .or_else(|| pod_name?.parse().ok())
            .or_else(|| machine().parse().ok())
            .unwrap_or_else(|| Self("unknown".into()))
    }
}

impl FromStr for Instance {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err("it is empty; leave it out for POD_NAME or the host's name");
        }
        if text.contains('/') {
            return Err("it has a slash, which separates the parts of a holder");
        }
        if text.contains(char::is_control) {
            return Err("it has a control character");
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The app of a sidecar, and which of its processes this is. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Identity {
    app_id: Arc<str>,
    /// `APP/INSTANCE`, cut to its longest.
    app_and_instance: Arc<str>,
}

impl Identity {
    /// The app of this ID, which may be empty.
    #[must_use]
    pub fn new(app_id: impl Into<Arc<str>>, instance: &Instance) -> Self {
        let app_id = app_id.into();
        let mut whole = format!("{app_id}/{instance}");
        let mut end = whole.len().min(APP_AND_INSTANCE_BYTES_MAX);
        while !whole.is_char_boundary(end) {
            end -= 1;
        }
        whole.truncate(end);
        Self { app_id, app_and_instance: whole.into() }
    }

    /// The app's ID, which prefixes its resources; empty if there is none.
    #[must_use]
    pub fn app_id(&self) -> &str {
        &self.app_id
    }

    /// The holder that is shown: `APP/INSTANCE`, or `APP/INSTANCE/LABEL`.
    pub fn holder(&self, label: &str) -> Result<Option<Holder>, Violation> {
        match label {
            "" => Holder::new(&self.app_and_instance),
            label => Holder::new(&format!("{}/{label}", self.app_and_instance)),
        }
    }
}

/// Checks what an app adds to the holder of one lock; the violation names `label`.
pub(crate) fn check_label(label: &str) -> Result<(), Violation> {
    check_text("label", label, LABEL_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(app_id: &str, instance: &str, label: &str) -> String {
        let identity = Identity::new(app_id, &instance.parse().unwrap());
        identity.holder(label).unwrap().unwrap().as_str().to_owned()
    }

    #[test]
    fn a_holder_is_the_app_its_instance_and_a_label() {
        assert_eq!(holder("orders", "pod-1", ""), "orders/pod-1");
        assert_eq!(holder("orders", "pod-1", "a/b c"), "orders/pod-1/a/b c");
        assert_eq!(holder("", "pod-1", "a"), "/pod-1/a");
    }

    #[test]
    fn app_and_instance_are_cut_to_127_bytes_at_a_character() {
        assert_eq!(holder("orders", &"i".repeat(300), "").len(), 127);
        // 7 bytes and 60 characters of 2 bytes are 127 bytes, one more is cut away.
        assert_eq!(holder("orders", &"ü".repeat(61), ""), format!("orders/{}", "ü".repeat(60)));
        // Only 2 bytes of a character of 3 bytes would fit.
        assert_eq!(holder("o", &"€".repeat(60), "").len(), 2 + 41 * 3);
        assert_eq!(holder(&"a".repeat(300), "i", ""), "a".repeat(127));
    }

    #[test]
    fn the_longest_label_of_the_longest_app_is_the_longest_holder() {
        assert_eq!(holder(&"a".repeat(300), "i", &"l".repeat(128)).len(), 256);
    }

    #[test]
    fn a_bad_label_is_refused_by_its_name() {
        for bad in ["l".repeat(129), "a\nb".to_owned(), "\u{85}".to_owned()] {
            assert_eq!(check_label(&bad).unwrap_err().field, "label", "{bad:?}");
        }
    }

    #[test]
    fn an_instance_has_no_slash_and_no_control_character() {
        for bad in ["", "a/b", "a\tb", "\0"] {
            assert!(bad.parse::<Instance>().is_err(), "{bad:?}");
        }
        assert!("pod-1.example ü|".parse::<Instance>().is_ok());
    }

    #[test]
    fn an_instance_is_the_given_one_else_the_pod_else_the_machine() {
        let given = || "given".parse().ok();
        assert_eq!(Instance::or_of_machine(given(), Some("pod")).to_string(), "given");
        assert_eq!(Instance::or_of_machine(None, Some("pod")).to_string(), "pod");
        let machine = Instance::or_of_machine(None, None);
        assert!(!machine.to_string().is_empty());
        for useless in ["", "a/b"] {
            assert_eq!(Instance::or_of_machine(None, Some(useless)), machine);
        }
    }
}
