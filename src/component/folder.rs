//! The folder of the sockets.

use std::{ffi::OsString, path::PathBuf};

/// The folder that daprd uses by default.
pub const DEFAULT_FOLDER: &str = "/tmp/dapr-components-sockets";

/// The environment variables that name the folder, in order of precedence: daprd's, the
/// Kubernetes injector's, and the Go component SDK's.
pub const FOLDER_VARIABLES: [&str; 3] = [
    "DAPR_COMPONENTS_SOCKETS_FOLDER",
    "DAPR_COMPONENT_SOCKETS_FOLDER",
    "DAPR_COMPONENT_SOCKET_FOLDER",
];

/// The folder of the sockets: the option, else the first variable that is set, else the
/// default. `lookup` reads a variable.
pub fn socket_folder(
    option: Option<PathBuf>,
    lookup: impl Fn(&str) -> Option<OsString>,
) -> PathBuf {
    option
        .or_else(|| {
            FOLDER_VARIABLES
                .iter()
                .filter_map(|name| lookup(name))
                .find(|value| !value.is_empty())
                .map(PathBuf::from)
        })
        .unwrap_or_else(|| PathBuf::from(DEFAULT_FOLDER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_wins_over_every_variable() {
        let folder = socket_folder(Some("/option".into()), |_| Some("/variable".into()));
        assert_eq!(folder, PathBuf::from("/option"));
    }

    #[test]
    fn each_variable_of_dapr_is_honoured() {
        for variable in FOLDER_VARIABLES {
            let folder = socket_folder(None, |name| (name == variable).then(|| "/v".into()));
            assert_eq!(folder, PathBuf::from("/v"), "{variable}");
        }
    }

    #[test]
    fn an_empty_variable_counts_as_none() {
        let folder = socket_folder(None, |_| Some(OsString::new()));
        assert_eq!(folder, PathBuf::from(DEFAULT_FOLDER));
    }
}
