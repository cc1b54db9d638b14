//! `/proc/pressure/memory`, or a cgroup's `memory.pressure`: how much time was lost waiting for memory.

use super::fields;

/// Some programs waited, or all of them did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    pub some: Option<Stall>,
    pub full: Option<Stall>,
}

/// Shares in hundredths of a percent over the last 10, 60 and 300 seconds, and the sum in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    pub avg10: u64,
    pub avg60: u64,
    pub avg300: u64,
    pub total: u64,
}

impl Pressure {
    pub fn read(text: &str) -> Self {
        let mut pressure = Self::default();
        for line in fields::lines(text) {
            if let Some(rest) = line.strip_prefix("some ") {
                pressure.some = Stall::read(rest);
            } else if let Some(rest) = line.strip_prefix("full ") {
                pressure.full = Stall::read(rest);
            }
        }
        pressure
    }
}

impl Stall {
    fn read(text: &str) -> Option<Self> {
        let mut stall = Self::default();
        for word in text.split_ascii_whitespace() {
            let (key, value) = word.split_once('=')?;
            match key {
                "avg10" => stall.avg10 = hundredths(value)?,
                "avg60" => stall.avg60 = hundredths(value)?,
                "avg300" => stall.avg300 = hundredths(value)?,
                "total" => stall.total = value.parse().ok()?,
                _ => {}
            }
        }
        Some(stall)
    }
}

fn hundredths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    let part: u64 = (part.len() == 2).then(|| part.parse().ok())??;
    whole.parse::<u64>().ok()?.checked_mul(100)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines_are_read() {
        let pressure = Pressure::read(
            "some avg10=0.28 avg60=1.55 avg300=100.00 total=8494083\nfull avg10=0.00 avg60=0.41 avg300=0.52 total=2945146\n",
        );
        let some = Stall {
            avg10: 28,
            avg60: 155,
            avg300: 10_000,
            total: 8_494_083,
        };
        assert_eq!(pressure.some, Some(some));
        assert_eq!(pressure.full.map(|full| full.avg60), Some(41));
        assert_eq!(
            Pressure::read("some avg10=x\nfull\nfull 1\n"),
            Pressure::default()
        );
    }
}
