//! Parses durations that a user types (`90s`, `1h30m`), and formats elapsed times.

use std::time::Duration;

/// Reads a duration as a configuration file has it: `90s`, `1h30m`; a number alone is seconds.
pub fn time(text: &str) -> Result<Duration, String> {
    // Zero as a limit would end a soak before its first request.
    let time = plimsoll_config::parse_duration(text).filter(|time| !time.is_zero());
    time.ok_or_else(|| format!("`{text}` is not a duration; write 500ms, 90s, 30m, 8h or 2d"))
}

/// Formats a duration as `1 h 02 min`, `3 min 20 s` or `12 s`.
pub fn lasted(milliseconds: u64) -> String {
    let seconds = (Duration::from_millis(milliseconds) + Duration::from_millis(500)).as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}
