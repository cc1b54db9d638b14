//! Chooses the remedies for a cause and a program, the mildest first.
//!
//! A remedy uses the options of the program that failed, with figures from its log if the log has them. A
//! context that certainly fits comes from a memory plan made by the caller.

mod figures;

use plimsoll_base::{Advice, Hint};

use self::figures::{QuantisedCache, figure, quantised_cache};
use super::cause::{Cause, SubCause};
use super::facts::{CardHolder, Facts};
use super::pattern::Pattern;
use super::program::LogProgram;
use super::sign::CauseSign;

/// In each row: the code of a cause or sub-cause, a program or `-` for all others, and a remedy. Of the forms
/// between `||` the first is used whose figures (`{free}`) the log has.
const REMEDIES: &str = include_str!("remedies.tsv");

struct RemedyRow {
    code: &'static str,
    program: &'static str,
    forms: &'static str,
}

fn rows() -> impl Iterator<Item = RemedyRow> {
    REMEDIES.lines().filter_map(|row| {
        let mut cells = row.splitn(3, '\t');
        Some(RemedyRow { code: cells.next()?, program: cells.next()?, forms: cells.next()? })
    })
}

/// The remedies for a code in the words of a program, else of its family, else for any program.
fn of_code(code: &str, program: Option<LogProgram>, facts: &Facts) -> Vec<Hint> {
    let family = program.and_then(LogProgram::family);
    let columns = program.into_iter().chain(family).map(Some).chain([None]);
    let hints = |column| -> Vec<Hint> {
        let own = rows().filter(|row| row.code == code && LogProgram::named(row.program) == column);
        own.filter_map(|row| filled(row.forms, facts))
            .map(|text| hint(&uncontradicted(text, facts)))
            .collect()
    };
    let mut found = columns.map(hints);
    found.find(|hints| !hints.is_empty()).unwrap_or_default()
}

/// The first form whose figures are all known, with the figures in their places.
fn filled(forms: &str, facts: &Facts) -> Option<String> {
    forms.split(" || ").find_map(|form| {
        let mut text = String::new();
        let mut rest = form;
        while let Some((before, (name, behind))) =
            rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            text += before;
            text += &figure(name, facts)?;
            rest = behind;
        }
        Some(text + rest)
    })
}

/// The advice without what the log shows to be so already: options that are given, and one slot.
fn uncontradicted(text: String, facts: &Facts) -> String {
    let holds = |kind: &str| match kind {
        "dense" => facts.model.is_dense,
        "slots" => facts.options.slots == Some(1),
        option => Pattern::named(option).is_some_and(|option| facts.says(option)),
    };
    let rows = include_str!("omissions.tsv").lines().filter_map(|row| row.split_once('\t'));
    let parts = rows.filter(|(kind, _)| holds(kind)).filter_map(|(_, row)| row.split_once('\t'));
    parts.fold(text, |text, (part, instead)| text.replacen(part, instead, 1))
}

/// The remedy for a line of a dead engine.
pub(super) fn of_sign(sign: CauseSign) -> Vec<Hint> {
    of_code(sign.code(), None, &Facts::default())
}

pub(super) fn hints(cause: Cause, sub_cause: Option<SubCause>, facts: &Facts) -> Vec<Hint> {
    // Not in `LogProgram::of`: the classifier, which asks it too, is trained without these lines.
    let program =
        if facts.says(Pattern::OllamaLine) { Some(LogProgram::Ollama) } else { LogProgram::of(facts) };
    let mut hints = sub_cause.map(|sub_cause| of_code(sub_cause.code(), program, facts)).unwrap_or_default();
    // Sub-causes without a row of their own are served by their cause.
    if hints.is_empty() {
        hints = of_code(cause.code(), program, facts);
    }
    // Swap and more memory do not enlarge a file system in memory.
    if sub_cause == Some(SubCause::HostMemory) && facts.says(Pattern::SharedMemoryFull) {
        return of_code("shared_memory", None, facts);
    }
    if let Some(share) = facts.small_share().filter(|_| cause == Cause::KvCacheTooLarge) {
        return vec![hint(&share.remedy())];
    }
    if let Some(hints) = of_part(cause, program, facts) {
        return hints;
    }
    let of_load =
        [Cause::ModelTooLarge, Cause::KvCacheTooLarge, Cause::ComputeBufferTooLarge].contains(&cause);
    if of_load && facts.says(Pattern::FitGaveUp) {
        hints.extend(of_code("fit_gave_up", program, facts));
    }
    if sub_cause == Some(SubCause::WrongBuild)
        && facts.says_any(&[Pattern::CublasCreate, Pattern::CublasInit, Pattern::CublasFailed])
    {
        hints.extend(of_code("cublas", None, facts));
    }
    match cause {
        // The typed hint comes first: `plan` can compute it for the model at hand.
        Cause::KvCacheTooLarge if program == Some(LogProgram::Llama) => {
            // llama.cpp refuses a quantised V cache without flash attention.
            if facts.says(Pattern::FlashOff) {
                hints.extend(of_code("flash_off", program, facts));
            } else {
                match quantised_cache(facts) {
                    Some(QuantisedCache::Whole) => hints.insert(0, Hint::new(Advice::QuantiseCache("q8_0"))),
                    Some(QuantisedCache::Shorter(fit)) => hints.push(hint(&format!(
                        "alternatively, store the KV cache as q8_0 with at most {fit} tokens (-ctk q8_0 -ctv q8_0 -c {fit})"
                    ))),
                    None => {}
                }
            }
        }
        Cause::ForeignProcess => {
            if let Some(CardHolder { name, used, .. }) = facts.holders.iter().max_by_key(|holder| holder.used)
            {
                let text = format!("process {name} holds {used}: stop it or move it to another card");
                hints.insert(0, hint(&text));
            }
        }
        // The encoder of images allocates on the card with the first image
        // (`clip.cpp:clip_image_batch_encode`).
        Cause::PoolGrowth if facts.says(Pattern::SeesImage) => {
            hints.splice(0..0, of_code("image_room", program, facts));
        }
        Cause::PoolGrowth if facts.says(Pattern::GraphMemory) && !facts.says(Pattern::GraphsOff) => {
            hints.splice(0..0, of_code("cuda_graphs", program, facts));
        }
        _ => {}
    }
    hints
}

