//! Collects what `plimsoll plan` needs: engine flags, cards and host memory. It warns if one of them is
//! uncertain.

use plimsoll_base::{CardSpec, Reason};
use plimsoll_cards::{HostMemory, KernelCard, Machine};
use plimsoll_engine::program;
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_plan::{PlannedHost, Room};
use plimsoll_planner::HostRoom;
use plimsoll_probe::{bus, missing_adapters};

use super::{Arguments, no_card, served};
use crate::command::card_choice::CardChoice;
use crate::report::ErrorReport;

/// Cards and host memory to plan for: the described cards, else those of this machine, else its host memory.
/// An adapter that the flags name and that is not here is a doubt.
pub(super) fn room(arguments: &Arguments, given: &Options) -> Result<Room, ErrorReport> {
    let mut room = cards_and_host(arguments)?;
    room.bus = bus::measured();
    room.doubts.splice(0..0, missing_adapters(given));
    Ok(room)
}

fn cards_and_host(arguments: &Arguments) -> Result<Room, ErrorReport> {
    let given = Room::described(&arguments.specs()?, arguments.host);
    if !given.cards.is_empty() {
        let are_here = arguments.cards.iter().all(CardChoice::is_here);
        let seen = HostMemory::read().filter(|_| are_here).map(|host| PlannedHost {
            room: HostRoom { total: host.total, free: host.available },
            is_shared: given.cards.iter().any(|card| card.shares_host),
        });
        return Ok(Room { host: given.host.or(seen), ..given });
    }
    // NVML needs no CUDA context, so planning takes no memory of the card.
    let machine = plimsoll_cards::look();
    let cards = served(&machine);
    let seen = machine.host.as_ref().map(|host| PlannedHost {
        room: HostRoom { total: host.total, free: host.free },
        is_shared: machine.unified || cards.iter().any(|card| card.shares_host),
    });
    if !cards.is_empty() {
        return Ok(Room { cards, host: given.host.or(seen), ..given });
    }
    let host = machine.host.clone().ok_or_else(no_card)?;
    let text = format!(
        "{}, so the plan is for host memory{}; describe another machine's card with --card, or \
            examine this machine with `plimsoll doctor`",
        why_host(&machine),
        machine.kernel_cards.iter().filter_map(described_by).collect::<String>()
    );
    Ok(Room { cards: vec![host], doubts: vec![Reason::new("no_card_seen", text)], ..Room::default() })
}

/// Why no GPU of a machine is planned for.
fn why_host(machine: &Machine) -> String {
    let engine = program::usual_backends(None);
    // A machine may have dozens of equal cards.
    match machine.kernel_cards.first() {
        Some(card) => format!("no model is placed on the {}: {}", card.name, machine.obstacle(card, &engine)),
        None => machine.notes.first().map_or("no card was found", String::as_str).to_owned(),
    }
}

/// How to plan for a card that is not used here: the installed engine cannot, but another one may.
fn described_by(card: &KernelCard) -> Option<String> {
    let name = &card.name;
    let words = match card.shown() {
        Some(shown) => {
            let (total, free) = (shown.total.whole_mib(), shown.free.whole_mib());
            let kind = if shown.shares_host { ",kind=unified" } else { "" };
            format!("name={name},total={total}MiB,free={free}MiB{kind}")
        }
        // Its maker's figures, where the name is that of one product.
        None => name.parse::<CardSpec>().ok().map(|_| name.clone())?,
    };
    Some(format!("; --card \"{words}\" plans for the {name}"))
}

/// Why a command line of another program is not planned; `None` for one of llama.cpp's that are known.
pub(super) fn other_program(words: &[String]) -> Option<String> {
    let first = words.first().filter(|first| !first.starts_with('-') && !first.ends_with(".gguf"))?;
    if ProgramKind::from_name(first).is_some() {
        return None;
    }
    let (name, names) = (first.rsplit('/').next().unwrap_or(first), ProgramKind::NAMES);
    Some(match name {
        "llama-bench" => "`llama-bench` loads the model anew for each test, with flags of its own, so its command line is not \
            planned\nhint: plan one of its tests by the flags of llama-server: the larger of `-p 512 -n 128 -d 1024` needs `-c 1536`; -ngl, \
            -ub, -ctk, -ctv and -fa are the same"
            .to_owned(),
        _ => format!(
            "`plan` computes the memory of llama.cpp's programs ({names}), but not of `{name}`\nhint: \
                `plimsoll measure watch \
            -- COMMAND` measures what a program takes; `memory = \"SIZE\"` in a model's section states it \
                for `plimsoll serve`"
        ),
    })
}

/// The engine's flags after those that stand outside of them for the model, and without the program's name
/// before them; and the program that was named there.
pub(super) fn flags(model: &[String], after: &[String]) -> (Vec<String>, Option<ProgramKind>) {
    let (mut words, mut program) = (after.to_vec(), None);
    // A whole command line was pasted: `llama-server -m model.gguf`.
    if let Some(first) = words.first().filter(|first| !first.starts_with('-')) {
        program = ProgramKind::from_name(first);
        if program.is_some() {
            words.remove(0);
        } else if first.ends_with(".gguf") {
            words.insert(0, "-m".to_owned());
        }
    }
    words.splice(0..0, model.iter().cloned());
    (words, program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_wherever_it_stands() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let model = words("-m m.gguf");
        let server = Some(ProgramKind::LlamaServer);
        for (given, after, found, program) in [
            (&model[..], "-c 5", "-m m.gguf -c 5", None),
            (&[], "/x/llama-server -m m.gguf", "-m m.gguf", server),
            (&[], "C:\\x\\llama-server.exe -m m.gguf", "-m m.gguf", server),
            (&[], "m.gguf -c 5", "-m m.gguf -c 5", None),
            (&[], "library -m m.gguf", "-m m.gguf", Some(ProgramKind::Library)),
            (&[], "serve -m m.gguf", "serve -m m.gguf", None),
            (&[], "", "", None),
        ] {
            assert_eq!(flags(given, &words(after)), (words(found), program), "{after}");
        }
    }

    #[test]
    fn another_program_is_named_with_what_to_do_instead() {
        let stated =
            |text: &str| other_program(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        for planned in ["", "-m m.gguf", "m.gguf -c 5", "/x/llama-server -m m.gguf", "library -m m.gguf"] {
            assert_eq!(stated(planned), None, "{planned}");
        }
        assert!(stated("/opt/llama-bench -m m.gguf -p 512").unwrap().contains("`-c 1536`"));
        let vllm = stated("vllm serve org/model").unwrap();
        assert!(vllm.contains("not of `vllm`") && vllm.contains("plimsoll measure watch"), "{vllm}");
    }
}
