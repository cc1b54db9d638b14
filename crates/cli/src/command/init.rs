//! `plimsoll init`: writes the models that `plimsoll serve FOLDER` finds as a configuration, with comments.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_base::counted;
use plimsoll_config::ServeSettings;
use plimsoll_log::LogOutput;
use plimsoll_serve::{ConfigCheck, Setup};

use super::card_choice::{self, CardChoice};
use super::import::write;
use super::serve::{Sources, of_daemon, on_one_thread};
use crate::report::{ErrorReport, status};
use crate::terminal;

const MORE: &str = "\
Examples: plimsoll init ~/models
          plimsoll init --output /etc/plimsoll/plimsoll.toml --card 2x3090

Each model gets flags that fit the cards, and a comment with the reason. `plimsoll serve` serves the file. \
    With `plimsoll serve FOLDER`, its sections override the models of the same name or file.

Exit status: 0 for success, 1 if there is no model or the file cannot be written, 2 for bad input.";

#[derive(Debug, Args)]
#[command(after_help = MORE)]
pub(crate) struct Arguments {
    /// Folders of GGUF files, or single files [default: the caches of Hugging Face and llama.cpp, and
    /// Ollama's store]
    #[arg(value_name = "FOLDER")]
    folders: Vec<PathBuf>,
    /// The file to write, which must not exist
    #[arg(short, long, value_name = "FILE", default_value = "plimsoll.toml")]
    output: PathBuf,
    /// Overwrite the file that --output names
    #[arg(long)]
    force: bool,
    /// Card for models, e.g. 2x3060 or name=H200,total=80GiB; repeatable [default: those of this machine]
    #[arg(long = "card", value_name = "SPEC")]
    cards: Vec<CardChoice>,
}

pub(crate) fn run(arguments: Arguments, log: LogOutput) -> Result<ExitCode, ErrorReport> {
    let Arguments { folders, output, force, cards } = arguments;
    let Sources { config, places } =
        if folders.is_empty() { Sources::of_machine()? } else { Sources::of(&folders, None)? };
    let Some(places) = places else {
        let text = format!("{} is neither a folder nor a .gguf file", folders[0].display());
        return Err(ErrorReport::input(ErrorReport::new(text)));
    };
    let specs = card_choice::described(&cards, || Ok(plimsoll_cards::look())).map_err(ErrorReport::input)?;
    let serve = ServeSettings {
        cards: specs.into_iter().flat_map(|spec| spec.cards).collect(),
        ..ServeSettings::default()
    };
    let setup = Setup { config, places: Some(places.clone()), serve, log };
    let (found, lines) = on_one_thread(async { ConfigCheck::find(setup).await.map_err(of_daemon) })?;
    let written = plimsoll_import::write_found(&places, found, &lines)?;
    if written.models > 0 {
        write(&output, None, force, &written)?;
    }
    let mut stderr = terminal::stderr();
    // A closed stderr must not fail what is written.
    let mut say = |line: String| drop(writeln!(stderr, "{line}"));
    match written.models {
        0 => say(format!("no model was found in {}; nothing is written", places.in_words())),
        count => say(format!("{} written to {}", counted(count, "model"), output.display())),
    }
    written.changes.iter().for_each(|warning| say(warning.to_string()));
    Ok(status(written.models > 0))
}
