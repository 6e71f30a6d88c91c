//! Typed access to the fields of a document, with the rules of Go's JSON: a field that is
//! absent or null has the empty value, and a number or boolean is accepted as a string.

use super::{
    problem::Fault,
    yaml::{Node, Value},
};

/// A value at a path such as `spec.metadata[2].name`, or its absence.
#[derive(Clone)]
pub(super) struct Field<'a> {
    node: Option<&'a Node>,
    path: String,
}

impl<'a> Field<'a> {
    pub(super) fn root(node: &'a Node) -> Self {
        Self { node: Some(node), path: String::new() }
    }

    /// A field of this map.
    pub(super) fn get(&self, key: &str) -> Result<Self, Fault> {
        let path =
            if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        match self.node.map(|node| &node.value) {
            None | Some(Value::Null) => Ok(Self { node: None, path }),
            Some(Value::Map(_)) => {
                Ok(Self { node: self.node.and_then(|node| node.get(key)), path })
            }
            Some(_) if self.path.is_empty() => Err(self.fault("the document must be a map")),
            Some(_) => Err(self.must("be a map")),
        }
    }

    /// The keys of this map that are not `known`.
    pub(super) fn others(&self, known: &[&str]) -> Vec<&'a str> {
        let Some(Value::Map(entries)) = self.node.map(|node| &node.value) else {
            return Vec::new();
        };
        let is_known = |key: &str| known.iter().any(|known| known.eq_ignore_ascii_case(key));
        entries.iter().map(|(key, _)| key.as_str()).filter(|key| !is_known(key)).collect()
    }

    /// The elements of this list.
    pub(super) fn list(&self) -> Result<Vec<Self>, Fault> {
        match self.node.map(|node| &node.value) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::List(nodes)) => Ok(nodes
                .iter()
                .enumerate()
                .map(|(at, node)| Self {
                    node: Some(node),
                    path: format!("{}[{at}]", self.path),
                })
                .collect()),
            Some(_) => Err(self.must("be a list")),
        }
    }

    pub(super) fn text(&self) -> Result<String, Fault> {
        match self.node.map(|node| &node.value) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::Text(text) | Value::Number(text)) => Ok(text.clone()),
            Some(Value::Bool(value)) => Ok(value.to_string()),
            Some(_) => Err(self.must("be a string")),
        }
    }

    pub(super) fn flag(&self) -> Result<bool, Fault> {
        match self.node.map(|node| &node.value) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => Err(self.must("be true or false, without quotes")),
        }
    }

    /// Any value, as a property has it: a string without its quotes, anything else as JSON;
    /// `None` if absent or null.
    pub(super) fn any(&self) -> Option<String> {
        let node = self.node?;
        match &node.value {
            Value::Null => None,
            Value::Text(text) => Some(text.clone()),
            _ => Some(node.to_json()),
        }
    }

    /// The fault of a field that breaks a rule, such as `be a list`.
    pub(super) fn must(&self, rule: &str) -> Fault {
        self.fault(format!("{} must {rule}", self.path))
    }

    fn fault(&self, text: impl Into<String>) -> Fault {
        Fault { line: self.node.map(|node| node.line), text: text.into() }
    }
}
