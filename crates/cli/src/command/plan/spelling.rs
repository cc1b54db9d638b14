//! Lets engine flags of `plimsoll plan` stand before `--` as well as after it, by reordering the command
//! line.

use std::ffi::OsString;

use clap::Args;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use plimsoll_flags::table::{self, FlagArity};
use plimsoll_flags::{ProgramKind, joined};

use super::Arguments;

/// The spellings of llama-server that clap would read as several flags of one letter.
const SPELLED: [(&str, &str); 4] =
    [("-hf", "--hf-repo"), ("-hfr", "--hf-repo"), ("-hff", "--hf-file"), ("-mu", "--model")];

/// The command line as clap reads it, where it is that of a plan: llama-server's short flags are written out,
/// and its flags that `plan` does not have stand after `--`.
pub(crate) fn spelled(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    match words.get(1).and_then(|command| command.to_str()) {
        Some("plan") => {}
        Some("serve") => {
            for word in &mut words {
                if let Some((_, long)) = SPELLED.iter().find(|(short, _)| word == short) {
                    *word = (*long).into();
                }
            }
            return words;
        }
        _ => return words,
    }
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let after = words.split_off(end);
    let own = Arguments::augment_args(clap::Command::new("plan"));
    let (mut kept, mut engine) = (Vec::new(), Vec::new());
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if let Some((_, long)) = SPELLED.iter().find(|(short, _)| text == *short) {
            kept.push((*long).into());
            continue;
        }
        let Some(found) = table::by_argument(&text).filter(|_| !is_own(&own, &text)) else {
            // It is refused in the words of the engine's flags.
            let is_joined = joined(&text).is_some_and(|(flag, _)| !is_own(&own, flag));
            if is_joined { &mut engine } else { &mut kept }.push(word);
            continue;
        };
        let values = match found.flag.takes {
            FlagArity::Nothing | FlagArity::Switch => 0,
            // A model may follow: `-fa model.gguf`.
            FlagArity::OptionalValue => usize::from(words.peek().is_some_and(is_short_value)),
            FlagArity::Value | FlagArity::Number => 1,
            FlagArity::TwoValues => 2,
        };
        engine.push(word);
        engine.extend(words.by_ref().take(values));
    }
    if !engine.is_empty() || !after.is_empty() {
        kept.push("--".into());
    }
    // A program's name stands first after `--`, and the flags that were in front of it follow.
    kept.extend(after.into_iter().skip(1));
    kept.extend(engine);
    kept
}

/// The error without the tip to write an unknown option behind `--`, which is refused there too; that of a
/// plan names the engine's flag that may be meant.
pub(crate) fn meant(mut error: clap::Error) -> clap::Error {
    let verb = std::env::args_os().nth(1).unwrap_or_default();
    if error.kind() == ErrorKind::ArgumentConflict
        && verb == "plan"
        && let Some(program) = std::env::args().take_while(|word| word != "--").find(|word| is_program(word))
    {
        let text = format!("put `--` before the command: plimsoll plan [OPTIONS] -- {program} …\n");
        return clap::Error::raw(ErrorKind::ArgumentConflict, text);
    }
    if error.kind() == ErrorKind::MissingRequiredArgument && verb == "unload" {
        let missing = ContextValue::Strings(vec!["<MODEL>, or --all for all models".to_owned()]);
        error.insert(ContextKind::InvalidArg, missing);
    }
    if error.kind() == ErrorKind::UnknownArgument && verb.as_encoded_bytes().starts_with(b"-") {
        let tip = "options follow the subcommand, as in `plimsoll ps --json`".to_owned();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        return error;
    }
    if error.kind() == ErrorKind::UnknownArgument && error.remove(ContextKind::Suggested).is_some() {
        let unknown = error.get(ContextKind::InvalidArg).filter(|_| verb == "plan").map(ToString::to_string);
        if let Some(flag) = unknown.as_deref().and_then(table::nearest) {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(flag.to_owned()));
        }
    }
    error
}

/// True for the name or path of a program that plans are made for.
fn is_program(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    name.starts_with("llama-") && ProgramKind::from_name(name).is_some()
}

/// The value of a flag that older builds did without, such as `on` after `-fa`.
fn is_short_value(word: &OsString) -> bool {
    let word = word.to_string_lossy();
    word == "-1" || (!word.starts_with('-') && !word.contains(['.', '/']))
}

/// True for an option of `plan` itself.
fn is_own(own: &clap::Command, word: &str) -> bool {
    // clap adds these itself.
    let asks_for_help = matches!(word, "-h" | "--help");
    asks_for_help
        || own.get_arguments().any(|argument| match word.strip_prefix("--") {
            Some(long) => argument.get_long_and_visible_aliases().is_some_and(|names| names.contains(&long)),
            None => {
                argument.get_short().is_some_and(|short| word.strip_prefix('-') == Some(&short.to_string()))
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_engine_may_stand_anywhere() {
        for (given, read) in [
            ("plan m.gguf --card 3090 -c 65536", "plan m.gguf --card 3090 -- -c 65536"),
            ("plan -c 65536 -ngl 99 m.gguf --card 3090", "plan m.gguf --card 3090 -- -c 65536 -ngl 99"),
            ("plan -fa m.gguf", "plan m.gguf -- -fa"),
            ("plan -fa on -ctk q8_0 -m m.gguf", "plan -m m.gguf -- -fa on -ctk q8_0"),
            ("plan --cpu-moe m.gguf -- llama-server -ub 64", "plan m.gguf -- llama-server -ub 64 --cpu-moe"),
            ("plan -hf a/b -c 1", "plan --hf-repo a/b -- -c 1"),
            ("plan --fit ctx --host 8GiB -m m.gguf", "plan --fit ctx --host 8GiB -m m.gguf"),
            ("plan m.gguf --contxt 5", "plan m.gguf --contxt 5"),
            ("plan m.gguf -c", "plan m.gguf -- -c"),
            ("plan m.gguf --", "plan m.gguf --"),
            ("plan -c=5 m.gguf --ctx-size=5 -c5", "plan m.gguf -- -c=5 --ctx-size=5 -c5"),
            ("plan --fit=ctx --card=3090 m.gguf", "plan --fit=ctx --card=3090 m.gguf"),
            ("plan --help", "plan --help"),
            ("plan m.gguf -h", "plan m.gguf -h"),
            ("serve -c 5", "serve -c 5"),
            ("", ""),
        ] {
            let words = |text: &str| -> Vec<OsString> {
                ["plimsoll"].into_iter().chain(text.split_whitespace()).map(OsString::from).collect()
            };
            assert_eq!(spelled(words(given).into_iter()), words(read), "{given}");
        }
    }
}
