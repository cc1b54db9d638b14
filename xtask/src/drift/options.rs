//! Command line of `cargo xtask drift`.

use std::path::PathBuf;

use super::DriftError;

/// Engines of registries.
pub(super) const OFFERED: [&str; 4] = ["npm-cuda", "npm-vulkan", "debian-vulkan", "debian-hip"];

/// An engine to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    Offered { name: &'static str, version: Option<String> },
    Local(PathBuf),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) engines: Vec<Chosen>,
    /// Architectures or specimens; empty for all.
    pub(super) only: Vec<String>,
    pub(super) write: bool,
    pub(super) built: Option<PathBuf>,
    pub(super) help: bool,
}

impl Options {
    pub(super) fn read(words: &[&str]) -> Result<Self, DriftError> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let mut value = || {
                let value = words.next().filter(|value| !value.is_empty());
                value.ok_or_else(|| DriftError::Usage(format!("{word} needs a value")))
            };
            match word {
                "--help" | "-h" => options.help = true,
                "--write" => options.write = true,
                "--engine" => options.engines.push(Chosen::Local(value()?.into())),
                "--built" => options.built = Some(value()?.into()),
                "--only" => options.only.extend(value()?.split(',').map(str::to_owned)),
                _ => options.engines.push(offered(word)?),
            }
        }
        if options.engines.is_empty() {
            options.engines = OFFERED.map(|name| Chosen::Offered { name, version: None }).to_vec();
        }
        Ok(options)
    }
}

fn offered(word: &str) -> Result<Chosen, DriftError> {
    let (name, version) = match word.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (word, None),
    };
    let known = OFFERED.into_iter().find(|known| *known == name);
    let known = known.ok_or_else(|| DriftError::Usage(format!("there is no engine `{word}`")))?;
    // It becomes a part of a path and of a command.
    let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || ".:+~-".contains(c));
    match version.filter(|version| version.is_empty() || version.starts_with('-') || !plain(version)) {
        Some(version) => Err(DriftError::Usage(format!("`{version}` is no version"))),
        None => Ok(Chosen::Offered { name: known, version: version.map(str::to_owned) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_have_versions_and_paths() {
        let read =
            Options::read(&["npm-cuda@3.22.1", "--engine", "/x/bin", "--only", "llama,gemma3"]).unwrap();
        let cuda = Chosen::Offered { name: "npm-cuda", version: Some("3.22.1".to_owned()) };
        assert_eq!(read.engines, [cuda, Chosen::Local("/x/bin".into())]);
        assert_eq!(read.only, ["llama", "gemma3"]);
        assert_eq!(Options::read(&["--write"]).unwrap().engines.len(), OFFERED.len());
    }

    #[test]
    fn what_is_no_engine_and_no_version_is_refused_with_the_usage() {
        for words in
            [&["cuda"][..], &["npm-cuda@"], &["npm-cuda@../../x"], &["npm-cuda@--flag"], &["--engine"]]
        {
            let error = Options::read(words).unwrap_err().to_string();
            assert!(error.contains("usage: cargo xtask drift"), "{error}");
        }
    }
}
