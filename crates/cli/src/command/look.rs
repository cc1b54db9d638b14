//! `plimsoll look`: helper process that loads the GPU driver's libraries and reads the cards' memory for the
//! daemon (hidden command).

use std::process::ExitCode;

use rustix::process::setsid;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments) -> ExitCode {
    // A new session keeps the terminal's signals away: this process ends with its stdin.
    let _ = setsid();
    match plimsoll_cards::answer_questions(
        std::io::stdin().lock(),
        crate::terminal::unchanged_stdout().lock(),
    ) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
