//! Names the other processes of the same command on a card, in the message about a refused allocation.
//!
//! These processes hold the memory that the allocation lacked.

use core::fmt;

use plimsoll_wire::size::ByteSize;

/// Processes that are named: those that hold most.
const NAMED: usize = 4;

/// Process numbers and their bytes, largest first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Siblings {
    /// Process and bytes, the largest first.
    named: [(u32, u64); NAMED],
    /// Number of the others, and their bytes together.
    rest: (usize, u64),
}

impl Siblings {
    pub(crate) fn of(others: impl Iterator<Item = (u32, u64)>) -> Self {
        let mut siblings = Self::default();
        for mut next in others.filter(|(_, occupied)| *occupied > 0) {
            for place in &mut siblings.named {
                // Insertion into a sorted list: `next` becomes the one that it displaces.
                if next.1 > place.1 {
                    core::mem::swap(place, &mut next);
                }
            }
            if next.1 > 0 {
                siblings.rest = (siblings.rest.0 + 1, siblings.rest.1.saturating_add(next.1));
            }
        }
        siblings
    }
}

/// `; process 123 of this run holds 1945 MiB, process 124 holds 12 MiB, 3 more hold 30 MiB`, or nothing.
impl fmt::Display for Siblings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "; ";
        for (process, occupied) in self.named.iter().filter(|(_, occupied)| *occupied > 0) {
            let of = if before == "; " { " of this run" } else { "" };
            write!(f, "{before}process {process}{of} holds {}", ByteSize(*occupied))?;
            before = ", ";
        }
        match self.rest {
            (0, _) => Ok(()),
            (count, occupied) => write!(f, "{before}{count} more hold {}", ByteSize(occupied)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_named_and_the_others_are_added_up() {
        let mib = |process: u32, occupied: u64| (process, occupied << 20);
        assert_eq!(Siblings::of([].into_iter()).to_string(), "");
        assert_eq!(Siblings::of([mib(7, 0)].into_iter()).to_string(), "");
        let two = [mib(7, 12), mib(123, 1945), mib(8, 0)];
        assert_eq!(
            Siblings::of(two.into_iter()).to_string(),
            "; process 123 of this run holds 1945 MiB, process 7 holds 12 MiB"
        );
        let many = (1..=7).map(|process| mib(process, u64::from(process)));
        assert_eq!(
            Siblings::of(many).to_string(),
            "; process 7 of this run holds 7 MiB, process 6 holds 6 MiB, process 5 holds 5 MiB, process 4 \
                holds 4 MiB, 3 more hold 6 MiB"
        );
    }
}
