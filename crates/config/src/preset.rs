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

use self::grammar::{PresetLine, Section};
use super::failure::{ConfigError, ConfigProblem};
use super::roster::{Configuration, ConfiguredModel, Launch};

/// llama.cpp's name for the section before the first header.
const DEFAULT: &str = "default";
/// The section that holds for every model.
const GLOBAL: &str = "*";

/// Reads a preset file: what could be read of it, and the mistakes in the rest. An error hides all others.
pub(super) fn parse(file: &Arc<str>, text: &str) -> Result<(Configuration, Vec<ConfigError>), ConfigError> {
    let mut roster = Configuration::default();
    let mut sections = grammar::sections(file, text, &mut roster.warnings)?;
    // Comments before the first header belong to no section, though llama.cpp gives the settings there a
    // name.
    let mut ours = sections.first_mut().map(|head| std::mem::take(&mut head.ours)).unwrap_or_default();
    let mut sections = last_of_each(file, sections, &mut roster.warnings);
    // `[*]` is the base of every model, wherever it stands in the file.
    let global = sections.extract_if(.., |section| section.name == GLOBAL).next();
    let mut mistakes = Vec::new();
    let mut of_global = Vec::new();
    let mut global_options = Options::default();
    if let Some(mut global) = global {
        global_options = assemble::options(file, &global, &mut roster.warnings, &mut of_global);
        ours.append(&mut global.ours);
    }
    // Each line is tried once: a file may have ten thousands of sections for which a wrong one would hold.
    let mut trial = ConfiguredModel::new(String::new(), FlagOrigin::file(file, 0));
    let of_models = |line: &&PresetLine| match ours::of_server(file, line, &mut roster.serve) {
        Ok(is_of_server) => !is_of_server && kept(ours::apply(file, line, &mut trial), &mut mistakes),
        Err(mistake) => kept(Err(mistake), &mut mistakes),
    };
    let ours: Vec<&PresetLine> = ours.iter().filter(of_models).collect();
    let first_of_global = of_global.first().cloned();
    for section in sections {
        let mut found = Vec::new();
        let own = assemble::options(file, &section, &mut roster.warnings, &mut found);
        // A file that starts with a header still has this section.
        if section.name == DEFAULT && own.is_empty() && found.is_empty() {
            continue;
        }
        // A mistake of [*] refuses every model; all of them are reported once.
        if of_global.is_empty() {
            found.extend(first_of_global.clone())
        } else {
            found.append(&mut of_global)
        }
        let options = own.merged_over(&global_options);
        let mut entry = assemble::entry(file, &section, options, &mut roster.warnings, &mut found);
        // Global settings first: a section's own line replaces them.
        for line in ours.iter().copied().chain(&section.ours) {
            found.extend(ours::apply(file, line, &mut entry).err());
        }
        roster.add(entry, found);
    }
    // Of a file without models.
    mistakes.extend(of_global);
    Ok((roster, mistakes))
}

/// True for no mistake; a mistake is kept.
fn kept(read: Result<(), ConfigError>, mistakes: &mut Vec<ConfigError>) -> bool {
    read.map_err(|mistake| mistakes.push(mistake)).is_ok()
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
