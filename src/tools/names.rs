//! How the command line names resources.

use leasehold_proto::locks::LockScope;

/// A namespace.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct NamespaceArgs {
    /// A segment of the namespace, the outermost first; may be repeated
    #[arg(long, value_name = "SEGMENT")]
    pub namespace: Vec<String>,
}

/// Several resources.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ScopeArgs {
    /// What the names begin with
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub prefix: String,

    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would print it")]
    pub names: NamespaceArgs,

    /// Also the namespaces below
    #[arg(long)]
    pub children: bool,
}

impl ScopeArgs {
    /// The same as a message.
    #[must_use]
    pub fn to_scope(&self) -> LockScope {
        LockScope {
            namespace: self.names.namespace.clone(),
            children: self.children,
            prefix: self.prefix.clone(),
        }
    }
}

/// A name that a script left empty by mistake must not mean all of them.
pub(crate) fn not_empty(text: &str) -> Result<String, &'static str> {
    if text.is_empty() { Err("it is empty") } else { Ok(text.to_owned()) }
}

/// A resource's name in one text: its namespace's segments and its own name.
#[must_use]
pub fn shown(namespace: &[String], resource: &str) -> String {
    let mut parts: Vec<_> = namespace.iter().map(String::as_str).collect();
    parts.push(resource);
    parts.join("/")
}
