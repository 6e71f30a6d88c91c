//! The problem of a field of a request or of a property of a store.

/// An invalid field or property, and the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field's name in the protocol, or the property's key in the YAML.
    pub field: String,
    /// The problem: the rest of a sentence that begins with the field's name.
    pub problem: String,
}

impl Violation {
    /// A violation of `field`.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.field, self.problem)
    }
}
