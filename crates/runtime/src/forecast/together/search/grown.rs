//! Grows a first group: the pinned models, then each further one that finds room, the smallest first.

use plimsoll_base::{Bytes, Order};

use super::{GroupSearch, GroupWorth};

/// Steps for one group. A group that needs more to find its places is left to the search.
const STEPS_FOR_A_GROUP: usize = 400;

impl GroupSearch<'_> {
    /// Grows a group by the models' memory on cards, and one by their memory beside these.
    ///
    /// DECISION: a group of many models is one of small ones. A search that takes the largest first meets it
    /// only after all groups with a large model, of which there are too many.
    pub(super) fn grow(&mut self) {
        self.grow_by(|search, model| search.sizes[model].on_cards);
        if self.holds.contains(&false) {
            self.grow_by(|search, model| search.sizes[model].beside);
        }
    }

    fn grow_by(&mut self, size: impl Fn(&Self, usize) -> Bytes) {
        let mut rest = self.order.clone();
        rest.order_by_key(|model| (!self.models[*model].pinned, size(self, *model), *model));
        let mut is_member = vec![false; self.models.len()];
        for model in rest {
            is_member[model] = true;
            let members: Vec<usize> = self.order.iter().copied().filter(|model| is_member[*model]).collect();
            is_member[model] =
                self.place_all(&members, GroupWorth::default(), &mut STEPS_FOR_A_GROUP.clone());
        }
    }

    /// Places all of these models, as the search does, and keeps the group. False if that failed.
    fn place_all(&mut self, members: &[usize], worth: GroupWorth, steps: &mut usize) -> bool {
        let [model, rest @ ..] = members else {
            self.keep(worth);
            return true;
        };
        for (set, placement) in self.places(*model) {
            if *steps == 0 || self.is_over() {
                return false;
            }
            *steps -= 1;
            let (before, more) = self.put(*model, &set, placement, worth);
            let is_placed = self.place_all(rest, more, steps);
            self.take_back(before);
            if is_placed {
                return true;
            }
        }
        false
    }
}
