//! The documents of a file.

/// The text of a document, and the line of the file on which it starts, from 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Document<'a> {
    pub(crate) text: &'a str,
    pub(super) line: usize,
}

/// Splits a file where daprd does: at every line that begins with `---`, whatever follows on
/// it, except the first line, where YAML allows it as the start of a document.
pub(crate) fn split(file: &str) -> Vec<Document<'_>> {
    const SEPARATOR: &str = "\n---";
    let (mut documents, mut rest, mut line) = (Vec::new(), file, 1);
    loop {
        let Some(at) = rest.find(SEPARATOR) else {
            documents.push(Document { text: rest, line });
            return documents;
        };
        documents.push(Document { text: &rest[..at], line });
        let after = at + SEPARATOR.len();
        let Some(end) = rest[after..].find('\n') else { return documents };
        let next = after + end + 1;
        line += rest[..next].matches('\n').count();
        rest = &rest[next..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(file: &str) -> Vec<(&str, usize)> {
        split(file).into_iter().map(|document| (document.text, document.line)).collect()
    }

    #[test]
    fn a_line_of_dashes_separates_and_the_rest_of_it_is_dropped() {
        assert_eq!(
            texts("a: 1\n---\nb: 2\n--- # c\nc: 3"),
            [("a: 1", 1), ("b: 2", 3), ("c: 3", 5)]
        );
        assert_eq!(texts("a\r\n---\r\nb"), [("a\r", 1), ("b", 3)]);
    }

    #[test]
    fn dashes_at_the_start_open_the_first_document() {
        assert_eq!(texts("---\na: 1\n"), [("---\na: 1\n", 1)]);
    }

    #[test]
    fn dashes_at_the_end_open_nothing() {
        assert_eq!(texts("a: 1\n---"), [("a: 1", 1)]);
        assert_eq!(texts("a: 1\n---\n"), [("a: 1", 1), ("", 3)]);
    }
}
