//! Text for terminals: names are data of others, and may contain anything.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_lock::Clock;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};
use unicode_width::UnicodeWidthStr as _;

/// A name with its control, format and bidirectional characters escaped.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unsafe(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

fn is_unsafe(character: char) -> bool {
    matches!(
        character.general_category(),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
            | GeneralCategory::PrivateUse
            | GeneralCategory::Unassigned
    )
}

/// How many columns a terminal uses for it.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The beginning of a text that fits into these columns.
pub(crate) fn cut(text: &str, columns: usize) -> &str {
    // Several characters may be one sign, so widths do not add up.
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    let fits = |end: &usize| width(&text[..*end]) <= columns;
    let end = ends.take_while(fits).last().unwrap_or(0);
    &text[..end]
}

/// A duration as kubectl shows it: `5s`, `3m12s`, `4h10m`, `2d3h`.
pub(crate) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, 1..) => format!("{minutes}m{}s", seconds % 60),
        (0, 1.., _) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// How long ago this was, as far as the clocks agree.
pub(crate) fn age(since: Option<&prost_types::Timestamp>) -> Option<Duration> {
    let since = SystemTime::try_from(*since?).ok()?;
    Some(now().duration_since(since).unwrap_or_default())
}

/// The time of the wall clock.
pub(crate) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(Clock::system().unix_us())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_change_a_terminal_or_the_order_of_text_is_escaped() {
        for (text, shown) in [
            ("order-1", "order-1"),
            ("ümläut 名前 🔒", "ümläut 名前 🔒"),
            ("a\x1b[2Jb", "a\\u{1b}[2Jb"),
            ("a\nb", "a\\nb"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("a\u{200b}b", "a\\u{200b}b"),
            ("a\u{2028}b", "a\\u{2028}b"),
            ("a\u{e000}b", "a\\u{e000}b"),
        ] {
            assert_eq!(escaped(text), shown);
        }
    }

    #[test]
    fn a_text_is_cut_at_a_column() {
        assert_eq!(cut("名前x", 4), "名前");
        assert_eq!(cut("名前x", 3), "名");
        assert_eq!(cut("abc", 10), "abc");
        assert_eq!(width(cut(&"❤️".repeat(40), 40)), 40);
    }

    #[test]
    fn durations_have_two_units_at_most() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m0s"),
            (3 * 60 + 12, "3m12s"),
            (4 * 3600 + 600, "4h10m"),
            (51 * 3600, "2d3h"),
        ] {
            assert_eq!(short(Duration::from_secs(seconds)), text);
        }
    }
}
