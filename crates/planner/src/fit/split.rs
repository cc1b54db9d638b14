//! Searches the best split of a model's layers over the cards.
//!
//! Layers move from the tightest card to the roomiest, until the least free memory no longer grows.

use plimsoll_base::Order;

use super::answer::{Dimension, FitAnswer, FitQuestion, inapplicable, nothing, spare};
use super::change::{RequestChange, saturated};
use super::price::{CostModel, PlanPrice};
use crate::layout::{computing, wanted_layers};
use crate::named::interface;

/// Moves of layers before a division is final.
const MOVES: usize = 48;

/// A split of the layers over cards, with its planned memory.
struct Division {
    change: RequestChange,
    /// Positions of the cards in use among the request's.
    positions: Vec<usize>,
    layers: Vec<u32>,
    priced: PlanPrice,
    /// Memory left over on the cards in use, in their order.
    headrooms: Vec<i64>,
}

impl Division {
    fn worst(&self) -> i64 {
        self.headrooms.iter().copied().min().unwrap_or(i64::MIN)
    }
}

pub(super) fn answer<P: CostModel>(question: &FitQuestion<'_, P>) -> FitAnswer {
    let request = question.request;
    let cuda = computing(request.cards);
    if cuda.len() < 2 {
        return inapplicable(Dimension::Split, "there is only one card, so no split is needed");
    }
    // Fewer cards first: a card that is not used stays free for another model.
    let divisions = (1..=cuda.len()).filter_map(|count| best_on(question, &cuda, count));
    let mut tightest: Option<Division> = None;
    for division in divisions {
        if division.priced.fits(request.cards) {
            return fitting(question, &division);
        }
        if tightest.as_ref().is_none_or(|best| division.worst() > best.worst()) {
            tightest = Some(division);
        }
    }
    let text = match tightest {
        Some(division) => format!(
            "no split across the cards fits; the closest, `{}`, lacks {} on the card with the largest \
                shortfall",
            division.change.line(),
            plimsoll_base::Bytes::new(division.worst().unsigned_abs()),
        ),
        None => "the engine refuses every split across the cards".to_owned(),
    };
    nothing(Dimension::Split, &text)
}

fn fitting<P: CostModel>(question: &FitQuestion<'_, P>, division: &Division) -> FitAnswer {
    let flags = division.change.line();
    let cards = question.lines(&division.priced);
    let used: Vec<_> = division.positions.iter().map(|&card| cards[card].clone()).collect();
    let many = match division.positions.len() {
        1 => "one card is enough".to_owned(),
        count => format!("{count} cards are needed"),
    };
    FitAnswer {
        requested: question.request.params.devices.join(",").into(),
        best: Some(flags.as_str().into()),
        change: Some(division.change.clone()),
        text: format!("{many}: `{flags}` fits{}", spare(&used)),
        cards,
        ..nothing(Dimension::Split, "")
    }
}

/// The best division over `count` cards.
fn best_on<P: CostModel>(question: &FitQuestion<'_, P>, cuda: &[usize], count: usize) -> Option<Division> {
    let cards = question.request.cards;
    let mut numbers: Vec<usize> = (0..cuda.len()).collect();
    numbers.order_by_key(|&number| (std::cmp::Reverse(cards[cuda[number]].free), number));
    numbers.truncate(count);
    numbers.sort_unstable();
    // A Vulkan engine knows no `CUDA0`.
    let interface = interface(question.request);
    let devices: Vec<String> = numbers.iter().map(|number| format!("{interface}{number}")).collect();
    let positions: Vec<usize> = numbers.iter().map(|&number| cuda[number]).collect();
    let price = |layers: Vec<u32>| {
        let change = RequestChange::Cards { devices: devices.clone(), layers: layers.clone() };
        let priced = question.priced(std::slice::from_ref(&change))?;
        let room = |&card: &usize| priced.cards[card].headroom(cards[card].free);
        let headrooms = positions.iter().map(room).collect();
        Some(Division { change, positions: positions.clone(), layers, priced, headrooms })
    };
    // Layers on cards, including the output.
    let layers = question.request.model.hyper.layers;
    let active = wanted_layers(question.request.params, layers).min(layers.saturating_add(1));
    // Whole MiB, as the engine's own split sees free memory.
    let free: Vec<u64> = positions.iter().map(|&card| cards[card].free.get() >> 20).collect();
    let mut best = price(by_share(active, &free)?)?;
    // Long moves first; once one overshoots, single layers.
    let mut reach = true;
    for _ in 0..MOVES {
        let next = moved(&best, reach).and_then(&price);
        match next.filter(|next| next.worst() > best.worst()) {
            Some(next) => best = next,
            None if reach => reach = false,
            None => break,
        }
    }
    Some(best)
}

/// Whole layers in proportion to `weights`, at least one each.
fn by_share(layers: u32, weights: &[u64]) -> Option<Vec<u32>> {
    let count = u32::try_from(weights.len()).ok()?;
    // A card without a layer would not be one of these cards.
    let rest = u64::from(layers.checked_sub(count)?);
    let sum: u64 = weights.iter().sum::<u64>().max(1);
    // Cumulative shares are rounded, so that rounding errors do not add up.
    let (mut given, mut seen) = (0, 0);
    let mut shares = Vec::with_capacity(weights.len());
    for weight in weights {
        seen += weight;
        let until = u64::try_from(u128::from(rest) * u128::from(seen) / u128::from(sum)).ok()?;
        shares.push(1 + u32::try_from(until - given).ok()?);
        given = until;
    }
    *shares.last_mut()? += u32::try_from(rest - given).ok()?;
    Some(shares)
}

/// Layers moved from the tightest card to the roomiest: as many as level the two with `reach`, else one.
fn moved(division: &Division, reach: bool) -> Option<Vec<u32>> {
    let rooms = division.headrooms.iter().enumerate();
    let (tight, &least) = rooms.clone().min_by_key(|(_, room)| **room)?;
    let (roomy, &most) = rooms.max_by_key(|(_, room)| **room)?;
    let here = division.layers[tight];
    if tight == roomy || here < 2 {
        return None;
    }
    let terms = division.priced.cards.get(division.positions[tight])?;
    // Only weights and cache move with a layer.
    let occupied = terms.weights.known() + terms.kv.known();
    let layer = (occupied.get() / u64::from(here)).max(1);
    let level = most.saturating_sub(least).unsigned_abs() / 2 / layer;
    let wanted = if reach { saturated(level).max(1) } else { 1 };
    let mut layers = division.layers.clone();
    let step = wanted.min(here - 1);
    layers[tight] -= step;
    layers[roomy] += step;
    Some(layers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_divided_whole_and_none_is_lost() {
        assert_eq!(by_share(33, &[24, 24]), Some(vec![16, 17]));
        assert_eq!(by_share(33, &[30, 10]), Some(vec![24, 9]));
        assert_eq!(by_share(3, &[1, 1, 1]), Some(vec![1, 1, 1]));
        assert_eq!(by_share(2, &[1, 1, 1]), None);
        assert_eq!(by_share(62, &[0, 0]), Some(vec![1, 61]));
    }
}
