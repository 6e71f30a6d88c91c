//! YAML as a tree of JSON values, with line numbers for errors.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::{
    problem::Fault,
    scalar::{Scalar, resolve},
};

/// The most nodes of a document. Each use of an alias counts, so that a small file cannot
/// become a large tree.
const NODES_MAX: usize = 20_000;
/// The most bytes of all texts together, for the same reason.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;
const DEPTH_MAX: usize = 64;

/// A value and the line on which it starts.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

/// A value. If a key is given twice, its last value counts.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// In the notation of JSON.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    /// The value of a key. As in Go's JSON, a key that differs only in case is used if there
    /// is no exact one.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else { return None };
        let exact = entries.iter().find(|(name, _)| name == key);
        let found =
            exact.or_else(|| entries.iter().rfind(|(name, _)| name.eq_ignore_ascii_case(key)));
        found.map(|(_, node)| node)
    }

    /// The value as JSON text, with sorted keys, and `<`, `>`, `&` escaped as Go's JSON does.
    pub(crate) fn to_json(&self) -> String {
        match &self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Number(number) => number.clone(),
            Value::Text(text) => quote(text),
            Value::List(nodes) => {
                let nodes: Vec<_> = nodes.iter().map(Self::to_json).collect();
                format!("[{}]", nodes.join(","))
            }
            Value::Map(entries) => {
                let mut entries: Vec<_> = entries.iter().collect();
                entries.sort_by(|a, b| a.0.cmp(&b.0));
                let entries: Vec<_> = entries
                    .into_iter()
                    .map(|(key, node)| format!("{}:{}", quote(key), node.to_json()))
                    .collect();
                format!("{{{}}}", entries.join(","))
            }
        }
    }
}

fn quote(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Reads the first document of `text`, which starts on line `first_line` of its file. Returns
/// also each key that a map has more than once, and the line of its repetition.
pub(crate) fn read(
    text: &str,
    first_line: usize,
) -> Result<(Node, Vec<(usize, String)>), Fault> {
    let mut reader = Reader {
        events: Parser::new_from_str(text),
        first_line,
        anchors: HashMap::new(),
        size: Size::default(),
        repeated: Vec::new(),
    };
    loop {
        match reader.next()? {
            (Event::DocumentStart(_), _) => {
                let (event, line) = reader.next()?;
                let node = reader.node(event, line, 0)?;
                return Ok((node, reader.repeated));
            }
            (Event::StreamEnd, line) => {
                return Ok((Node { line, value: Value::Null }, Vec::new()));
            }
            _ => {}
        }
    }
}

struct Reader<'a> {
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
    first_line: usize,
    anchors: HashMap<usize, (Node, Size)>,
    size: Size,
    repeated: Vec<(usize, String)>,
}

