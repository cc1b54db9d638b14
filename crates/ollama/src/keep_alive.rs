//! Parses Ollama's `keep_alive`: the time for which a model stays loaded after a request.
//!
//! DECISION: it sets the time to live of the model's run, and never pins the model. Home Assistant asks for
//! -1 (for good) by default; a pin would keep every other model out.

use std::time::Duration;

use serde_json::Value;

use super::{InvalidRequest, refused};

/// Units of Go's durations, in nanoseconds.
const UNITS: [(&str, f64); 8] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];

/// A number of seconds, or a Go duration such as `5m` or `1h30m`. A negative one is [`Duration::MAX`].
pub(crate) fn read(value: &Value) -> Result<Duration, InvalidRequest> {
    let seconds = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => go_duration(text.trim()),
        _ => None,
    };
    let seconds = seconds.filter(|seconds| seconds.is_finite()).ok_or_else(|| {
        refused("`keep_alive` must be a number of seconds or a duration such as 5m".to_owned())
    })?;
    Ok(match seconds {
        ..0.0 => Duration::MAX,
        seconds => Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
    })
}

/// Seconds of a duration as Go writes it (`time.ParseDuration`); Home Assistant also sends plain digits as
/// text.
fn go_duration(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.is_empty() {
        return None;
    }
    if let Ok(seconds) = rest.parse::<u32>() {
        return Some(sign * f64::from(seconds));
    }
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let (_, worth) = UNITS.iter().find(|(name, _)| *name == unit)?;
        nanoseconds += number.parse::<f64>().ok()? * worth;
        rest = after;
    }
    Some(sign * nanoseconds / 1e9)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_and_durations_of_go_are_read() {
        let seconds = |seconds| Some(Duration::from_secs_f64(seconds));
        for (value, expected) in [
            (json!(0), seconds(0.0)),
            (json!(300), seconds(300.0)),
            (json!(0.5), seconds(0.5)),
            (json!("5m"), seconds(300.0)),
            (json!("1h30m"), seconds(5400.0)),
            (json!("1.5s"), seconds(1.5)),
            (json!("250ms"), seconds(0.25)),
            (json!("0"), seconds(0.0)),
            (json!("-1"), Some(Duration::MAX)),
            (json!("-1s"), Some(Duration::MAX)),
            (json!(-1), Some(Duration::MAX)),
            (json!(1e300), Some(Duration::MAX)),
            (json!("9999999999999h"), seconds(35_999_999_999_996_400.0)),
            (json!(""), None),
            (json!("m"), None),
            (json!("5 m"), None),
            (json!("5x"), None),
            (json!("1..5s"), None),
            (json!("-"), None),
            (json!(true), None),
            (json!([]), None),
        ] {
            assert_eq!(read(&value).ok(), expected, "{value}");
        }
    }
}
