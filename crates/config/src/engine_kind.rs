//! Recognises engines other than llama-server by their command. It knows how each reports readiness, and
//! finds the share of a card that its flags reserve.

use plimsoll_base::Bytes;
use plimsoll_vllm::{CONTEXT, Utilisation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::freeing::Freeing;
pub use self::sglang::SglangReserve;

mod freeing;
mod sglang;

/// An engine that a `cmd` starts. Without it, the program's name in the command tells the kind, where it is
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CommandKind {
    Vllm,
    Sglang,
    Tgi,
    Tei,
    Tabbyapi,
    Koboldcpp,
    Whisper,
    StableDiffusion,
    Comfyui,
    Kokoro,
    Speaches,
}

/// A row of the table of kinds.
#[derive(Debug)]
struct CommandTraits {
    kind: CommandKind,
    /// Words of a command that tell the kind: names of programs, modules or folders.
    words: &'static [&'static str],
    /// The path that answers 200 once it is ready.
    check: &'static str,
    /// The flag with the part of each card that it takes.
    share: Option<ShareFlag>,
    /// Flags whose numbers, multiplied, are the cards that it computes on.
    cards: &'static [&'static [&'static str]],
    /// Its start measures free memory, to size its cache or to check itself; memory that changes meanwhile
    /// makes it fail or take a wrong amount.
    measures_free: bool,
    /// Memory in addition to that part, by its flags and on so many cards.
    alongside: fn(&[String], usize) -> Option<SglangReserve>,
}

/// A flag with the part of each card that an engine takes.
#[derive(Clone, Copy, Debug)]
struct ShareFlag {
    flag: &'static str,
    /// Millionths that it takes without the flag, where these are the same on every card.
    usual: Option<u64>,
    /// What the part does not count: the context of the driver, where it is known.
    beyond: Bytes,
}

impl ShareFlag {
    const fn of(flag: &'static str) -> Option<Self> {
        Some(Self { flag, usual: None, beyond: Bytes::ZERO })
    }
}

const fn row(kind: CommandKind, words: &'static [&'static str], check: &'static str) -> CommandTraits {
    CommandTraits {
        kind,
        words,
        check,
        share: None,
        cards: &[],
        measures_free: false,
        alongside: |_, _| None,
    }
}

/// Paths as each server has them: `vllm/entrypoints/openai/api_server.py`,
/// `sglang/srt/entrypoints/http_server.py`, `koboldcpp.py`, `examples/server` of whisper.cpp and
/// stable-diffusion.cpp, `server.py` of ComfyUI.
const KINDS: [CommandTraits; 11] = [
    CommandTraits {
        // `vllm/v1/worker/utils.py:request_memory`: it refuses to start with less, and takes no more for its
        // cache.
        share: Some(ShareFlag {
            flag: "--gpu-memory-utilization",
            usual: Some(Utilisation::DEFAULT.millionths()),
            beyond: CONTEXT,
        }),
        cards: &[&["--tensor-parallel-size", "-tp"], &["--pipeline-parallel-size", "-pp"]],
        // `vllm/v1/worker/gpu_worker.py:determine_available_memory`: "Error in memory profiling".
        measures_free: true,
        ..row(CommandKind::Vllm, &["vllm", "vllm.entrypoints.openai.api_server"], "/health")
    },
    CommandTraits {
        share: ShareFlag::of("--mem-fraction-static"),
        cards: &[
            &["--tp-size", "--tensor-parallel-size", "--tp"],
            &["--pp-size", "--pipeline-parallel-size", "--pp"],
        ],
        // `sglang/srt/model_executor/model_runner.py:profile_max_num_token`.
        measures_free: true,
        // That part is for weights and cache alone.
        alongside: |argv, cards| Some(SglangReserve::of(argv, cards)),
        ..row(CommandKind::Sglang, &["sglang", "sglang.launch_server"], "/health")
    },
    CommandTraits {
        share: ShareFlag::of("--cuda-memory-fraction"),
        cards: &[&["--num-shard"]],
        // `server/text_generation_server/models/flash_causal_lm.py:warmup`.
        measures_free: true,
        ..row(CommandKind::Tgi, &["text-generation-launcher"], "/health")
    },
    row(CommandKind::Tei, &["text-embeddings-router"], "/health"),
    row(CommandKind::Tabbyapi, &["tabbyapi"], "/health"),
    // It listens once its model is loaded.
    row(CommandKind::Koboldcpp, &["koboldcpp"], "/api/v1/model"),
    row(CommandKind::Whisper, &["whisper-server"], "/health"),
    row(CommandKind::StableDiffusion, &["sd-server"], "/v1/models"),
    row(CommandKind::Comfyui, &["comfyui"], "/system_stats"),
    row(CommandKind::Kokoro, &["kokoro"], "/health"),
    row(CommandKind::Speaches, &["speaches"], "/health"),
];

