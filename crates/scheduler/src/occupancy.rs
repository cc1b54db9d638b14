//! Counts the tokens in a running engine's KV cache, and computes the memory that they take.
//!
//! A request in flight counts with the maximum number of tokens that it may reach.

use plimsoll_base::{Bytes, CardId, Curve, Share, Slots};

use super::slope::ObservedGrowth;
use super::time::RequestId;

// In a shared cache, the tokens that idle slots keep are added. Memory follows the greatest depth so far,
// because a pool never shrinks.
/// Depth of one run (its tokens in the KV cache), request by request.
#[derive(Clone, Debug)]
pub(crate) struct Occupancy {
    planned: Curve,
    /// The plan's curve, corrected by observation.
    curve: Curve,
    live: Vec<(RequestId, u64)>,
    /// Tokens that idle slots keep, the deepest first.
    kept: Vec<u64>,
    reached: u64,
    /// Memory of the run on each card beyond its curve.
    beyond: Vec<Share>,
}

impl Occupancy {
    /// Creates an empty run that takes `learned` more on each card than planned.
    pub(crate) fn new(planned: Curve, learned: Bytes) -> Self {
        let cards = planned.at(0);
        let beyond = cards.into_iter().map(|share| Share::new(share.card, learned));
        Self {
            curve: planned.clone(),
            live: Vec::new(),
            kept: Vec::new(),
            reached: 0,
            beyond: beyond.collect(),
            planned,
        }
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.curve.slots
    }

    pub(crate) fn curve(&self) -> &Curve {
        &self.curve
    }

    /// Depth that the run may reach with its requests.
    pub(crate) fn admitted(&self) -> u64 {
        let live: Vec<u64> = self.live.iter().map(|(_, tokens)| *tokens).collect();
        self.reached.max(depth(self.slots(), live, &self.kept))
    }

    /// Depth that the run may reach with one more request of these tokens.
    pub(crate) fn with(&self, tokens: u64) -> u64 {
        let mut live: Vec<u64> = self.live.iter().map(|(_, tokens)| *tokens).collect();
        live.push(tokens);
        let kept = self.kept.len().min(self.room_to_keep(live.len()));
        self.reached.max(depth(self.slots(), live, &self.kept[..kept]))
    }

    /// Depth that a run just started reaches with these tokens alone.
    pub(crate) fn alone(&self, tokens: u64) -> u64 {
        tokens.min(self.slots().full)
    }

    /// True if each slot of the engine has a request.
    pub(crate) fn is_full(&self) -> bool {
        u64::try_from(self.live.len()).is_ok_and(|live| live >= self.slots().count.max(1))
    }

    pub(crate) fn enter(&mut self, id: RequestId, tokens: u64) {
        let kept = self.room_to_keep(self.live.len() + 1);
        if kept < self.kept.len() {
            // Requests still in flight may already have reached their maximum depth beside the sequence that
            // goes now, so the high-water mark is taken before it is dropped.
            self.reached = self.admitted();
            self.kept.truncate(kept);
        }
        self.live.push((id, tokens));
    }

    /// Takes the end of a request, with its tokens if it reported them.
    pub(crate) fn leave(&mut self, id: RequestId, tokens: Option<u64>) {
        let Some(index) = self.live.iter().position(|(live, _)| *live == id) else { return };
        let (_, most) = &mut self.live[index];
        *most = tokens.map_or(*most, |tokens| tokens.min(*most));
        self.reached = self.admitted();
        // The engine keeps the sequence in its slot for a later request with the same prefix.
        let (_, left) = self.live.swap_remove(index);
        if self.slots().unified && self.slots().keeps {
            let at = self.kept.partition_point(|kept| *kept >= left);
            self.kept.insert(at, left);
            let kept = self.room_to_keep(self.live.len());
            self.kept.truncate(kept);
        }
    }

    /// Takes the loss of all sequences: the engine gave its cache and its pool back, and has no request.
    pub(crate) fn forget(&mut self) {
        self.kept.clear();
        self.reached = 0;
    }

    fn room_to_keep(&self, live: usize) -> usize {
        let count = usize::try_from(self.slots().count).unwrap_or(usize::MAX);
        count.saturating_sub(live)
    }

    /// Memory of the run at this depth.
    pub(crate) fn needs(&self, depth: u64) -> Vec<Share> {
        let shares = self.curve.at(depth).into_iter().zip(&self.beyond);
        let shares = shares.map(|(share, beyond)| Share::new(share.card, share.bytes + beyond.bytes));
        shares.collect()
    }

    /// Depth that claims of `held` cover.
    pub(crate) fn covered(&self, occupied: impl Fn(&CardId) -> Bytes) -> Option<u64> {
        self.curve.within(|card| occupied(card).saturating_sub(self.beyond_on(card)))
    }

    fn beyond_on(&self, card: &CardId) -> Bytes {
        let on_card = self.beyond.iter().find(|share| share.card == *card);
        on_card.map_or(Bytes::ZERO, |share| share.bytes)
    }

    /// Records the measured memory of the run. The excess over the curve is added to the curve at every
    /// depth.
    pub(crate) fn measured(&mut self, used: &[(CardId, Bytes)]) {
        let expected = self.curve.at(self.admitted());
        for (share, beyond) in expected.iter().zip(&mut self.beyond) {
            let seen = used.iter().find(|(card, _)| *card == share.card);
            let seen = seen.map_or(Bytes::ZERO, |(_, bytes)| *bytes);
            // Only upwards: a pool that has not grown yet is measured below the curve and is no reason to
            // lower it.
            beyond.bytes = beyond.bytes.max(seen.saturating_sub(share.bytes));
        }
    }

