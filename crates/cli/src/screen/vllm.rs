//! Prints the memory of vLLM on a card as a table, whether vLLM starts, and what then fits.

use plimsoll_report::{aligned, wrapped};
use plimsoll_vllm::{Range, Start, Together, VllmPlan};

/// Columns of the sentences.
const WIDTH: usize = 80;

/// Plans of one or more vLLMs, with all engines on the card where there are several.
pub(crate) struct VllmReport<'a> {
    /// Each with its model.
    pub(crate) plans: Vec<(&'a str, &'a VllmPlan)>,
    pub(crate) together: Option<&'a Together>,
}

impl VllmReport<'_> {
    pub(crate) fn in_words(&self) -> String {
        let mut text = String::new();
        for (name, plan) in &self.plans {
            text += &format!("{}\n{}\n", wrapped(&head(name, plan), WIDTH, 2).join("\n"), table(plan));
            text += &lines(answers(plan));
        }
        if let Some(together) = self.together {
            text += &lines(in_turn(together));
        }
        text
    }
}

fn lines(sentences: Vec<String>) -> String {
    let lines = sentences.iter().flat_map(|sentence| wrapped(sentence, WIDTH, 2));
    lines.map(|line| line + "\n").collect::<String>() + "\n"
}

fn head(name: &str, plan: &VllmPlan) -> String {
    let cards = if plan.cards > 1 {
        format!("each of {} cards {}", plan.cards, plan.card)
    } else {
        plan.card.clone()
    };
    format!(
        "{name} on {cards}: --gpu-memory-utilization {} allows {} of {}",
        plan.utilisation, plan.allowed, plan.total
    )
}

fn table(plan: &VllmPlan) -> String {
    let row = |name: &str, bytes: Range| {
        let sizes = [bytes.likely, bytes.low, bytes.high].map(|size| size.to_string());
        std::iter::once(name.to_owned()).chain(sizes).collect::<Vec<_>>()
    };
    let mut rows = vec![["memory", "likely", "low", "high"].map(str::to_owned).to_vec()];
    rows.extend(plan.terms.iter().map(|term| row(term.name, term.bytes)));
    rows.push(row("left for the cache", plan.cache));
    aligned(&rows)
}

/// A value, with its range unless all three are the same.
fn ranged((low, likely, high): (u64, u64, u64), shown: impl Fn(u64) -> String) -> String {
    let likely = shown(likely);
    if low == high { likely } else { format!("{likely} ({} to {})", shown(low), shown(high)) }
}

fn answers(plan: &VllmPlan) -> Vec<String> {
    let answers = &plan.answers;
    let verdict = if plan.fits {
        "vLLM starts.".to_owned()
    } else if plan.allowed > plan.free {
        format!("vLLM does not start: {} are free, which is less than the utilisation asks for.", plan.free)
    } else {
        format!(
            "vLLM does not start: the cache has {}, and one sequence needs {}.",
            plan.cache.likely, plan.needed
        )
    };
    let of = |values| ranged(values, |number| number.to_string());
    let hundredths = |number: u64| format!("{}.{:02}", number / 100, number % 100);
    let start = match answers.utilisation_from {
        Some(from) if from <= answers.utilisation_to => format!(
            "--gpu-memory-utilization {from} to {} starts with this context, on the memory that is free now.",
            answers.utilisation_to
        ),
        _ => format!("No --gpu-memory-utilization is sure to start with {} tokens of context.", plan.context),
    };
    vec![
        verdict,
        format!(
            "A sequence of {} tokens takes {} of the cache: {} for a token, in blocks of {} tokens.",
            plan.context, plan.needed, plan.token_bytes, plan.block
        ),
        format!("GPU KV cache size in tokens: {}", of(answers.tokens)),
        format!(
            "Maximum concurrency for {} tokens per request: {}",
            plan.context,
            ranged(answers.concurrency, hundredths)
        ),
        format!("Longest --max-model-len that fits: {}", of(answers.longest)),
        start,
        format!("Left for a neighbour on the card: {}", answers.left),
    ]
}

/// The starts in their order.
fn in_turn(together: &Together) -> Vec<String> {
    let of = |(number, start): (usize, &Start)| {
        let share = start
            .utilisation
            .map_or_else(String::new, |(from, to)| format!(" with --gpu-memory-utilization {from} to {to}"));
        format!(
            "{}. Start {}{share}: it takes {} of {} free.",
            number + 1,
            start.name,
            start.takes,
            start.free
        )
    };
    let mut sentences: Vec<String> = together.starts.iter().enumerate().map(of).collect();
    sentences.push(if together.fits {
        format!("Start each one when the one before is ready. {} are left.", together.left)
    } else {
        "They do not fit on this card at the same time.".to_owned()
    });
    sentences
}
