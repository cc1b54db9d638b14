//! Guard's options for this process, from the variable `PLIMSOLL_GUARD`.

use std::path::PathBuf;
use std::sync::OnceLock;

use plimsoll_wire::env;
use plimsoll_wire::options::GuardOptions;

use crate::say::say;

static OPTIONS: OnceLock<Option<GuardOptions>> = OnceLock::new();

/// The options; `None` where guard is not wanted, or after a line on stderr about a word of them.
pub(crate) fn options() -> Option<&'static GuardOptions> {
    OPTIONS.get_or_init(read).as_ref()
}

fn read() -> Option<GuardOptions> {
    let line = std::env::var(env::GUARD).ok()?;
    match GuardOptions::read(&line) {
        Ok(options) => {
            say_absent(&options);
            Some(options)
        }
        Err(error) => {
            say!("{error}; this process runs unguarded");
            None
        }
    }
}

/// Says which remedies are not there on Windows.
fn say_absent(options: &GuardOptions) {
    let absent = [
        (options.chunk.is_some(), "chunk"),
        (options.reclaim, "reclaim"),
        (options.spill.is_some(), "spill"),
        (options.on_oom_managed, "on-oom"),
    ];
    for (_, word) in absent.into_iter().filter(|(is_set, _)| *is_set) {
        say!("the option `{word}` has no effect on Windows");
    }
}

/// The folder of the pages and of the ledger.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(env::GUARD_PAGES).map(PathBuf::from)
}
