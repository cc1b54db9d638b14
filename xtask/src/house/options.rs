//! Command-line options of `cargo xtask house`.

use std::path::PathBuf;

/// A kind of places that `--list` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    Docs,
    Comments,
    People,
    Long,
    Names,
    Cycles,
}

impl Listing {
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "docs" => Self::Docs,
            "comments" => Self::Comments,
            "who" => Self::People,
            "long" => Self::Long,
            "names" => Self::Names,
            "cycles" => Self::Cycles,
            _ => return None,
        })
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OptionError {
    #[error("`{0}` is no option of house; see cargo xtask house --help")]
    Unknown(String),
    #[error("{0} needs a value; see cargo xtask house --help")]
    Value(String),
    #[error("there is no list `{0}`: docs, comments, who, long, names or cycles")]
    List(String),
    #[error("two trees are given, {0} and {1}: the second goes behind --beside")]
    Trees(String, String),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) tree: Option<PathBuf>,
    pub(super) beside: Option<PathBuf>,
    pub(super) list: Option<Listing>,
    /// The crate whose places are listed.
    pub(super) of: Option<String>,
    pub(super) json: bool,
    pub(super) check: bool,
    pub(super) help: bool,
}

impl Options {
    pub(super) fn read(words: &[&str]) -> Result<Self, OptionError> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let mut value = || words.next().ok_or_else(|| OptionError::Value(word.to_owned()));
            match word {
                "--beside" => options.beside = Some(value()?.into()),
                "--crate" => options.of = Some((*value()?).to_owned()),
                "--list" => {
                    let name = *value()?;
                    options.list =
                        Some(Listing::read(name).ok_or_else(|| OptionError::List(name.to_owned()))?);
                }
                "--names" => options.list = Some(Listing::Names),
                "--json" => options.json = true,
                "--check" => options.check = true,
                "--help" | "-h" => options.help = true,
                word if word.starts_with('-') => return Err(OptionError::Unknown(word.to_owned())),
                word => {
                    if let Some(first) = options.tree.replace(word.into()) {
                        return Err(OptionError::Trees(first.display().to_string(), word.to_owned()));
                    }
                }
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_in_any_order() {
        let options = Options::read(&["--list", "who", "/a", "--crate", "pool", "--beside", "/b"]).unwrap();
        assert_eq!(options.tree, Some("/a".into()));
        assert_eq!(options.beside, Some("/b".into()));
        assert_eq!(options.list, Some(Listing::People));
        assert_eq!(options.of.as_deref(), Some("pool"));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |words: &[&str]| Options::read(words).unwrap_err();
        assert_eq!(error(&["--lst"]), OptionError::Unknown("--lst".into()));
        assert_eq!(error(&["--list"]), OptionError::Value("--list".into()));
        assert_eq!(error(&["--list", "x"]), OptionError::List("x".into()));
        assert_eq!(error(&["a", "b"]), OptionError::Trees("a".into(), "b".into()));
    }
}
