//! `plimsoll plan --fit`: finds the largest values that fit, and prints them as flags to paste.
//!
//! Stdout has one command line, so that `llama-server $(plimsoll plan --fit ctx -- -m model.gguf)` works. If
//! the model fits, it has every value that can be combined; if not, the change that the advice lists first.
//! Stderr has all results. Exits 1 if nothing fits.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use plimsoll_flags::Options;
use plimsoll_plan::Room;
use plimsoll_planner::fit::{Dimension, Fit, FitAnswer, RequestChange, edited};
use serde_json::{Value, json};

use super::paste::Pasted;
use super::{Arguments, Estimated};
use crate::report::{ErrorReport, print, print_as, status};
use crate::screen;
use crate::terminal;

/// Requested search dimensions, in their order.
#[derive(Clone, Debug)]
pub(crate) struct FitDirections {
    dimensions: Vec<Dimension>,
    /// False for `all`.
    is_named: bool,
}

/// Reads `ctx,np` or `all`.
pub(crate) fn directions(text: &str) -> Result<FitDirections, String> {
    if text == "all" {
        return Ok(FitDirections { dimensions: Dimension::ALL.to_vec(), is_named: false });
    }
    let find = |name: &str| {
        Dimension::from_name(name).ok_or_else(|| {
            let known: Vec<&str> = Dimension::ALL.map(Dimension::name).to_vec();
            let engines = match name {
                "on" | "off" => "; llama-server's own --fit goes after `--`",
                _ => "",
            };
            format!("`{name}` is not a value of --fit; use {} or all{engines}", known.join(", "))
        })
    };
    let dimensions = text.split(',').map(find).collect::<Result<_, _>>()?;
    Ok(FitDirections { dimensions, is_named: true })
}

pub(super) fn run(
    arguments: &Arguments,
    directions: &FitDirections,
    (given, options): (&Options, &Options),
    room: &Room,
) -> Result<ExitCode, ErrorReport> {
    let estimated = Estimated::of_fit(arguments, options, &room.cards)?;
    let limit = room.limit(estimated.formulas());
    let mut fit = estimated.fit(options, &room.cards, &directions.dimensions)?;
    estimated.print_runs()?;
    // An engine may know a model that the formulas refuse.
    let planned = limit.estimate.plan(options, &room.cards).map(|plan| plan.warnings);
    fit.warnings = room.doubts(options);
    fit.warnings.extend(planned.unwrap_or_default());
    fit.warnings.extend(estimated.unasked());
    limit.limit_fit(options, &mut fit)?;
    // The engine was asked about each answer alone, and the formulas may not speak for it.
    let holds = |changes: &[RequestChange]| {
        let plan = edited(options, changes).ok().filter(|_| estimated.is_by_formulas());
        plan.is_some_and(|options| limit.fits_wholly(&options))
    };
    let pasted = Pasted::choose(&fit, directions.is_named, &holds);
    // A direction that does not apply to the model changes nothing: the request stands as it is.
    let stands = fit.fits && !fit.answers.iter().any(|answer| answer.applicable);
    // The printed flags name the model as the user did.
    let argv = match &pasted {
        Some(pasted) => Some(edited(given, &pasted.changes)?.to_argv()),
        None => stands.then(|| given.to_argv()),
    };
    show(arguments, given, &fit, argv.as_deref(), pasted.and_then(|pasted| pasted.stated))?;
    Ok(status(argv.is_some()))
}

fn show(
    arguments: &Arguments,
    options: &Options,
    fit: &Fit,
    argv: Option<&[String]>,
    stated: Option<String>,
) -> Result<(), ErrorReport> {
    if let Some(path) = arguments.json.as_deref() {
        print_as(Some(path), &json(options, fit, argv)?, String::new)?;
        if path == Path::new("-") {
            return Ok(());
        }
    }
    let mut stderr = terminal::stderr();
    write!(stderr, "{}", screen::fit(fit, screen::Paper::of_stdout()))?;
    // Where there are several answers, the reader learns which of them stdout has.
    if let Some(stated) = stated {
        writeln!(stderr, "{stated}")?;
    }
    argv.map_or(Ok(()), paste)
}

/// Prints a command line for a shell.
fn paste(argv: &[String]) -> Result<(), ErrorReport> {
    let words: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
    print(words.join(" ") + "\n")
}

/// The whole command line with one answer applied.
fn argv_of(options: &Options, answer: &FitAnswer) -> Result<Option<Vec<String>>, ErrorReport> {
    let line = |change| Ok(edited(options, std::slice::from_ref(change))?.to_argv());
    answer.change.as_ref().map(line).transpose()
}

/// The serialised answers, each with its whole command line, and the one that stdout would get.
fn json(options: &Options, fit: &Fit, pasted: Option<&[String]>) -> Result<Value, ErrorReport> {
    let mut value = serde_json::to_value(fit)?;
    value["argv"] = json!(pasted);
    for (at, answer) in fit.answers.iter().enumerate() {
        // A program should not have to rebuild the command line from the change.
        value["answers"][at]["argv"] = json!(argv_of(options, answer)?);
    }
    Ok(value)
}

/// Quotes a word for a POSIX shell.
fn quoted(word: &str) -> String {
    // Words of these characters mean the same in every shell; anything else is quoted.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        // Nothing is special between single quotes but the quote itself, which must stand outside of them.
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("-c"), "-c");
        assert_eq!(quoted("/models/a b.gguf"), "'/models/a b.gguf'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("exps=CPU,$HOME"), "'exps=CPU,$HOME'");
    }

    #[test]
    fn a_direction_that_is_none_is_named_with_those_that_are() {
        assert_eq!(directions("np,ctx").unwrap().dimensions, [Dimension::Slots, Dimension::Context]);
        assert_eq!(directions("all").unwrap().dimensions.len(), 7);
        let error = directions("ctx,cxt").unwrap_err();
        assert!(error.contains("`cxt` is not a value of --fit; use ctx, ub, np, kv"), "{error}");
    }
}
