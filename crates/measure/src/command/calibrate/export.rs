//! Writes what is known of this machine's cards to a file that its owner can hand in.
//!
//! DECISION: nothing is measured for it, no UUID, address, path or name of a process is in it, and the same
//! text is printed. So an owner of a card that nobody has measured can read all that he gives away.

use std::path::Path;
use std::process::ExitCode;

use plimsoll_base::Card;
use plimsoll_cards::{KernelCard, kernel_release};
use plimsoll_planner::MeasuredContext;
use plimsoll_probe::contexts;
use plimsoll_verb::report::{ErrorReport, print, write_file};
use serde_json::{Value, json};

pub(super) fn run(path: &Path) -> Result<ExitCode, ErrorReport> {
    let machine = plimsoll_cards::look();
    let of_library = machine.cards.iter().map(library_card);
    let cards: Vec<Value> = of_library.chain(machine.kernel_cards.iter().map(kernel_card)).collect();
    if cards.is_empty() {
        return Err(ErrorReport::input(ErrorReport::new(
            "there is no card to export; `plimsoll doctor` shows why",
        )));
    }
    let here = |row: &MeasuredContext| machine.names().iter().any(|card| card.name == row.card);
    let contexts: Vec<MeasuredContext> = contexts::measured().into_iter().filter(here).collect();
    let export = json!({
        "schema": "plimsoll.calibration-export/1",
        "plimsoll": env!("CARGO_PKG_VERSION"),
        "exported": jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
        "kernel": kernel_release(),
        "driver": machine.driver,
        "cards": cards,
        "contexts": contexts,
    });
    let text = serde_json::to_string_pretty(&export)? + "\n";
    write_file(path, &text)?;
    print(format!("{text}saved in {}, with nothing else than the above\n", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn library_card(card: &Card) -> Value {
    json!({
        "name": card.name, "driver": "nvidia", "total": card.total, "free": card.free,
        "compute_capability": card.compute_capability, "shares_host": card.shares_host,
    })
}

fn kernel_card(card: &KernelCard) -> Value {
    json!({
        "name": card.name, "pci": card.pci, "driver": card.driver, "architecture": card.architecture,
        "board": card.board, "total": card.total, "used": card.used, "free": card.free, "limit": card.limit,
        "vram": card.vram, "visible": card.visible, "gtt": card.gtt, "notes": card.notes,
    })
}
