//! Replaces ggml's legacy memory pool (`ggml_cuda_pool_leg`) by guard's own pool, through the C++ class's
//! vtable.
//!
//! The pool is replaced only on request (`pool=ours`). Calls that cannot be served go to
//! ggml's own methods.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use plimsoll_nostd::lock::Lock;

use crate::driver::{DeviceOrdinal, DevicePointer};
use crate::say::say;
use crate::settings;

mod backing;
mod fence;
mod locate;
mod mapped_objects;
pub(crate) mod pools;
mod replacements;
mod streams;
mod symbol_file;
mod symbols;
mod takeover;
mod trim_interval;

pub(crate) use streams::{created as stream_created, ending as context_ending, gone as stream_gone};

use locate::SearchedObjects;
use mapped_objects::LoadCounts;
use takeover::TakeoverError;

// DECISION: an object's address is only a key to an allocator of this library (`plimsoll_pool::Ours`); the
// object itself is never read. A hidden and stripped class cannot be found, which is reported once.
#[derive(Debug)]
struct ClassSearch {
    seen: LoadCounts,
    /// Objects without the class, which need no second look.
    searched: SearchedObjects,
}

static SEARCH: Lock<ClassSearch> =
    Lock::new(ClassSearch { seen: LoadCounts { loaded: 0, unloaded: 0 }, searched: SearchedObjects::new() });

/// True if guard is to serve the pool itself.
pub(crate) fn wanted() -> bool {
    settings::options().pool
}

/// Searches for the class, if an option requests it and objects were loaded or unloaded since the last
/// search.
pub(crate) fn look() {
    if wanted() {
        mapped_objects::locked(|counts| search(counts, &mut SEARCH.hold()));
    }
}

#[cold]
fn report_nothing() {
    static STATED: AtomicBool = AtomicBool::new(false);
    if !STATED.swap(true, Relaxed) {
        say!(
            "ggml's legacy pool is not replaced yet: the program has not loaded it, or its symbols are \
            stripped"
        );
    }
}

fn search(counts: LoadCounts, search: &mut ClassSearch) {
    if search.seen == counts {
        return;
    }
    search.seen = counts;
    let found = locate::search(&mut search.searched);
    takeover::keep(&found.vtables);
    if found.vtables.is_empty() {
        report_nothing();
    }
    for vtable in &found.vtables {
        match takeover::take(vtable, &found.methods, replacements::of) {
            Ok(()) => {}
            Err(TakeoverError::UnknownShape) => {
                say!("ggml's legacy pool is not replaced, because its layout is unknown")
            }
            Err(TakeoverError::NotWritable) => {
                say!("ggml's legacy pool is not replaced, because its vtable cannot be written")
            }
            Err(TakeoverError::TooMany) => {
                say!("the pool of this copy of ggml is not replaced: too many copies are loaded")
            }
        }
    }
}

/// Gives the card `user` access to the pools on `owner`.
pub(crate) fn grant(user: DeviceOrdinal, owner: DeviceOrdinal) {
    pools::each(|pool| pool.grant(user, owner));
}

/// Takes back a block of a served pool that the program passed to the driver's free. False for any other
/// address.
pub(crate) fn release(pointer: DevicePointer) -> bool {
    pools::release(pointer)
}