/// How much of a document was read. An alias counts as much as the node that it refers to.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    nodes: usize,
    text_bytes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, usize), Fault> {
        match self.events.next() {
            Some(Ok((event, span))) => Ok((event, self.line(span))),
            Some(Err(error)) => Err(Fault::at(
                self.first_line + error.marker().line().saturating_sub(1),
                format!("is not YAML: {}", error.info()),
            )),
            None => Err(Fault::at(self.first_line, "is not YAML: it ends early")),
        }
    }

    fn line(&self, span: Span) -> usize {
        self.first_line + span.start.line().saturating_sub(1)
    }

    fn node(&mut self, event: Event<'a>, line: usize, depth: usize) -> Result<Node, Fault> {
        if depth > DEPTH_MAX {
            return Err(Fault::at(line, format!("is nested deeper than {DEPTH_MAX} levels")));
        }
        let before = self.size;
        let text_bytes = if let Event::Scalar(text, ..) = &event { text.len() } else { 0 };
        self.count(Size { nodes: 1, text_bytes }, line)?;
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                (anchor, scalar(&text, style, tag.as_deref(), line)?)
            }
            Event::SequenceStart(anchor, _) => (anchor, Value::List(self.list(depth)?)),
            Event::MappingStart(anchor, _) => (anchor, Value::Map(self.map(depth)?)),
            Event::Alias(anchor) => {
                let Some((node, size)) = self.anchors.get(&anchor) else {
                    return Err(Fault::at(line, "is not YAML: an alias within its own anchor"));
                };
                let (node, size) = (node.clone(), *size);
                self.count(size, line)?;
                return Ok(node);
            }
            _ => return Ok(Node { line, value: Value::Null }),
        };
        let node = Node { line, value };
        if anchor != 0 {
            let size = Size {
                nodes: self.size.nodes - before.nodes,
                text_bytes: self.size.text_bytes - before.text_bytes,
            };
            self.anchors.insert(anchor, (node.clone(), size));
        }
        Ok(node)
    }

    fn count(&mut self, more: Size, line: usize) -> Result<(), Fault> {
        self.size.nodes = self.size.nodes.saturating_add(more.nodes);
        self.size.text_bytes = self.size.text_bytes.saturating_add(more.text_bytes);
        if self.size.nodes > NODES_MAX {
            return Err(Fault::at(
                line,
                format!("has more than {NODES_MAX} values, aliases included"),
            ));
        }
        if self.size.text_bytes > TEXT_BYTES_MAX {
            return Err(Fault::at(
                line,
                format!("has more than {TEXT_BYTES_MAX} bytes of text, aliases included"),
            ));
        }
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Fault> {
        let mut nodes = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(nodes),
                (event, line) => nodes.push(self.node(event, line, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(String, Node)>, Fault> {
        let (mut entries, mut own) = (Vec::new(), HashSet::new());
        loop {
            let (event, line) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(entries);
            }
            let is_merge =
                matches!(&event, Event::Scalar(key, ScalarStyle::Plain, ..) if key == "<<");
            let key = self.node(event, line, depth + 1)?;
            let (event, value_line) = self.next()?;
            let value = self.node(event, value_line, depth + 1)?;
            if is_merge {
                merge(&mut entries, value)?;
                continue;
            }
            let key = name_of(key)?;
            if !own.insert(key.clone()) {
                self.repeated.push((line, key.clone()));
            }
            set(&mut entries, key, value);
        }
    }
}

fn set(entries: &mut Vec<(String, Node)>, key: String, value: Node) {
    entries.retain(|(known, _)| *known != key);
    entries.push((key, value));
}

fn merge(entries: &mut Vec<(String, Node)>, from: Node) -> Result<(), Fault> {
    match from.value {
        Value::Map(merged) => {
            for (key, value) in merged {
                set(entries, key, value);
            }
            Ok(())
        }
        Value::List(maps) => {
            // If several maps have a key, the first one counts.
            maps.into_iter().rev().try_for_each(|map| merge(entries, map))
        }
        _ => Err(Fault::at(from.line, "merges (<<) a value that is not a map")),
    }
}

fn name_of(key: Node) -> Result<String, Fault> {
    match key.value {
        Value::Text(name) | Value::Number(name) => Ok(name),
        Value::Bool(name) => Ok(name.to_string()),
        _ => Err(Fault::at(key.line, "has a key that is not a string")),
    }
}

fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    line: usize,
) -> Result<Value, Fault> {
    let resolvable = match tag {
        None => style == ScalarStyle::Plain,
        Some(tag) => tag.is_yaml_core_schema() && tag.suffix != "str",
    };
    if !resolvable {
        return Ok(Value::Text(text.to_owned()));
    }
    match resolve(text) {
        Scalar::Null => Ok(Value::Null),
        Scalar::Bool(value) => Ok(Value::Bool(value)),
        Scalar::Number(number) => Ok(Value::Number(number)),
        Scalar::Text(text) => Ok(Value::Text(text)),
        Scalar::NotFinite => Err(Fault::at(
            line,
            format!("has the number {text}, which JSON cannot represent; put it in quotes"),
        )),
    }
}

#[cfg(test)]
#[path = "yaml_tests.rs"]
mod tests;