impl CommandKind {
    /// The kind that a command names.
    pub fn of(argv: &[String]) -> Option<Self> {
        let names = |row: &CommandTraits| {
            argv.iter().any(|word| word.split('/').any(|part| row.words.contains(&name(part).as_str())))
        };
        KINDS.iter().find(|row| names(row)).map(|row| row.kind)
    }

    fn traits(self) -> &'static CommandTraits {
        // `every_kind_has_a_row` holds it.
        KINDS.iter().find(|row| row.kind == self).unwrap_or(&KINDS[0])
    }

    /// The path that answers 200 once it is ready.
    pub fn check(self) -> &'static str {
        self.traits().check
    }

    /// True if its start measures the free memory of its cards.
    pub fn measures_free(self) -> bool {
        self.traits().measures_free
    }

    /// The way in which it frees memory while it is idle, and stays up.
    pub(crate) fn freeing(self, argv: &[String]) -> Option<Freeing> {
        match self {
            Self::Comfyui => Some(Freeing::COMFYUI),
            // Without the flag it keeps no copy of the weights to come back from.
            Self::Vllm => argv.iter().any(|word| word == "--enable-sleep-mode").then_some(Freeing::VLLM),
            _ => None,
        }
    }

    /// The part of each card that the command takes for itself, where its flags say so.
    pub fn part(self, argv: &[String]) -> Option<CardPart> {
        let share = self.traits().share?;
        self.part_of(argv, share, millionths(value(argv, &[share.flag])?)?)
    }

    /// The same, with the part that the engine takes where its flags and no file of its own say another.
    pub fn part_or_usual(self, argv: &[String]) -> Option<CardPart> {
        let share = self.traits().share?;
        if value(argv, &[share.flag, "--config"]).is_some() {
            return self.part(argv);
        }
        self.part_of(argv, share, share.usual?)
    }

    fn part_of(self, argv: &[String], share: ShareFlag, millionths: u64) -> Option<CardPart> {
        let mut cards =
            self.traits().cards.iter().map(|flags| value(argv, flags).map_or(Some(1), |n| n.parse().ok()));
        let cards = cards.try_fold(1_usize, |product, count| product.checked_mul(count?));
        let cards = cards.filter(|cards| *cards > 0)?;
        Some(CardPart {
            millionths,
            flag: share.flag,
            cards,
            beyond: share.beyond,
            alongside: (self.traits().alongside)(argv, cards),
        })
    }
}

/// Memory of a card that no engine is counted to take beyond its part.
const KEPT: Bytes = Bytes::mib(256);

/// A part of each of several cards, and what an engine takes beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardPart {
    pub millionths: u64,
    /// The flag that states it.
    pub flag: &'static str,
    pub cards: usize,
    /// Memory of each card that the part does not count.
    pub beyond: Bytes,
    pub alongside: Option<SglangReserve>,
}

impl CardPart {
    /// A whole card.
    pub const WHOLE: u64 = 1_000_000;

    /// Bytes of a card of this size, which the engine cannot exceed.
    ///
    /// DECISION: what the part does not count ends where 256 MiB are left. An engine that is given nearly the
    /// whole card is alone on it, and a larger claim would only have it refused.
    pub fn of(&self, total: Bytes) -> Bytes {
        let taken = total.scaled(self.millionths, Self::WHOLE) + self.alongside_on(total);
        let beyond = self.beyond.min(total.saturating_sub(taken + KEPT));
        (taken + beyond).min(total)
    }

    fn alongside_on(&self, total: Bytes) -> Bytes {
        self.alongside.map_or(Bytes::ZERO, |alongside| alongside.on(total))
    }

    /// The value of the flag, in hundredths, with which the engine takes at most `bytes` of such a card;
    /// `None` if there is none.
    pub fn within(&self, bytes: Bytes, total: Bytes) -> Option<String> {
        let bytes = bytes.saturating_sub(self.alongside_on(total) + self.beyond);
        let hundredths = bytes.scaled(100, total.get().max(1)).get().min(100);
        (hundredths > 0).then(|| format!("{}.{:02}", hundredths / 100, hundredths % 100))
    }

    /// The value of the flag.
    pub fn value(&self) -> String {
        let text = format!("{}.{:06}", self.millionths / Self::WHOLE, self.millionths % Self::WHOLE);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// The name in a part of a path: `koboldcpp-linux-x64`, `koboldcpp.py` and `KoboldCpp` are `koboldcpp`.
fn name(part: &str) -> String {
    let lower = part.to_ascii_lowercase();
    let stem = lower.strip_suffix(".py").or_else(|| lower.strip_suffix(".exe")).unwrap_or(&lower);
    let stem = stem.split("-linux").next().unwrap_or_default();
    stem.to_owned()
}

/// The last value of a flag, written `--flag value` or `--flag=value`.
fn value<'a>(argv: &'a [String], flags: &[&str]) -> Option<&'a str> {
    let at = |index: usize, word: &'a String| match word.split_once('=') {
        Some((flag, value)) => flags.contains(&flag).then_some(value),
        None => flags.contains(&word.as_str()).then(|| argv.get(index + 1).map(String::as_str)).flatten(),
    };
    argv.iter().enumerate().filter_map(|(index, word)| at(index, word)).next_back()
}

