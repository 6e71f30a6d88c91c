//! Durations as Go writes them, which is how Dapr writes them.

use std::time::Duration;

use go_duration::GoDuration;

/// Reads a Go duration, `1m30s`; `None` if the text is invalid or the duration negative.
#[must_use]
pub fn parse_go_duration(text: &str) -> Option<Duration> {
    let nanos = text.trim().parse::<GoDuration>().ok()?.nanoseconds();
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

/// Writes a duration as Go does.
#[must_use]
pub fn go_duration(duration: Duration) -> String {
    GoDuration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_whole() {
        assert_eq!(parse_go_duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_go_duration("1.5s"), Some(Duration::from_millis(1500)));
        for bad in ["30", "", "30sX", "-1s", "s", "1d", "99999999h"] {
            assert_eq!(parse_go_duration(bad), None, "{bad:?}");
        }
    }
}
