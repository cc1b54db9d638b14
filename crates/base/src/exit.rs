//! Defines how a process ended, by an exit status or by a signal, and writes it as text.

use std::fmt;

/// A wait status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// It could not be read.
    Unknown,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with status {code}"),
            Self::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
            Self::Unknown => f.write_str("ended with an unknown status"),
        }
    }
}

/// Linux numbers, the same on x86-64 and aarch64.
fn signal_name(signal: i32) -> Option<String> {
    const FROM_ONE: &str = "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD \
        CONT STOP TSTP TTIN TTOU URG XCPU XFSZ";
    let before = usize::try_from(signal).ok()?.checked_sub(1)?;
    FROM_ONE.split(' ').nth(before).map(|name| format!("SIG{name}"))
}
