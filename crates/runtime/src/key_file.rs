//! Reads API key files, with one key in each line.
//!
//! It warns of lines that are no keys, of weak keys, and of keys that give access to no model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_base::Bytes;
use plimsoll_config::{Configuration, ConfiguredKey, KeySecret, fits_pattern};
use plimsoll_flags::{FlagOrigin, Warning, quoted};

use crate::config_error::ReadConfigError;

/// A shorter key can be guessed.
const SHORTEST: usize = 8;
/// Longest file of keys: some ten thousand of them.
const LONGEST: Bytes = Bytes::mib(1);

/// A key as it was written, and its place.
pub(crate) struct WrittenKey {
    pub text: String,
    origin: FlagOrigin,
}

impl WrittenKey {
    /// A key of the configuration itself.
    pub(crate) fn of(config: &Path, text: String) -> Self {
        Self { text, origin: FlagOrigin::file(&config.to_string_lossy().into(), 0) }
    }

    /// The key's own weaknesses; it is never shown.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let mut all = weak(&self.text, "an API key", &self.origin);
        let quoted = ['"', '\'', '`'].iter().any(|mark| self.text.len() > 1 && is_between(&self.text, *mark));
        if quoted {
            let text = "the quotation marks around this API key are part of it";
            all.push(
                Warning::new(self.origin.clone(), text).hint("remove them if clients send the key without"),
            );
        }
        all
    }
}

fn is_between(text: &str, mark: char) -> bool {
    text.starts_with(mark) && text.ends_with(mark)
}

fn weak(text: &str, what: &str, origin: &FlagOrigin) -> Vec<Warning> {
    let is_short = text.chars().count() < SHORTEST;
    let warning = is_short.then(|| {
        Warning::new(
            origin.clone(),
            format!("{what} is shorter than {SHORTEST} characters and can be guessed"),
        )
        .hint("`openssl rand -hex 24` makes a good one")
    });
    warning.into_iter().collect()
}

// DECISION: a line that begins with `#` is a comment, although llama-server's `--api-key-file` takes it for a
// key. The words of a comment can be guessed, and a key that is left out opens nothing. One that may be a key
// is reported.
/// Reads the keys of a file, and warns of lines that are no keys.
pub(crate) fn read(file: &str) -> Result<(Vec<WrittenKey>, Vec<Warning>), ReadConfigError> {
    let path = PathBuf::from(file);
    let text = match plimsoll_file::read_text(&path, LONGEST) {
        Ok(text) => text,
        Err(error) => return Err(ReadConfigError::ReadKeys { path, error }),
    };
    let (mut keys, mut warnings) = (Vec::new(), Vec::new());
    let name: Arc<str> = file.into();
    // A file of Windows may begin with a mark. An editor may leave blanks and an empty last line.
    for (line, text) in (1..).zip(text.trim_start_matches('\u{feff}').lines().map(str::trim)) {
        let origin = FlagOrigin::file(&name, line);
        match text.strip_prefix('#') {
            None if text.is_empty() => {}
            None => keys.push(WrittenKey { text: text.to_owned(), origin }),
            Some(rest) if rest.is_empty() || rest.starts_with(['#', ' ', '\t', '!']) => {}
            Some(_) => {
                let text = "this line begins with `#`, so it is read as a comment and not as an API key";
                warnings
                    .push(Warning::new(origin, text).hint("choose a key that begins with another character"));
            }
        }
    }
    if keys.is_empty() { Err(ReadConfigError::NoKeyIn { path }) } else { Ok((keys, warnings)) }
}

/// Warns of keys with a name that are short, or that open no model.
pub(crate) fn of_named(config: &Path, roster: &Configuration, keys: &[ConfiguredKey]) -> Vec<Warning> {
    let origin = FlagOrigin::file(&config.to_string_lossy().into(), 0);
    let models = roster.models.iter().map(|model| (&model.name, &model.aliases));
    let refused = roster.refused.iter().map(|model| (&model.name, &model.aliases));
    let names: Vec<&str> = models
        .chain(refused)
        .flat_map(|(name, aliases)| std::iter::once(name).chain(aliases).map(String::as_str))
        .collect();
    // An alias may hold stars itself.
    let fits =
        |pattern: &str| names.iter().any(|name| fits_pattern(name, pattern) || fits_pattern(pattern, name));
    let mut all = Vec::new();
    for key in keys.iter().filter(|key| !key.name.is_empty()) {
        let name = quoted(&key.name);
        if let KeySecret::Text(text) = &key.secret {
            all.extend(weak(text, &format!("the API key of `{name}`"), &origin));
        }
        for pattern in key.models.iter().flatten().filter(|pattern| !fits(pattern)) {
            let text =
                format!("API key `{name}`: `models` lists `{}`, but there is no such model", quoted(pattern));
            let known: Vec<String> = names.iter().take(8).map(|name| quoted(name).to_string()).collect();
            let hint = format!("the names are {}", known.join(", "));
            let warning = Warning::new(origin.clone(), text);
            all.push(if known.is_empty() { warning } else { warning.hint(hint) });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> (Vec<String>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys").to_string_lossy().into_owned();
        std::fs::write(&file, text).unwrap();
        let (keys, mut warnings) = read(&file).unwrap();
        warnings.extend(keys.iter().flat_map(WrittenKey::warnings));
        let reported = warnings.iter().map(|warning| warning.to_string().replace(&file, "keys"));
        (keys.iter().map(|key| key.text.clone()).collect(), reported.collect())
    }

    #[test]
    fn comments_and_blank_lines_are_no_keys_and_a_line_that_may_be_a_key_is_reported() {
        let (read, reported) = keys("\u{feff}# my keys\n\n  sesame-open-wide \n#\n#hidden-key\n");
        assert_eq!(read, ["sesame-open-wide"]);
        let text = "keys:5: this line begins with `#`, so it is read as a comment and not as an API key; choose a key that \
                    begins with another character";
        assert_eq!(reported, [text]);
    }

    #[test]
    fn a_file_without_a_key_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        for text in ["", "\n \n", "# my keys\n", "\u{feff}\n"] {
            std::fs::write(&file, text).unwrap();
            let error = read(&file.to_string_lossy()).err().unwrap().to_string();
            let reported = format!("{}: the file contains no API key", file.display());
            assert!(error.starts_with(&reported) && error.contains("`api-key-files`"), "{error}");
        }
    }

    #[test]
    fn a_device_and_a_hole_of_a_terabyte_are_no_file_of_keys() {
        let folder = tempfile::tempdir().unwrap();
        let hole = folder.path().join("hole");
        std::fs::File::create(&hole).unwrap().set_len(1 << 40).unwrap();
        for (path, why) in
            [("/dev/zero", "it is not a regular file"), (hole.to_str().unwrap(), "it is longer than")]
        {
            let error = read(path).err().unwrap().to_string();
            assert!(error.contains(path) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_short_key_and_one_in_quotation_marks_are_reported_and_never_shown() {
        let (read, reported) = keys("\"sesame-open-wide\"\nhunter2\n\"\n");
        assert_eq!(read.len(), 3);
        assert_eq!(reported.len(), 3, "{reported:?}");
        assert!(reported[0].starts_with("keys:1: the quotation marks around this API key are part of it"));
        assert!(reported[1].starts_with("keys:2: an API key is shorter than 8 characters"));
        assert!(reported.iter().all(|line| !line.contains("sesame") && !line.contains("hunter2")));
    }
}
