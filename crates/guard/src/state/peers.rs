//! Records which cards the program lets access each other's memory (peer access).
//!
//! Memory that guard maps does not get this access by itself. So guard stores the enabled pairs of cards and
//! grants access to its ranges.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use plimsoll_wire::page::CARDS;

use crate::driver::DeviceOrdinal;

/// For each card, a bit for each card that may use its memory.
static USERS: [AtomicU32; CARDS] = [const { AtomicU32::new(0) }; CARDS];

fn users(owner: DeviceOrdinal) -> Option<&'static AtomicU32> {
    USERS.get(usize::try_from(owner).ok()?)
}

/// The cards that may use the memory of `owner`, other than itself.
pub(crate) fn of(owner: DeviceOrdinal) -> impl Iterator<Item = DeviceOrdinal> {
    let users = users(owner).map_or(0, |users| users.load(Relaxed));
    (0..).take(CARDS).filter(move |user| users & 1 << user != 0)
}

/// Remembers that `user` may use the memory of `owner`; false for a pair that guard does not follow.
pub(crate) fn enable(user: DeviceOrdinal, owner: DeviceOrdinal) -> bool {
    let (Some(users), Ok(user_index)) = (users(owner), usize::try_from(user)) else {
        return false;
    };
    if user_index >= CARDS || user == owner {
        return false;
    }
    users.fetch_or(1 << user_index, Relaxed);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_remembered_for_the_owner_alone() {
        assert!(enable(3, 1) && enable(0, 1));
        assert!(!enable(1, 1) && !enable(99, 1) && !enable(0, 99));
        assert_eq!(of(1).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(of(3).count(), 0);
        assert_eq!(of(-1).count(), 0);
    }
}
