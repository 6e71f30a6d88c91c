//! The normal form of a script, which does not depend on layout and on the case of commands.

use sha1_smol::Sha1;

/// The SHA-1 of a script's normal form, by which it is recognised: without comments and
/// semicolons, with white space only where it separates two words, in lower case, and with double
/// quotes only. The form is only compared and never run. A different script with the same form is
/// treated as the known script.
pub(super) fn digest(script: &str) -> String {
    Sha1::from(normal(script)).digest().to_string()
}

fn normal(script: &str) -> String {
    let mut normal = String::with_capacity(script.len());
    let mut is_apart = false;
    let mut rest = script.chars().peekable();
    while let Some(next) = rest.next() {
        if next == '-' && rest.peek() == Some(&'-') {
            while rest.peek().is_some_and(|next| *next != '\n') {
                rest.next();
            }
            continue;
        }
        if next.is_whitespace() || next == ';' {
            is_apart = true;
            continue;
        }
        if is_apart && is_of_word(next) && normal.chars().next_back().is_some_and(is_of_word) {
            normal.push(' ');
        }
        is_apart = false;
        if !matches!(next, '"' | '\'') {
            normal.push(next.to_ascii_lowercase());
            continue;
        }
        normal.push('"');
        while let Some(inner) = rest.next() {
            if inner == next {
                normal.push('"');
                break;
            }
            normal.push(inner.to_ascii_lowercase());
            if inner == '\\' {
                normal.extend(rest.next());
            }
        }
    }
    normal
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_case_quotes_and_comments_do_not_count() {
        let one =
            "-- Ends it.\nlocal v = redis.call('GET', KEYS[1]);\n  return v -- or nothing";
        let other = "local v=redis.call(\"get\",KEYS[1]) return v";
        assert_eq!(normal(one), normal(other));
        assert_eq!(normal(one), "local v=redis.call(\"get\",keys[1])return v");
    }

    #[test]
    fn words_and_strings_count() {
        assert_ne!(normal("local a = b"), normal("locala = b"));
        assert_ne!(normal("return 'a b'"), normal("return 'ab'"));
        assert_ne!(normal("return '-- a'"), normal("return ''"));
        assert_ne!(normal("return KEYS[1]"), normal("return KEYS[2]"));
    }

    #[test]
    fn a_string_without_an_end_has_a_normal_form_too() {
        for (text, form) in
            [("'", "\""), ("'A\\", "\"a\\"), ("\"a'", "\"a'"), ("--", ""), ("-", "-")]
        {
            assert_eq!(normal(text), form, "{text}");
        }
    }
}
