//! ggml's legacy pool (`ggml_cuda_pool_leg`), taken over through its vtable and served by our own policy.
//!
//! DECISION: the pool's objects are never looked into; `this` is a key and nothing more. Each object gets a policy of its own
//! ([`plimsoll_pool::Ours`]) over memory of the card's ([`backing`]), so that blocks are reused in the order of one stream
//! only, as ggml's own pool does. What we do not know goes to ggml's own methods, both ways: a block of theirs that reaches our
//! `free`, an allocation that we cannot serve, a class that is not as we think.
//!
//! Only a request for it (`pool=ours`, `pool=managed`) has any of this happen. The class is looked for when the program
//! allocates device memory and objects were loaded since the last look; nothing is found where it is hidden and stripped,
//! and that is said once.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use plimsoll_wire::options::Pool;

use crate::account::CardIndex;
use crate::arm;
use crate::driver::{Device, DevicePointer};
use crate::lock::Lock;
use crate::say::say;

mod backing;
mod entry;
mod fence;
mod file;
mod find;
mod loaded;
mod managed;
mod pace;
pub(crate) mod pools;
mod streams;
mod symbols;
mod takeover;

pub(crate) use streams::{ending as context_ending, gone as stream_gone, made as stream_made};

use find::Barren;
use loaded::Changes;
use takeover::Left;

#[derive(Debug)]
struct Search {
    seen: Changes,
    barren: Barren,
}

static SEARCH: Lock<Search> = Lock::new(Search {
    seen: Changes {
        loaded: 0,
        unloaded: 0,
    },
    barren: Barren::new(),
});

/// Whether guard was asked to serve the pool itself.
pub(crate) fn wanted() -> bool {
    arm::options().pool == Pool::Ours
}

/// Whether what this thread allocates now is for ggml's own pool and is to be managed memory.
pub(crate) fn managed() -> bool {
    arm::options().pool == Pool::Managed && managed::inside()
}

/// Looks for the class if that was asked for and objects have come or gone since the last time.
pub(crate) fn look() {
    if arm::options().pool != Pool::Leave {
        loaded::locked(|changes| search(changes, &mut SEARCH.hold()));
    }
}

#[cold]
fn nothing() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        say!(
            "no ggml legacy pool is loaded so far, or its symbols are stripped; what there is stays as it is"
        );
    }
}

fn search(changes: Changes, search: &mut Search) {
    if search.seen == changes {
        return;
    }
    search.seen = changes;
    let found = find::search(&mut search.barren);
    takeover::keep(&found.vtables);
    if found.vtables.is_empty() {
        nothing();
    }
    for vtable in &found.vtables {
        match takeover::take(vtable, &found.methods) {
            Ok(()) => {}
            Err(Left::Shape) => {
                say!("ggml's legacy pool has another shape than guard knows; it stays as it is")
            }
            Err(Left::Sealed) => {
                say!("the vtable of ggml's legacy pool cannot be written to; it stays as it is")
            }
            Err(Left::Crowd) => say!("too many copies of ggml are loaded; this one's pool stays as it is"),
        }
    }
}

/// Gives back what the pools of this card hold idle, and returns how many bytes that was. Pools that are in use at this
/// moment keep what they have.
pub(crate) fn trim(card: CardIndex) -> u64 {
    pools::trim(card)
}

/// The card `user` may use the memory of `owner` from now on.
pub(crate) fn grant(user: Device, owner: Device) {
    pools::each(|pool| pool.grant(user, owner));
}

/// Takes back a block of ours that was given to the driver: it went through a pool that we serve and came out of one
/// that we do not. False if it is none.
pub(crate) fn release(pointer: DevicePointer) -> bool {
    pools::release(pointer)
}
