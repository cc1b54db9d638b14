//! Collects what `plimsoll plan` needs: engine flags, cards and host memory. It warns if one of them is
//! uncertain.

use std::str::FromStr;

use plimsoll_base::{Bytes, Card, CardId, CardSpec, Reason, unit_of};
use plimsoll_cards::{KernelCard, Machine};
use plimsoll_engine::program;
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_plan::{Estimate, HostLimit, PlannedHost};
use plimsoll_planner::HostRoom;

use super::{Arguments, no_card, served};
use crate::report::ErrorReport;

/// `--host`: `32GiB` or `total=32GiB`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostSize(Bytes);

impl FromStr for HostSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let size = text.strip_prefix("total=").unwrap_or(text);
        let bytes: Bytes = size.parse().map_err(|error| format!("{error}"))?;
        if bytes < Bytes::mib(1) {
            Err(format!("`{text}` is {bytes}; did you mean {size}{}?", unit_of(size)))
        } else {
            Ok(Self(bytes))
        }
    }
}

/// Cards and host memory to plan for.
pub(super) struct Room {
    pub(super) cards: Vec<Card>,
    host: Option<PlannedHost>,
    doubts: Vec<Reason>,
}

impl Room {
    /// The described cards, else those of this machine, else its host memory.
    pub(super) fn find(arguments: &Arguments) -> Result<Self, ErrorReport> {
        let given = arguments
            .host
            .map(|HostSize(total)| PlannedHost { room: HostRoom { total, free: total }, is_shared: false });
        if !arguments.cards.is_empty() {
            let doubts = arguments.cards.iter().flat_map(|spec| &spec.doubts);
            return Ok(Self {
                cards: described(&arguments.cards),
                host: given,
                doubts: doubts.map(|doubt| Reason::new("card_in_doubt", doubt.clone())).collect(),
            });
        }
        // NVML needs no CUDA context, so planning takes no memory of the card.
        let machine = plimsoll_cards::look();
        let cards = served(&machine);
        let seen = machine.host.as_ref().map(|host| PlannedHost {
            room: HostRoom { total: host.total, free: host.free },
            is_shared: machine.unified || cards.iter().any(|card| card.shares_host),
        });
        if !cards.is_empty() {
            return Ok(Self { cards, host: given.or(seen), doubts: Vec::new() });
        }
        let host = machine.host.clone().ok_or_else(no_card)?;
        let text = format!(
            "{}, so the plan is for host memory{}; describe another machine's card with --card, or \
                examine this machine with `plimsoll doctor`",
            why_host(&machine),
            machine.kernel_cards.iter().filter_map(described_by).collect::<String>()
        );
        Ok(Self { cards: vec![host], host: None, doubts: vec![Reason::new("no_card_seen", text)] })
    }

    /// Memory of the host, if it is known.
    pub(super) fn host_total(&self) -> Option<Bytes> {
        self.host.map(|host| host.room.total)
    }

    /// The limit that the host's memory sets.
    pub(super) fn limit<'a>(&'a self, estimate: &'a Estimate) -> HostLimit<'a> {
        HostLimit { estimate, cards: &self.cards, host: self.host }
    }

    /// Doubts that hold for every plan of these flags.
    pub(super) fn doubts(&self, options: &Options) -> Vec<Reason> {
        let flags = options.remarks();
        let flags = flags.iter().map(|remark| Reason::new("flag_misread", remark.to_string()));
        flags.chain(missing_adapters(options)).chain(self.doubts.iter().cloned()).collect()
    }
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

/// Adapters (LoRA) that are not on this machine, by their paths.
fn missing_adapters(options: &Options) -> Vec<Reason> {
    let params = options.params(ProgramKind::LlamaServer);
    let adapters = params.map(|params| params.adapters).unwrap_or_default();
    let missing = adapters.into_iter().filter(|path| !std::path::Path::new(path).exists());
    let stated = |path: String| {
        let text = format!(
            "the adapter {path} is not on this machine, so neither its size nor its need is known; where it is missing, \
            llama-server does not start"
        );
        Reason::new("adapter_missing", text).fact("path", path)
    };
    missing.map(stated).collect()
}

/// The described cards; those of one name are numbered: two `name=H200` are `H200` and `H200#2`.
pub(super) fn described(specs: &[CardSpec]) -> Vec<Card> {
    let mut cards: Vec<Card> = Vec::with_capacity(specs.len());
    for card in specs.iter().flat_map(|spec| &spec.cards) {
        let same = cards
            .iter()
            // A UUID distinguishes cards already; only cards without one, or with the same one, need a
            // number.
            .filter(|other| other.name == card.name && other.uuid == card.uuid)
            .count();
        let id = if same == 0 { card.id.clone() } else { CardId::new(&format!("{}#{}", card.id, same + 1)) };
        cards.push(Card { id, ..card.clone() });
    }
    cards
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

    #[test]
    fn an_adapter_that_is_not_there_is_named() {
        let options = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Options::from_argv(&words).unwrap()
        };
        let stated = missing_adapters(&options(
            "-m m.gguf --lora /nowhere/a.gguf,/ --lora-scaled /nowhere/b.gguf:0.5",
        ));
        let paths: Vec<&str> = stated.iter().map(|reason| reason.text.as_str()).collect();
        assert_eq!(paths.len(), 2, "{paths:?}");
        assert!(
            paths[0].contains("/nowhere/a.gguf") && paths[1].contains("/nowhere/b.gguf is not"),
            "{paths:?}"
        );
    }

    #[test]
    fn a_host_needs_a_unit_and_may_be_named_total() {
        for text in ["32GiB", "total=32GiB"] {
            assert_eq!(text.parse::<HostSize>().unwrap().0, Bytes::gib(32));
        }
        for text in ["32", "", "total=", "much"] {
            assert!(text.parse::<HostSize>().is_err(), "{text}");
        }
    }
}
