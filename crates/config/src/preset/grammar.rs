//! Parser of the INI grammar of llama-server's preset files (`common/preset.cpp: parse_ini_from_file @
//! b10605`).
//!
//! A value ends at the first `;` or `#`, even inside quotes. If a section occurs twice, only the second
//! counts.

use std::sync::Arc;

use plimsoll_flags::{FlagOrigin, Warning, quoted};

use crate::failure::{ConfigError, ConfigProblem};

/// A section: `[name]`, or the lines before the first section.
#[derive(Debug)]
pub(super) struct Section {
    /// As written, blanks at its end included.
    pub(super) name: String,
    pub(super) line: u32,
    /// By line.
    pub(super) settings: Vec<PresetLine>,
    /// Our own settings, in comments `;plimsoll: key = value`.
    pub(super) ours: Vec<PresetLine>,
}

#[derive(Debug)]
pub(super) struct PresetLine {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) line: u32,
}

/// Reads a file into its sections, in order; the first contains the lines before any header.
pub(super) fn sections(
    file: &Arc<str>,
    text: &str,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<Section>, ConfigError> {
    let mut sections =
        vec![Section { name: super::DEFAULT.to_owned(), line: 1, settings: Vec::new(), ours: Vec::new() }];
    for (line, number) in lines(text).zip(1_u32..) {
        let at = || FlagOrigin::file(file, number);
        let read = read(line)
            .map_err(|(why, remedy)| ConfigError::new(at(), ConfigProblem::ReadLine { why, remedy }))?;
        // There is always the section before the first header.
        let Some(section) = sections.last_mut() else { break };
        match read {
            Read::Nothing => {}
            Read::Section(name) => sections.push(Section {
                name: name.to_owned(),
                line: number,
                settings: Vec::new(),
                ours: Vec::new(),
            }),
            Read::Ours(comment) => section.ours.push(our_setting(comment, number).ok_or_else(|| {
                let (why, remedy) = ("this Plimsoll setting has no `=`", "write `;plimsoll: key = value`");
                ConfigError::new(at(), ConfigProblem::ReadLine { why, remedy })
            })?),
            Read::Setting { key, value, cut } => {
                warnings.extend(
                    suspicion(key, value, cut).map(|(text, hint)| Warning::new(at(), text).hint(hint)),
                );
                section.settings.push(PresetLine {
                    key: key.to_owned(),
                    value: value.to_owned(),
                    line: number,
                });
            }
        }
    }
    Ok(sections)
}

/// Lines as llama.cpp ends them: `\r\n`, `\n` or `\r`.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n')
        // A lone carriage return ends a line in llama.cpp's grammar.
        .flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
}

enum Read<'a> {
    Nothing,
    Section(&'a str),
    /// The text after `;plimsoll:`.
    Ours(&'a str),
    Setting {
        key: &'a str,
        value: &'a str,
        /// The text that a comment sign cut off, with the sign, where no blank precedes it.
        cut: &'a str,
    },
}

type Complaint = (&'static str, &'static str);

fn read(line: &str) -> Result<Read<'_>, Complaint> {
    let bare = line.trim_matches(BLANK);
    if bare.is_empty() {
        return Ok(Read::Nothing);
    }
    if let Some(comment) = bare.strip_prefix(COMMENT) {
        let ours = comment.trim_start_matches(BLANK).strip_prefix("plimsoll:");
        return Ok(ours.map_or(Read::Nothing, Read::Ours));
    }
    // llama.cpp has no rule for an indented setting and refuses the whole file.
    if line.starts_with(BLANK) {
        return Err((
            "the line is indented, which llama-server rejects",
            "remove the spaces at the start of the line",
        ));
    }
    match line.strip_prefix('[') {
        Some(header) => section(header),
        None => setting(line),
    }
}

const BLANK: [char; 2] = [' ', '\t'];
const COMMENT: [char; 2] = [';', '#'];

fn section(header: &str) -> Result<Read<'_>, Complaint> {
    let header = header.trim_start_matches(BLANK);
    let (name, after) =
        header.split_once(']').ok_or(("the section name has no closing `]`", "end it with `]`"))?;
    if name.is_empty() {
        return Err(("the section has no name", "write `[name]`"));
    }
    let after = after.trim_start_matches(BLANK);
    if after.is_empty() || after.starts_with(COMMENT) {
        return Ok(Read::Section(name));
    }
    Err(("there is text after the section name", "put that text on a separate line"))
}

fn setting(line: &str) -> Result<Read<'_>, Complaint> {
    // The characters of `common/preset.cpp`'s key rule.
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let end = line.find(|c| !is_key(c)).unwrap_or(line.len());
    let (key, after) = line.split_at(end);
    if !key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        let remedy = "write `key = value`, without dashes before the key";
        return Err(("the line does not start with a key", remedy));
    }
    let value = after
        .trim_start_matches(BLANK)
        .strip_prefix('=')
        .ok_or(("the key has no `=`", "write `key = value`; a flag without a value is `key = on`"))?
        .trim_start_matches(BLANK);
    // Quotes do not protect `;` and `#` in llama.cpp; the warning below says so.
    let (value, cut) = value.split_at(value.find(COMMENT).unwrap_or(value.len()));
    Ok(Read::Setting {
        key,
        value: value.trim_end_matches(BLANK),
        cut: if value.is_empty() || value.ends_with(BLANK) { "" } else { cut },
    })
}

fn our_setting(comment: &str, line: u32) -> Option<PresetLine> {
    let (key, value) = comment.split_once('=')?;
    Some(PresetLine { key: key.trim().to_owned(), value: value.trim().to_owned(), line })
}

/// A warning for a value that llama-server parses differently than written.
fn suspicion(key: &str, value: &str, cut: &str) -> Option<(String, &'static str)> {
    if !cut.is_empty() {
        let text = format!("`{}` is not part of the value of `{key}`: it starts a comment", quoted(cut));
        return Some((
            text,
            "llama-server does not accept `#` or `;` in a value; use another path, or an environment \
                variable",
        ));
    }
    // An odd quote is mostly a value that was cut at a `#` inside quotes.
    if value.matches('"').count() % 2 == 1 {
        let text = format!("the value of `{key}` has an unpaired quote: `{}`", quoted(value));
        return Some((text, "`#` and `;` start a comment even inside quotes"));
    }
    if value.len() > 1 && (value.starts_with('"') && value.ends_with('"')) {
        let text = format!("the quotes around the value of `{key}` become part of the value");
        return Some((text, "write the value without quotes"));
    }
    value.ends_with('\\').then(|| {
        let text = format!(
            "the value of `{key}` ends with a backslash, but a value cannot continue on the next line"
        );
        (text, "write the value on one line")
    })
}
