//! Which cards may use which card's memory.
//!
//! After `cuCtxEnablePeerAccess` a program may use all of the peer's `cuMemAlloc` memory, what is still to be allocated too.
//! Mapped memory does not follow suit by itself, so guard remembers who became whose peer and gives access to its own ranges, the
//! old ones and the new. Access is never taken back: a program that disables it must not count on a fault.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use plimsoll_wire::page::CARDS;

use super::{ranges, vmm};
use crate::driver::Device;
use crate::ggml;

/// For each card, a bit for each card that may use its memory.
static USERS: [AtomicU32; CARDS] = [const { AtomicU32::new(0) }; CARDS];

fn users(owner: Device) -> Option<&'static AtomicU32> {
    USERS.get(usize::try_from(owner).ok()?)
}

/// The cards that may use the memory of `owner`, other than itself.
pub(crate) fn of(owner: Device) -> impl Iterator<Item = Device> {
    let users = users(owner).map_or(0, |users| users.load(Relaxed));
    (0..).take(CARDS).filter(move |user| users & 1 << user != 0)
}

/// `user` became a peer of `owner`.
pub(crate) fn enable(user: Device, owner: Device) {
    let (Some(users), Ok(user_index)) = (users(owner), usize::try_from(user)) else {
        return;
    };
    if user_index >= CARDS || user == owner {
        return;
    }
    users.fetch_or(1 << user_index, Relaxed);
    ggml::grant(user, owner);
    let mappings =
        ranges::collect(|range| (range.device == owner).then(|| (range.base, range.pieces.clone())));
    for (base, pieces) in mappings {
        let mut at = base;
        for piece in pieces {
            let _ = vmm::grant(at, piece, user);
            at += piece;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_remembered_for_the_owner_alone() {
        enable(3, 1);
        enable(0, 1);
        enable(1, 1);
        enable(99, 1);
        enable(0, 99);
        assert_eq!(of(1).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(of(3).count(), 0);
        assert_eq!(of(-1).count(), 0);
    }
}
