//! Stores named by URLs: `redis://host:6379/0?defaultTTL=1m`, `etcd://h1:2379,h2:2379/prefix`.

use std::fs;

use leasehold_lock::{Kind, Kinds, UrlForm};
use leasehold_tools::ToolError;
use percent_encoding::percent_decode_str;

/// What a URL says.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) kind: Kind,
    /// The component's metadata items.
    pub(super) items: Vec<(String, String)>,
}

/// Reads a URL, and adds the password.
pub(super) fn read(
    text: &str,
    kinds: Kinds,
    password: Option<String>,
) -> Result<Named, ToolError> {
    let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
    let (kind, form, implied) =
        of_scheme(scheme, kinds).ok_or_else(|| unknown_scheme(scheme, kinds))?;
    let mut items: Vec<_> = implied.iter().map(|(key, value)| item(key, *value)).collect();
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    // A password with a slash or a question mark ends the authority early.
    let has_stray_at = path.contains('@')
        || query
            .split('&')
            .any(|pair| pair.split('=').next().is_some_and(|key| key.contains('@')));
    if user.contains(':') || has_stray_at {
        return Err(no_secrets("a password"));
    }
    if hosts.is_empty() {
        return Err(ToolError::usage(format!("--store: {scheme}:// names no host")));
    }
    items.push(item(form.hosts, decoded(hosts)?));
    if !user.is_empty() {
        items.push(item(form.username, decoded(user)?));
    }
    if let Some(password) = password {
        items.push(item(form.password, password));
    }
    let path = if matches!(path, "" | "/") { "" } else { path };
    if !path.is_empty() {
        let path = if form.path_has_slash { path } else { &path[1..] };
        items.push(item(form.path, decoded(path)?));
    }
    for (key, value) in parameters(query)? {
        if form.secrets.iter().any(|secret| key.eq_ignore_ascii_case(secret)) {
            return Err(no_secrets(&key));
        }
        if items.iter().any(|(known, _)| key.eq_ignore_ascii_case(known)) {
            return Err(ToolError::usage(format!(
                "--store: {key} is given twice; the host, the user, the path and the scheme of a \
                 URL are properties, too"
            )));
        }
        let value = pem(form, &key, value)?;
        items.push((key, value));
    }
    Ok(Named { kind, items })
}

/// The parameters of a query, decoded.
pub(super) fn parameters(query: &str) -> Result<Vec<(String, String)>, ToolError> {
    let mut parameters: Vec<(String, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, value) = (decoded(key)?, decoded(value)?);
        if parameters.iter().any(|(known, _)| key.eq_ignore_ascii_case(known)) {
            return Err(ToolError::usage(format!("--store: {key} is given twice")));
        }
        parameters.push((key, value));
    }
    Ok(parameters)
}

/// The error for the memory store.
pub(super) fn memory() -> ToolError {
    ToolError::usage(
        "--store: only their own process can see the locks of the memory store; name its socket, as \
         in unix:PATH?instance=NAME",
    )
}

type Implied = &'static [(&'static str, &'static str)];

fn of_scheme(scheme: &str, kinds: Kinds) -> Option<(Kind, UrlForm, Implied)> {
    kinds.built_in.iter().find_map(|kind| {
        let form = kind.url?;
        let found = form.schemes.iter().find(|(name, _)| *name == scheme)?;
        Some((*kind, form, found.1))
    })
}

fn item(key: &str, value: impl Into<String>) -> (String, String) {
    (key.to_owned(), value.into())
}

/// The content of a file, if the value of a PEM property names one.
fn pem(form: UrlForm, key: &str, value: String) -> Result<String, ToolError> {
    let is_pem = form.pem.iter().any(|pem| key.eq_ignore_ascii_case(pem));
    match value.strip_prefix('@') {
        Some(file) if is_pem => fs::read_to_string(file)
            .map_err(|error| ToolError::usage(format!("--store: {key}: {file}: {error}"))),
        _ => Ok(value),
    }
}

fn decoded(text: &str) -> Result<String, ToolError> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| ToolError::usage("--store is not UTF-8"))
}

fn no_secrets(what: &str) -> ToolError {
    ToolError::usage(format!(
        "--store: {what} does not belong on a command line, which every user of the machine can \
         read; use LEASEHOLD_PASSWORD_FILE or LEASEHOLD_PASSWORD, or component YAML"
    ))
}