/// `0.45` is 450 000.
fn millionths(text: &str) -> Option<u64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then_some(());
    digits(whole).and(digits(rest))?;
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let rest: u64 = format!("{rest:0<6}").get(..6)?.parse().ok()?;
    let all = whole.checked_mul(CardPart::WHOLE)?.checked_add(rest)?;
    (1..=CardPart::WHOLE).contains(&all).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_kind_is_recognised_by_the_programs_name_and_by_nothing_that_resembles_it() {
        for (line, kind) in [
            ("vllm serve Qwen/Qwen3-8B --port ${PORT}", Some(CommandKind::Vllm)),
            (
                "/opt/venv/bin/python -m vllm.entrypoints.openai.api_server --port ${PORT}",
                Some(CommandKind::Vllm),
            ),
            ("python3 -m sglang.launch_server --port ${PORT}", Some(CommandKind::Sglang)),
            ("./koboldcpp-linux-x64 --port ${PORT}", Some(CommandKind::Koboldcpp)),
            ("python3 koboldcpp.py --port ${PORT}", Some(CommandKind::Koboldcpp)),
            ("/srv/ComfyUI/venv/bin/python /srv/ComfyUI/main.py --port ${PORT}", Some(CommandKind::Comfyui)),
            ("whisper-server --port ${PORT}", Some(CommandKind::Whisper)),
            ("sd-server --listen-port ${PORT}", Some(CommandKind::StableDiffusion)),
            ("my-vllm-proxy --port ${PORT}", None),
            ("llama-server --port ${PORT} --alias vllm-like", None),
        ] {
            assert_eq!(CommandKind::of(&words(line)), kind, "{line}");
        }
    }

    #[test]
    fn every_kind_has_a_row() {
        for row in &KINDS {
            assert_eq!(row.kind.traits().words, row.words);
            assert!(row.check.starts_with('/') && !row.words.is_empty());
        }
    }

    #[test]
    fn a_part_of_a_card_is_read_from_flags_and_never_guessed() {
        let (flag, beyond) = ("--gpu-memory-utilization", CONTEXT);
        let part = |millionths, cards| Some(CardPart { millionths, flag, cards, beyond, alongside: None });
        for (line, expected) in [
            ("vllm serve m --gpu-memory-utilization 0.45", part(450_000, 1)),
            ("vllm serve m --gpu-memory-utilization=.9 -tp 2 --pipeline-parallel-size=2", part(900_000, 4)),
            ("vllm serve m --gpu-memory-utilization 0.3 --gpu-memory-utilization 1.0", part(1_000_000, 1)),
            ("vllm serve m", None),
            ("vllm serve m --gpu-memory-utilization", None),
            ("vllm serve m --gpu-memory-utilization 1.5", None),
            ("vllm serve m --gpu-memory-utilization 0", None),
            ("vllm serve m --gpu-memory-utilization -1", None),
            ("vllm serve m --gpu-memory-utilization 1e-3", None),
            ("vllm serve m --gpu-memory-utilization 99999999999999999999.5", None),
            ("vllm serve m --gpu-memory-utilization 0.5 -tp 0", None),
            ("vllm serve m --gpu-memory-utilization 0.5 -tp 99999999999 -pp 99999999999", None),
            ("vllm serve m --gpu-memory-utilization 0.5 -tp x", None),
        ] {
            assert_eq!(CommandKind::Vllm.part(&words(line)), expected, "{line}");
        }
    }

    #[test]
    fn a_part_is_with_the_context_of_the_driver_and_within_a_size() {
        let total = Bytes::gib(24);
        let part = CommandKind::Vllm.part(&words("vllm serve m --gpu-memory-utilization 0.5")).unwrap();
        assert_eq!((part.value().as_str(), part.of(total)), ("0.5", Bytes::gib(12) + CONTEXT));
        let usual = CommandKind::Vllm.part_or_usual(&words("vllm serve m")).unwrap();
        assert_eq!(usual.value(), "0.92");
        assert_eq!(CommandKind::Vllm.part_or_usual(&words("vllm serve m --config c.yaml")), None);
        let nearly_all = CardPart { millionths: 980_000, ..part };
        assert_eq!(nearly_all.of(total), total.saturating_sub(KEPT));
        assert_eq!(part.within(Bytes::gib(10), total).as_deref(), Some("0.39"));
        let within = CardPart { millionths: 390_000, ..part };
        assert!(within.of(total) <= Bytes::gib(10));
        assert_eq!(part.within(Bytes::mib(500), total), None);
    }
}
