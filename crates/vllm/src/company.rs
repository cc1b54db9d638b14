//! Plans two engines on one card: the order of their starts, and the share of the card
//! (`--gpu-memory-utilization`) that each may have.
//!
//! vLLM's utilisation is of the whole card, and it refuses to start where less is free
//! (`vllm/v1/worker/utils.py: request_memory @ 0.15`). It takes memory that others release during its profile
//! for its own, and stops. So one engine starts after the other is ready.

use plimsoll_base::Bytes;
use serde::Serialize;

use crate::plan::{Utilisation, VllmPlan};

/// Memory of a process that vLLM's utilisation does not count: the context of CUDA and its kernels.
pub const CONTEXT: Bytes = Bytes::mib(550);

/// An engine beside another one on the same card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Neighbour<'a> {
    Vllm {
        name: &'a str,
        plan: &'a VllmPlan,
    },
    /// An engine whose memory on this card is fixed by its flags, such as llama.cpp.
    Fixed {
        name: &'a str,
        bytes: Bytes,
    },
}

/// One start, in its turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Start {
    pub name: String,
    /// Memory of the card that this engine takes.
    pub takes: Bytes,
    /// Smallest and largest `--gpu-memory-utilization`; `None` for an engine that has no such flag.
    pub utilisation: Option<(Utilisation, Utilisation)>,
    /// Card memory that is free before this start.
    pub free: Bytes,
}

/// Both engines on the card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Together {
    pub starts: Vec<Start>,
    /// What is left of the free memory after all starts.
    pub left: Bytes,
    /// True if all start, each with a utilisation from its range.
    pub fits: bool,
}

/// Orders the starts: first those of fixed memory, then vLLM by the least that each needs, the largest last,
/// since the last one may take all that is left.
pub fn together(neighbours: &[Neighbour<'_>], total: Bytes, free: Bytes) -> Together {
    let mut order: Vec<&Neighbour<'_>> = neighbours.iter().collect();
    order.sort_by_key(|neighbour| match neighbour {
        Neighbour::Fixed { bytes, .. } => (false, *bytes),
        Neighbour::Vllm { plan, .. } => (true, least(plan)),
    });
    let needs: Vec<Bytes> = order.iter().map(|neighbour| need(neighbour, total)).collect();
    let (mut starts, mut left, mut fits) = (Vec::with_capacity(order.len()), free, true);
    for (index, neighbour) in order.iter().enumerate() {
        let later: Bytes = needs.iter().skip(index + 1).copied().sum();
        let room = left.saturating_sub(later);
        let others = u64::try_from(order.len() - index - 1).unwrap_or_default();
        let start = start(neighbour, total, left, room, others);
        fits &= start.is_some();
        let start = start.unwrap_or_else(|| Start {
            name: name(neighbour).to_owned(),
            takes: need(neighbour, total),
            utilisation: None,
            free: left,
        });
        left = left.saturating_sub(start.takes);
        starts.push(start);
    }
    Together { starts, left, fits }
}

fn name<'a>(neighbour: &Neighbour<'a>) -> &'a str {
    match neighbour {
        Neighbour::Vllm { name, .. } | Neighbour::Fixed { name, .. } => name,
    }
}

/// The least that a vLLM needs within its utilisation: all terms at their high end, and one sequence.
fn least(plan: &VllmPlan) -> Bytes {
    plan.terms.iter().map(|term| term.bytes.high).sum::<Bytes>() + plan.needed
}

/// The same in whole hundredths of the card, with what its utilisation does not count.
fn need(neighbour: &Neighbour<'_>, total: Bytes) -> Bytes {
    match neighbour {
        Neighbour::Fixed { bytes, .. } => *bytes,
        Neighbour::Vllm { plan, .. } => {
            let least = least(plan);
            Utilisation::for_at_least(least, total).map_or(least, |share| share.of(total)) + CONTEXT
        }
    }
}

/// The start of one engine with `room` for it, where `left` is free and `others` start later; `None` if it
/// does not fit.
fn start(neighbour: &Neighbour<'_>, total: Bytes, left: Bytes, room: Bytes, others: u64) -> Option<Start> {
    match neighbour {
        Neighbour::Fixed { name, bytes } => (*bytes <= room).then(|| Start {
            name: (*name).to_owned(),
            takes: *bytes,
            utilisation: None,
            free: left,
        }),
        Neighbour::Vllm { name, plan } => {
            let (from, to) = Utilisation::between(least(plan), room.saturating_sub(CONTEXT), total)?;
            // As asked for, where that is within the range; else an equal part of what is to spare.
            let is_possible = (from..=to).contains(&plan.utilisation);
            let taken = if is_possible { plan.utilisation } else { from.towards(to, others + 1) };
            Some(Start {
                name: (*name).to_owned(),
                takes: taken.of(total) + CONTEXT,
                utilisation: Some((from, to)),
                free: left,
            })
        }
    }
}