fn unknown_scheme(scheme: &str, kinds: Kinds) -> ToolError {
    if scheme == "memory" {
        return memory();
    }
    if let Some(left_out) = kinds.left_out(scheme) {
        return ToolError::usage(format!("--store: {left_out}"));
    }
    let forms = kinds.built_in.iter().filter_map(|kind| kind.url);
    let known: Vec<_> = forms
        .flat_map(|form| form.schemes.iter().map(|(name, _)| format!("{name}://")))
        .collect();
    ToolError::usage(format!(
        "--store: there is no {scheme}://; there are {}, unix: and dapr:",
        known.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use leasehold_lock::{Connect, properties::Properties};

    use super::*;

    fn unread(_: &mut Properties) -> Connect {
        Box::new(|_| Box::pin(async { Err(leasehold_lock::OpenError::Unavailable("".into())) }))
    }

    const fn kind(name: &'static str, url: Option<UrlForm>) -> Kind {
        Kind { name, commits_groups: false, features: &[], url, read: unread }
    }

    const KINDS: Kinds = Kinds {
        built_in: &[
            kind(
                "number",
                Some(UrlForm {
                    schemes: &[("number", &[]), ("numbers", &[("tls", "true")])],
                    hosts: "host",
                    path: "database",
                    path_has_slash: false,
                    username: "user",
                    password: "password",
                    secrets: &["password", "key"],
                    pem: &["cert"],
                    refused: &[],
                }),
            ),
            kind(
                "slash",
                Some(UrlForm {
                    schemes: &[("slash", &[])],
                    hosts: "endpoints",
                    path: "prefix",
                    path_has_slash: true,
                    username: "user",
                    password: "password",
                    secrets: &["password"],
                    pem: &[],
                    refused: &[],
                }),
            ),
            kind("memory", None),
        ],
        features: &["left"],
    };

    fn items(url: &str) -> Vec<(String, String)> {
        read(url, KINDS, None).unwrap().items
    }

    fn is(items: &[(&str, &str)]) -> Vec<(String, String)> {
        items.iter().map(|(key, value)| item(key, *value)).collect()
    }

    fn error(url: &str) -> String {
        read(url, KINDS, None).unwrap_err().message
    }

    #[test]
    fn hosts_path_user_and_parameters_are_properties() {
        for (url, properties) in [
            ("number://h:1", &[("host", "h:1")][..]),
            ("number://h:1/", &[("host", "h:1")]),
            ("number://h:1/2", &[("host", "h:1"), ("database", "2")]),
            ("number://a:1,b:2?x=%20y&z", &[("host", "a:1,b:2"), ("x", " y"), ("z", "")]),
            ("numbers://u%40d@h:1", &[("tls", "true"), ("host", "h:1"), ("user", "u@d")]),
            ("slash://h:1/a/b", &[("endpoints", "h:1"), ("prefix", "/a/b")]),
            ("slash://h:1/", &[("endpoints", "h:1")]),
        ] {
            assert_eq!(items(url), is(properties), "{url}");
        }
    }

    #[test]
    fn the_password_is_that_of_the_environment() {
        let named = read("number://u@h", KINDS, Some("p:w".into())).unwrap();
        assert_eq!(named.items, is(&[("host", "h"), ("user", "u"), ("password", "p:w")]));
    }

    #[test]
    fn secrets_are_refused_and_not_repeated() {
        for url in [
            "number://u:hush@h",
            "number://h?PASSWORD=hush",
            "number://h?key=hush",
            "number://u:1?hush@h",
            "number://u:1/hush@h",
        ] {
            let error = error(url);
            assert!(error.contains("LEASEHOLD_PASSWORD"), "{error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn a_property_that_is_given_twice_is_refused() {
        for url in ["number://h/2?database=3", "numbers://h?TLS=false", "number://h?a=1&a=2"] {
            assert!(error(url).contains("given twice"), "{url}");
        }
    }

    #[test]
    fn a_file_stands_for_a_certificate_only() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "pem").unwrap();
        let at = format!("@{}", file.path().display());
        let url = format!("number://h?cert={at}&other={at}");
        assert_eq!(items(&url), is(&[("host", "h"), ("cert", "pem"), ("other", &at)]));
        assert!(error("number://h?cert=@/nowhere").contains("/nowhere"));
    }

    #[test]
    fn an_unknown_scheme_is_an_error_with_the_known_ones() {
        assert!(error("nope://h").contains("number://, numbers://, slash://, unix: and dapr:"));
        assert!(error("left://h").contains("feature \"left\""));
        assert!(error("memory://").contains("unix:PATH"));
        assert!(error("number://").contains("names no host"));
    }
}
