//! The meaning of an unquoted scalar, by the rules of Go's YAML 1.1, which daprd uses, and
//! not of YAML 1.2: `on` is true, `010` is eight, and `1.0` becomes `1`.

/// A scalar's meaning.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    /// A number as JSON writes it.
    Number(String),
    /// A number that JSON cannot represent.
    NotFinite,
    Text(String),
}

/// Resolves an unquoted scalar.
pub(super) fn resolve(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Scalar::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off"
        | "OFF" => return Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => return Scalar::NotFinite,
        _ => {}
    }
    if !text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) {
        return Scalar::Text(text.to_owned());
    }
    // Go does not remove underscores from a number that begins with a point.
    let plain = if text.starts_with('.') { text.to_owned() } else { text.replace('_', "") };
    if let Some(whole) = integer(&plain) {
        return Scalar::Number(whole);
    }
    match is_float(&plain).then(|| plain.parse::<f64>()) {
        Some(Ok(number)) if number.is_finite() => Scalar::Number(json_float(number)),
        _ => Scalar::Text(text.to_owned()),
    }
}

/// An integer in any of Go's notations, converted to decimal.
fn integer(text: &str) -> Option<String> {
    let (negative, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (digits, radix) = if let Some(hex) = lower.strip_prefix("0x") {
        (hex, 16)
    } else if let Some(binary) = lower.strip_prefix("0b") {
        (binary, 2)
    } else if let Some(octal) = lower.strip_prefix("0o") {
        (octal, 8)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (&lower[1..], 8)
    } else {
        (&*lower, 10)
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    match (negative, magnitude) {
        (false, _) => Some(magnitude.to_string()),
        (true, 0) => Some("0".to_owned()),
        (true, 1..=0x8000_0000_0000_0000) => Some(format!("-{magnitude}")),
        (true, _) => None,
    }
}

/// Whether a text has the form of a float: digits with at most one point and one exponent.
fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, part)) => {
            all_digits(whole) && all_digits(part) && !(whole.is_empty() && part.is_empty())
        }
        None => !mantissa.is_empty() && all_digits(mantissa),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    mantissa_fits && exponent_fits
}

/// A number as Go's JSON writes it: with an exponent only if it is very small or large.
fn json_float(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{number:e}");
        return match text.split_once('e') {
            Some((mantissa, exponent)) if !exponent.starts_with('-') => {
                format!("{mantissa}e+{exponent}")
            }
            _ => text,
        };
    }
    number.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Scalar {
        Scalar::Number(text.to_owned())
    }

    #[test]
    fn words_of_yaml_1_1_are_booleans() {
        for (word, value) in [("on", true), ("Yes", true), ("y", true), ("OFF", false)] {
            assert_eq!(resolve(word), Scalar::Bool(value), "{word}");
        }
        assert_eq!(resolve("oN"), Scalar::Text("oN".to_owned()));
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        for (written, meant) in [
            ("6379", "6379"),
            ("010", "8"),
            ("08", "8"),
            ("0o17", "15"),
            ("0x1F", "31"),
            ("-0b11", "-3"),
            ("1_000", "1000"),
            ("+5", "5"),
            ("1.0", "1"),
            (".5", "0.5"),
            ("1e3", "1000"),
            ("-0.25", "-0.25"),
            ("1e21", "1e+21"),
            ("1e-7", "1e-7"),
            ("18446744073709551615", "18446744073709551615"),
            ("123456789012345678901234", "1.2345678901234569e+23"),
            ("99999999999999999999", "100000000000000000000"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("-9223372036854775809", "-9223372036854776000"),
            ("-0.0", "-0"),
            ("1.", "1"),
            ("-2E+05", "-200000"),
            ("0X1f", "31"),
            ("0x_1F", "31"),
            ("1__2", "12"),
            ("0.1_5", "0.15"),
        ] {
            assert_eq!(resolve(written), number(meant), "{written}");
        }
    }

    #[test]
    fn a_text_that_only_begins_like_a_number_is_text() {
        for text in ["10.0.0.1:6379", "1.2.3", "30s", "-", "--", "2026-01-02", "0x", "1e", "."]
        {
            assert_eq!(resolve(text), Scalar::Text(text.to_owned()), "{text}");
        }
    }

    #[test]
    fn an_empty_scalar_is_null_and_infinity_is_not_json() {
        assert_eq!(resolve(""), Scalar::Null);
        assert_eq!(resolve("~"), Scalar::Null);
        assert_eq!(resolve("-.inf"), Scalar::NotFinite);
    }
}
