//! Remedies for each cause and sub-cause, the mildest first.
//!
//! Remedies follow from the cause alone. Concrete values, such as a context that fits, come from a memory
//! plan made by the caller.

use plimsoll_base::{Advice, Hint};

use super::cause::{Cause, SubCause};
use super::facts::Facts;
use super::pattern::Pattern;

/// The code of a cause or sub-cause and a remedy in each row, the mildest first.
const REMEDIES: &str = include_str!("remedies.tsv");

fn of_code(code: &str) -> Vec<Hint> {
    let rows = REMEDIES.lines().filter_map(|row| row.split_once('\t'));
    rows.filter(|(of, _)| *of == code).map(|(_, text)| hint(text)).collect()
}

pub(super) fn hints(cause: Cause, sub_cause: Option<SubCause>, facts: &Facts) -> Vec<Hint> {
    let mut hints = sub_cause.map(|sub_cause| of_code(sub_cause.code())).unwrap_or_default();
    // Sub-causes without a row of their own are served by their cause.
    if hints.is_empty() {
        hints = of_code(cause.code());
    }
    match cause {
        // The typed hint comes first: `plan` can compute it for the model at hand.
        Cause::KvCacheTooLarge => hints.insert(0, Hint::new(Advice::QuantiseCache("q8_0"))),
        Cause::ForeignProcess => {
            if let Some(holder) = facts.holders.iter().max_by_key(|holder| holder.used) {
                hints.insert(
                    0,
                    hint(&format!(
                        "process {} holds {}: stop it or move it to another card",
                        holder.name, holder.used
                    )),
                );
            }
        }
        // The encoder of images allocates on the card with the first image
        // (`clip.cpp:clip_image_batch_encode`).
        Cause::PoolGrowth if facts.says(Pattern::SeesImage) => {
            hints.insert(
                0,
                hint("leave room for the image encoder, or keep it on the host (--no-mmproj-offload)"),
            );
        }
        _ => {}
    }
    hints
}

fn hint(text: &str) -> Hint {
    Hint::new(Advice::Other(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_of_a_known_code_and_every_cause_has_a_remedy() {
        let causes: Vec<&str> = Cause::ALL.iter().map(|cause| cause.code()).collect();
        let known = |code: &str| causes.contains(&code) || SubCause::ALL.iter().any(|sub| sub.code() == code);
        for row in REMEDIES.lines() {
            let (code, text) = row.split_once('\t').unwrap();
            assert!(known(code) && !text.contains('\t') && text.len() > 10, "{row}");
        }
        for cause in causes {
            assert!(!of_code(cause).is_empty(), "{cause}");
        }
    }
}
