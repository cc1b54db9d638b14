//! Prints shell completions and man pages (`plimsoll completions`, `plimsoll man`), and generates
//! `docs/reference`.
//!
//! `cargo xtask docs` writes the documents into `docs/reference`; CI fails if they are out of date.

mod model_names;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;

use super::Cli;
use crate::report::{ErrorReport, print, print_data, write_file};

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell that completes
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManPages {
    /// Folder of the pages, which is made if it is not there, e.g. ~/.local/share/man/man1
    folder: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// ReferenceDocument to print
    document: ReferenceDocument,
    /// Shell of the completions, or words of the man page's subcommand
    names: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReferenceDocument {
    Man,
    Completions,
    Schema,
    Openapi,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    let document = match arguments.document {
        ReferenceDocument::Man => man(&arguments.names)?,
        ReferenceDocument::Completions => completions(&arguments.names.concat())?,
        ReferenceDocument::Schema => plimsoll_config::PUBLISHED_SCHEMA.as_bytes().to_vec(),
        ReferenceDocument::Openapi => format!("{:#}\n", plimsoll_serve::openapi(true)).into_bytes(),
    };
    print_data(document)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn print_completions(arguments: &Completions) -> Result<ExitCode, ErrorReport> {
    print_data(script(arguments.shell))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of the program and one of each visible verb, at every depth.
pub(super) fn write_man(arguments: &ManPages) -> Result<ExitCode, ErrorReport> {
    let folder = &arguments.folder;
    fs::create_dir_all(folder).map_err(ErrorReport::of_file("cannot make the folder", folder))?;
    for words in verbs(&Cli::command(), &[]) {
        let name = [&["plimsoll".to_owned()], words.as_slice()].concat().join("-") + ".1";
        write_file(&folder.join(Path::new(&name)), man(&words)?)?;
    }
    print(format!("{}\n", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Words of a command and of all visible ones below it.
fn verbs(command: &clap::Command, words: &[String]) -> Vec<Vec<String>> {
    let below = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let below = below.flat_map(|verb| verbs(verb, &[words, &[verb.get_name().to_owned()]].concat()));
    std::iter::once(words.to_vec()).chain(below).collect()
}

/// Renders the man page of a subcommand by its words, or of the program without any.
fn man(words: &[String]) -> Result<Vec<u8>, ErrorReport> {
    let mut program = Cli::command();
    // clap fills in the full name of a subcommand only here; without it the page says `engine` alone.
    program.build();
    let mut command = &program;
    for word in words {
        command = command.find_subcommand(word).ok_or_else(|| {
            ErrorReport::input(ErrorReport::new(format!(
                "there is no subcommand `{word}`; `plimsoll --help` lists them"
            )))
        })?;
    }
    let mut page = Vec::new();
    // A fixed date and version line would change with each release; neither helps a reader of `man`.
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}

fn completions(name: &str) -> Result<Vec<u8>, ErrorReport> {
    // Parsed here and not by clap, because the same argument names a subcommand for `man`.
    let shell: Shell = name.parse().map_err(|_| {
        ErrorReport::input(ErrorReport::new(format!(
            "`{name}` is not a supported shell; write bash, zsh, fish, elvish or powershell"
        )))
    })?;
    Ok(script(shell))
}

fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut script);
    model_names::with_model_names(shell, &String::from_utf8_lossy(&script)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_visible_verb_has_a_page_and_stands_in_each_script() {
        let folder = tempfile::tempdir().unwrap();
        let pages = folder.path().join("share/man1");
        write_man(&ManPages { folder: pages.clone() }).unwrap();
        let scripts =
            [Shell::Bash, Shell::Zsh, Shell::Fish].map(|shell| String::from_utf8(script(shell)).unwrap());
        for verb in ["plan", "serve", "measure", "measure-soak", "completions", "man"] {
            let page = fs::read_to_string(pages.join(format!("plimsoll-{verb}.1"))).unwrap();
            assert!(page.contains(".TH"), "{page}");
            let name = verb.rsplit('-').next().unwrap();
            assert!(scripts.iter().all(|script| script.contains(name)), "{verb}");
        }
        assert!(pages.join("plimsoll.1").is_file() && !pages.join("plimsoll-look.1").exists());
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(write_man(&ManPages { folder: file }).is_err());
    }
}