    /// Records an observed slope. With several slots an answer reports fewer tokens than the pool had to
    /// hold, so a slope counts only if it is steeper than planned.
    pub(crate) fn learned(&mut self, growth: ObservedGrowth) {
        let ObservedGrowth { bytes_per_token, from, to } = growth;
        let seen = self.planned.seen(bytes_per_token, from, to);
        let more = |seen: &Curve| {
            let sum = |curve: &Curve| curve.at(to).iter().map(|share| share.bytes).sum::<Bytes>();
            sum(seen) >= sum(&self.planned)
        };
        if self.slots().count == 1 || more(&seen) {
            self.curve = seen;
        }
    }
}

/// Depth that the pool has to reach for these sequences.
fn depth(slots: &Slots, mut live: Vec<u64>, kept: &[u64]) -> u64 {
    let count = usize::try_from(slots.count).unwrap_or(usize::MAX);
    live.sort_unstable_by(|a, b| b.cmp(a));
    live.truncate(count);
    let working = u64::try_from(live.len()).unwrap_or(u64::MAX);
    let deep = if slots.unified {
        let all = live.iter().chain(kept.iter().take(count.saturating_sub(live.len())));
        let several = live.len() + kept.len() > 1;
        let sum = all.fold(0_u64, |sum, tokens| sum.saturating_add(*tokens));
        // Sequences of several slots interleave in one cache, whose cells are padded: `scatter` bounds the
        // gaps between them.
        if sum > 0 && several { sum.saturating_add(slots.scatter) } else { sum }
    } else {
        // Separate caches are processed in one batch, padded to the deepest of them.
        let deepest = live.first().copied().unwrap_or(0);
        deepest.saturating_mul(working)
    };
    deep.min(slots.full)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(count: u64, unified: bool) -> Occupancy {
        let slots = Slots {
            count,
            each: 1000,
            full: 1000 * if unified { 1 } else { count },
            unified,
            keeps: true,
            scatter: 0,
            answer: None,
        };
        let steps = (0..=slots.full / 10).map(|n| (n * 10, vec![Bytes::mib(100) + Bytes::kib(10) * n]));
        let curve = Curve::new(slots, vec![CardId::new("a")], steps.collect()).unwrap();
        Occupancy::new(curve, Bytes::ZERO)
    }

    fn id(n: u64) -> RequestId {
        RequestId(n)
    }

    #[test]
    fn an_engine_that_gave_its_cache_back_begins_anew() {
        let mut run = run(3, true);
        run.enter(id(1), 700);
        run.leave(id(1), None);
        assert_eq!(run.admitted(), 700);
        run.forget();
        assert_eq!((run.admitted(), run.with(100)), (0, 100));
    }

    #[test]
    fn with_one_cache_depths_add_up_with_what_idle_slots_keep() {
        let mut run = run(3, true);
        run.enter(id(1), 100);
        run.enter(id(2), 200);
        assert_eq!((run.admitted(), run.with(50)), (300, 350));
        run.leave(id(2), Some(80));
        assert_eq!(run.kept, [80]);
        assert_eq!(run.admitted(), 180, "as deep as both may have been");
        run.leave(id(1), None);
        run.enter(id(3), 500);
        assert_eq!(run.admitted(), 680, "the third slot was free");
        run.enter(id(4), 50);
        assert_eq!(run.admitted(), 680);
        assert_eq!(run.kept, [100], "the smallest is taken to go");
        assert_eq!(run.with(9000), 1000, "never deeper than the context");
    }

    #[test]
    fn a_request_alone_counts_in_the_end_with_what_it_reported() {
        let mut run = run(1, true);
        run.enter(id(1), 1000);
        run.leave(id(1), Some(120));
        assert_eq!((run.admitted(), run.with(60)), (120, 120));
        run.enter(id(2), 60);
        assert!(run.kept.is_empty());
    }

    #[test]
    fn with_a_cache_for_each_the_deepest_counts_for_every_slot_at_work() {
        let mut run = run(2, false);
        run.enter(id(1), 100);
        assert_eq!(run.with(30), 200);
        run.enter(id(2), 30);
        run.enter(id(3), 900);
        assert_eq!(run.admitted(), 1800, "the third waits for a slot");
    }

    #[test]
    fn memory_measured_beyond_the_curve_is_needed_at_every_depth() {
        let mut run = run(1, true);
        let card = CardId::new("a");
        run.measured(&[(card.clone(), Bytes::mib(103))]);
        assert_eq!(run.needs(0)[0].bytes, Bytes::mib(103));
        assert_eq!(run.covered(|_| Bytes::mib(103)), Some(0));
        assert_eq!(run.covered(|_| Bytes::mib(102)), None);
        run.measured(&[(card, Bytes::mib(50))]);
        assert_eq!(run.needs(0)[0].bytes, Bytes::mib(103));
    }

    #[test]
    fn with_several_slots_only_a_steeper_slope_is_believed() {
        let seen = |each| ObservedGrowth { bytes_per_token: Bytes::new(each), from: 0, to: 500 };
        for (count, each, kib) in [(1, 0, 0), (2, 0, 500), (1, 2048, 1000), (2, 2048, 1000)] {
            let mut run = run(count, true);
            run.learned(seen(each));
            let grown = run.needs(500)[0].bytes.saturating_sub(run.needs(0)[0].bytes);
            assert_eq!(grown, Bytes::kib(kib), "{count} slots, {each} bytes a token");
        }
    }
}
