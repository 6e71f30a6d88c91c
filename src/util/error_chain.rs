//! Errors with their causes as text.

use std::{error::Error, iter::successors};

/// An error and its causes, outermost first.
pub fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |error| (*error).source())
}

/// An error and its causes as one line, outermost first. A cause that the line already
/// ends with is left out.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    causes(error).fold(String::new(), |line, cause| {
        let cause = cause.to_string();
        if line.is_empty() {
            cause
        } else if line.ends_with(&cause) {
            line
        } else {
            format!("{line}: {cause}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Caused {
        text: &'static str,
        source: Option<Box<Caused>>,
    }

    #[test]
    fn a_cause_that_the_line_ends_with_is_not_repeated() {
        let innermost = Caused { text: "refused", source: None };
        let inner = Caused { text: "connect: refused", source: Some(Box::new(innermost)) };
        let outer = Caused { text: "call", source: Some(Box::new(inner)) };
        assert_eq!(chain(&outer), "call: connect: refused");
    }
}
