//! The other processes of the same run on a card, in words: who else has what a refused request lacked.

use core::fmt;

use crate::account::{CardIndex, tree};
use crate::text::Size;

/// So many are named, those that hold most.
const NAMED: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kin {
    /// Process and bytes, the largest first.
    named: [(u32, u64); NAMED],
    /// The others, and what they hold together.
    rest: (usize, u64),
}

impl Kin {
    pub(super) fn on(card: CardIndex) -> Self {
        Self::of(tree::others(card))
    }

    fn of(others: impl Iterator<Item = (u32, u64)>) -> Self {
        let mut kin = Self::default();
        for mut next in others.filter(|(_, held)| *held > 0) {
            for place in &mut kin.named {
                if next.1 > place.1 {
                    core::mem::swap(place, &mut next);
                }
            }
            if next.1 > 0 {
                kin.rest = (kin.rest.0 + 1, kin.rest.1.saturating_add(next.1));
            }
        }
        kin
    }
}

/// `; process 123 of this run holds 1945 MiB, process 124 12 MiB, 3 more 30 MiB`, or nothing.
impl fmt::Display for Kin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "; ";
        for (process, held) in self.named.iter().filter(|(_, held)| *held > 0) {
            let verb = if before == "; " { " of this run holds" } else { "" };
            write!(f, "{before}process {process}{verb} {}", Size(*held))?;
            before = ", ";
        }
        match self.rest {
            (0, _) => Ok(()),
            (count, held) => write!(f, "{before}{count} more {}", Size(held)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_most_is_named_and_the_others_are_added_up() {
        let mib = |process: u32, held: u64| (process, held << 20);
        assert_eq!(Kin::of([].into_iter()).to_string(), "");
        assert_eq!(Kin::of([mib(7, 0)].into_iter()).to_string(), "");
        let two = [mib(7, 12), mib(123, 1945), mib(8, 0)];
        assert_eq!(
            Kin::of(two.into_iter()).to_string(),
            "; process 123 of this run holds 1945 MiB, process 7 12 MiB"
        );
        let many = (1..=7).map(|process| mib(process, u64::from(process)));
        assert_eq!(
            Kin::of(many).to_string(),
            "; process 7 of this run holds 7 MiB, process 6 6 MiB, process 5 5 MiB, process 4 4 MiB, 3 more 6 MiB"
        );
    }
}
