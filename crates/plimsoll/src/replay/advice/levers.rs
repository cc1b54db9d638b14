//! Changes to an engine's flags that may shrink its memory pool, and how much each saves.

use std::cmp::Reverse;

use plimsoll_base::{Advice, Bytes, Hint};
use plimsoll_pool::generate::{DemandRules, GeneratedRun};

use super::{AdviceQuestion, CacheType, Cost, Pool};

/// Step of advised contexts, in tokens.
const STEP: u64 = 1024;

/// Hints that save memory. Those that meet the budget come first, a shorter context last among them, then by
/// saving.
pub(super) fn hints(question: &AdviceQuestion, cost: Cost) -> Vec<Hint> {
    let mut worth: Vec<(bool, Bytes, Advice)> = levers(question)
        .into_iter()
        .filter_map(|lever| mildest(question, cost, lever))
        .chain(shorter(question, cost))
        .collect();
    worth.sort_by_key(|(fits, saves, advice)| {
        // A shorter context takes a capability away; every other change only costs speed or precision.
        let shorter = matches!(advice, Advice::ShrinkContext(_));
        (!fits, shorter, Reverse(*saves))
    });
    worth.into_iter().map(|(_, saves, advice)| Hint::saving(advice, saves)).collect()
}

/// Settings of one flag, the least intrusive first.
type Lever = Vec<(Advice, AdviceQuestion)>;

fn levers(question: &AdviceQuestion) -> Vec<Lever> {
    vec![
        ours(question),
        newer(question),
        unquantised(question),
        micro_batches(question),
        passes(question),
        flash_attention(question),
    ]
}

fn ours(question: &AdviceQuestion) -> Lever {
    let changed = AdviceQuestion { pool: Pool::Plimsoll, ..*question };
    vec![(
        Advice::Other(
            "run the engine under `plimsoll run`, whose pool releases blocks that have become too \
            small"
                .to_owned(),
        ),
        changed,
    )]
}

fn newer(question: &AdviceQuestion) -> Lever {
    if question.run.engine != DemandRules::Copying {
        return Vec::new();
    }
    let changed = with(question, |run| run.engine = DemandRules::Reserving);
    vec![(
        Advice::Other(
            "use llama.cpp b9400 or later, which reserves memory for the f16 copies of the \
        cache only once"
                .to_owned(),
        ),
        changed,
    )]
}

fn unquantised(question: &AdviceQuestion) -> Lever {
    if question.kv == CacheType::F16 {
        return Vec::new();
    }
    // An f16 cache needs no copies: the pool loses them, and the cache itself grows.
    let changed = with(question, |run| run.cache = CacheType::F16.cache());
    let kv = CacheType::F16;
    vec![(Advice::QuantiseCache(kv.name), AdviceQuestion { kv, ..changed })]
}

fn micro_batches(question: &AdviceQuestion) -> Lever {
    // Powers of two only: each candidate is generated and replayed, which takes time for a deep context.
    let smaller = [2048, 1024, 512, 256, 128].into_iter().filter(|&tokens| tokens < question.run.micro_batch);
    smaller
        .map(|tokens| {
            let changed = with(question, |run| run.micro_batch = tokens);
            (Advice::ShrinkMicroBatch(tokens), changed)
        })
        .collect()
}

fn passes(question: &AdviceQuestion) -> Lever {
    if question.run.engine != DemandRules::Ik || question.shape.latent.is_none() {
        return Vec::new();
    }
    let present = question.run.attention_pass.unwrap_or(u64::MAX);
    let smaller = [2048, 1024, 512, 256].into_iter().filter(|&mib| mib < present);
    smaller
        .map(|mib| {
            let changed = with(question, |run| run.attention_pass = Some(mib));
            let said = format!("decompress keys and values in parts of {mib} MiB (-amb {mib})");
            (Advice::Other(said), changed)
        })
        .collect()
}

fn flash_attention(question: &AdviceQuestion) -> Lever {
    if question.run.flash_attention {
        return Vec::new();
    }
    vec![(Advice::FlashAttention, with(question, |run| run.flash_attention = true))]
}

fn with(question: &AdviceQuestion, change: impl FnOnce(&mut GeneratedRun)) -> AdviceQuestion {
    let mut run = question.run;
    change(&mut run);
    AdviceQuestion { run, ..*question }
}

/// The first setting that meets the budget, else the one with the largest saving; `None` if none saves.
fn mildest(question: &AdviceQuestion, before: Cost, lever: Lever) -> Option<(bool, Bytes, Advice)> {
    let mut best: Option<(bool, Bytes, Advice)> = None;
    for (advice, changed) in lever {
        let Some((fits, saves)) = worth(question, before, &changed) else {
            continue;
        };
        let better = best.as_ref().is_none_or(|(_, most, _)| saves > *most);
        if fits || better {
            best = Some((fits, saves, advice));
        }
        if fits {
            break;
        }
    }
    best
}

/// Returns whether a change meets the budget, and its total saving; `None` if it saves nothing.
fn worth(question: &AdviceQuestion, before: Cost, changed: &AdviceQuestion) -> Option<(bool, Bytes)> {
    let after = changed.cost().ok()??;
    let saves = (before.pool + before.elsewhere).checked_sub(after.pool + after.elsewhere)?;
    // The budget is for the pool; memory elsewhere may be exchanged for it one to one.
    let room = question.budget.map(|budget| budget + before.elsewhere);
    let fits = room.is_some_and(|room| after.pool + after.elsewhere <= room);
    // The driver maps granules of 2 MiB, so a smaller saving frees nothing on the card.
    (saves >= Bytes::mib(2) && after.pool < before.pool).then_some((fits, saves))
}

/// The largest context that meets the budget, if there is one.
fn shorter(question: &AdviceQuestion, before: Cost) -> Option<(bool, Bytes, Advice)> {
    let budget = question.budget.filter(|&budget| budget < before.pool)?;
    let at = |steps: u64| {
        let changed = with(question, |run| run.context = steps * STEP);
        let cost = changed.cost().ok()??;
        (cost.pool <= budget).then_some((changed, cost))
    };
    let (mut fits, mut too_long) = (0, question.run.context.div_ceil(STEP));
    let mut found = None;
    // The pool never shrinks with a deeper context, so a binary search finds the border.
    while too_long - fits > 1 {
        let middle = fits + (too_long - fits) / 2;
        match at(middle) {
            Some(enough) => (fits, found) = (middle, Some(enough)),
            None => too_long = middle,
        }
    }
    let (changed, after) = found?;
    // Of the pool alone: the cache also shrinks, but a hint must not save more than the pool has.
    let saves = before.pool.saturating_sub(after.pool);
    Some((true, saves, Advice::ShrinkContext(changed.run.context)))
}