/// Hints for a part of the load that has remedies of its own.
fn of_part(cause: Cause, program: Option<LogProgram>, facts: &Facts) -> Option<Vec<Hint>> {
    let is_llama = program == Some(LogProgram::Llama);
    let lacks_blocks = facts.says(Pattern::VllmNoBlocks) && program == Some(LogProgram::Vllm);
    let code = match cause {
        Cause::ModelTooLarge | Cause::ComputeBufferTooLarge if lacks_blocks => "no_blocks",
        // The buffer of an image grows with the image, not with the context.
        Cause::ComputeBufferTooLarge if facts.refuses_image() => "image_room",
        Cause::KvCacheTooLarge => return Some(vec![hint(&facts.static_share()?.remedy())]),
        Cause::ModelTooLarge if is_llama && facts.refuses_encoder() => "image_encoder",
        Cause::ModelTooLarge if is_llama && facts.says(Pattern::DraftRefused) => "draft_model",
        Cause::FragmentationCachingAllocator if has_expandable(facts) => "expandable_segments",
        _ => return None,
    };
    Some(of_code(code, program, facts))
}

/// The program was started with expandable segments; PyTorch's error only names them.
fn has_expandable(facts: &Facts) -> bool {
    facts.quote(Pattern::Expandable).is_some_and(|line| !line.text.contains("try setting"))
}

fn hint(text: &str) -> Hint {
    Hint::new(Advice::Other(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_of_a_known_code_and_every_cause_has_a_remedy_for_any_log() {
        let causes: Vec<&str> = Cause::ALL.iter().map(|cause| cause.code()).collect();
        let known = |code: &str| {
            let is_sign = CauseSign::ALL.iter().any(|sign| sign.code() == code);
            let is_cause = causes.contains(&code) || SubCause::ALL.iter().any(|sub| sub.code() == code);
            is_sign || is_cause || include_str!("remedy.rs").contains(&format!("\"{code}\""))
        };
        assert_eq!(rows().count(), REMEDIES.lines().count());
        for RemedyRow { code, program, forms } in rows() {
            assert!(
                known(code) && (program == "-" || LogProgram::named(program).is_some()),
                "{code} {program}"
            );
            assert!(forms.split(" || ").all(|form| form.len() > 10 && !form.contains('\t')), "{forms}");
            let last = forms.split(" || ").last().unwrap();
            let others = rows().filter(|row| (row.code, row.program) == (code, program)).count();
            assert!(!last.contains('{') || others > 1, "a log without figures has no remedy: {forms}");
        }
        for RemedyRow { code, program, forms } in
            rows().filter(|row| row.program == "-" && causes.contains(&row.code))
        {
            let of_one = ["-ngl", "(-c", "-ub", "-np", "-ctk", "NVRM", "CUDA_VISIBLE", "num_ctx", "--gpu-"];
            let is_of_one =
                |form: &str| !form.contains('{') && of_one.iter().any(|words| form.contains(words));
            assert!(!forms.split(" || ").any(is_of_one), "of one program or maker: {code} {program} {forms}");
        }
        for cause in causes {
            assert!(!of_code(cause, None, &Facts::default()).is_empty(), "{cause}");
        }
    }
}
