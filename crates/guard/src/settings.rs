//! Parses guard's options for this process from the variable `PLIMSOLL_GUARD`.

use alloc::boxed::Box;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

use plimsoll_wire::env;
use plimsoll_wire::options::GuardOptions;

use crate::process;
use crate::say::say;

static OPTIONS: AtomicPtr<GuardOptions> = AtomicPtr::new(null_mut());

/// True if the environment enables guard; read once.
pub(crate) fn wanted() -> bool {
    const UNREAD: u32 = 0;
    const NO: u32 = 1;
    const YES: u32 = 2;
    static WANTED: AtomicU32 = AtomicU32::new(UNREAD);
    match WANTED.load(Relaxed) {
        UNREAD => {
            let wanted = process::variable(env::GUARD).is_some();
            // Two threads that both read it store the same.
            WANTED.store(if wanted { YES } else { NO }, Relaxed);
            wanted
        }
        known => known == YES,
    }
}

/// The options; the empty ones until [`read`] has succeeded.
pub(crate) fn options() -> &'static GuardOptions {
    static NONE: GuardOptions = GuardOptions::NONE;
    // SAFETY: null, or options that were leaked.
    unsafe { OPTIONS.load(Acquire).as_ref() }.unwrap_or(&NONE)
}

/// Reads the options; false, after a line on stderr, if the variable cannot be understood.
pub(crate) fn read() -> bool {
    let Some(line) = process::variable(env::GUARD) else {
        return false;
    };
    let Ok(line) = line.to_str() else {
        say!("{} is not valid UTF-8; this process runs unguarded", env::GUARD);
        return false;
    };
    match GuardOptions::read(line) {
        Ok(options) => {
            // Leaked: hooks of other threads may hold a reference until the process ends.
            OPTIONS.store(Box::into_raw(Box::new(options)), Release);
            true
        }
        Err(error) => {
            say!("{error}; this process runs unguarded");
            false
        }
    }
}
