//! Reader of llama-server's `--models-preset` file (`common/preset.cpp`, `tools/server/server-models.cpp @
//! b10605`).
//!
//! A file means the same as in llama-server, with two exceptions: a section without a model is refused, and
//! `sleep-idle-seconds` ends the engine's process.

mod assemble;
mod grammar;
mod ours;

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_flags::table::FlagClass;
use plimsoll_flags::{FlagOrigin, Options, Warning};

use self::grammar::Section;
use super::failure::{ConfigError, ConfigProblem};
use super::roster::{Configuration, ConfiguredModel, Launch, RefusedModel};

/// llama.cpp's name for the section before the first header.
const DEFAULT: &str = "default";
/// The section that holds for every model.
const GLOBAL: &str = "*";

/// Reads a preset file.
pub(super) fn parse(file: &Arc<str>, text: &str) -> Result<Configuration, ConfigError> {
    let mut roster = Configuration::default();
    let mut sections = grammar::sections(file, text, &mut roster.warnings)?;
    // Comments before the first header belong to no section, though llama.cpp gives the settings there a
    // name.
    let mut ours = sections.first_mut().map(|head| std::mem::take(&mut head.ours)).unwrap_or_default();
    let mut sections = last_of_each(file, sections, &mut roster.warnings);
    // `[*]` is the base of every model, wherever it stands in the file.
    let global = sections.extract_if(.., |section| section.name == GLOBAL).next();
    let mut global_options = Ok(Options::default());
    if let Some(mut global) = global {
        global_options = assemble::options(file, &global, &mut roster.warnings);
        if let Err(error) = &global_options
            && !error.is_of_a_flag()
        {
            return Err(error.clone());
        }
        ours.append(&mut global.ours);
    }
    let ours = ours::of_server(file, &ours, &mut roster.serve)?;
    for section in sections {
        let options = assemble::options(file, &section, &mut roster.warnings);
        // A file that starts with a header still has this section.
        if section.name == DEFAULT && options.as_ref().is_ok_and(Options::is_empty) {
            continue;
        }
        let options = match options.and_then(|own| Ok(own.merged_over(&global_options.clone()?))) {
            Err(error) if error.is_of_a_flag() => {
                roster.refused.push(RefusedModel { name: section.name, aliases: Vec::new(), error });
                continue;
            }
            options => options?,
        };
        let mut entry = assemble::entry(file, &section, options, &mut roster.warnings)?;
        // Global settings first: a section's own line replaces them.
        for line in ours.iter().copied().chain(&section.ours) {
            ours::apply(file, line, &mut entry)?;
        }
        roster.models.push(entry);
    }
    Ok(roster)
}

/// Of two sections with one name the later wins wholly. Names differ before their tags are canonical, and
/// then the one that sorts later wins (`load_from_ini` walks a `std::map`).
fn last_of_each(file: &Arc<str>, sections: Vec<Section>, warnings: &mut Vec<Warning>) -> Vec<Section> {
    let mut kept: Vec<(String, Section)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for mut section in sections {
        let raw = std::mem::take(&mut section.name);
        // llama-server compares canonical names, but sorts raw ones.
        section.name = assemble::canonical_name(&raw);
        // The grammar takes the name up to `]`, blanks included; a request for it would have to carry them.
        if section.name.ends_with([' ', '\t']) {
            let text = format!("the section name ends with a space: `{}`", section.name);
            warnings.push(
                Warning::new(FlagOrigin::file(file, section.line), text)
                    .hint("write `]` right after the name"),
            );
        }
        let Some(&at) = places.get(&section.name) else {
            places.insert(section.name.clone(), kept.len());
            kept.push((raw, section));
            continue;
        };
        let (raw_before, before) = &mut kept[at];
        if before.settings.is_empty() && before.ours.is_empty() {
            (*raw_before, *before) = (raw, section);
            continue;
        }
        // `load_from_ini` walks a std::map of raw names, so the greater one overwrites.
        let (lost, wins) = if raw < *raw_before { (&section, &*before) } else { (&*before, &section) };
        let text = format!(
            "the section [{}] has no effect: the section of the same name on line {} replaces it",
            lost.name, wins.line
        );
        warnings.push(Warning::new(FlagOrigin::file(file, lost.line), text).hint("merge the two sections"));
        if raw >= *raw_before {
            (*raw_before, *before) = (raw, section);
        }
    }
    kept.into_iter().map(|(_, section)| section).collect()
}
