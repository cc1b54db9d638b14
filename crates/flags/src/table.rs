//! Table of llama-server's flags: spellings, environment variable, and the setter that stores the value in
//! [`ModelParams`].
//!
//! The rows follow `common/arg.cpp: common_params_parser_init @ b10605`, plus flags of 0.5.0 and b11549, of
//! older builds and of ik_llama.cpp. CONTRIBUTING.md says how to add a flag.

use std::collections::HashMap;
use std::sync::LazyLock;

use plimsoll_base::Order;

use super::failure::FlagError;
use super::given::GivenFlag;
use super::params::{ModelParams, SETTERS};
use super::value::FlagValue;

/// Every flag known, in llama.cpp's order.
pub static FLAGS: LazyLock<Vec<Flag>> = LazyLock::new(|| {
    // Sorted once, because each of three hundred rows looks for its own.
    let mut setters = SETTERS.to_vec();
    setters.order_by_key(|(name, _)| *name);
    include_str!("table/flags.txt").lines().filter_map(|line| row(line, &setters)).collect()
});

/// Arguments that follow a flag on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagArity {
    Nothing,
    /// Nothing, but there is a negative spelling too.
    Switch,
    Value,
    /// A value that older builds did without: `-fa`, `-fa on`.
    OptionalValue,
    /// A value that llama.cpp reads with `std::stoi`.
    Number,
    TwoValues,
}

/// Class of a flag, for code that treats some flags specially.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlagClass {
    None,
    Model,
    /// A model that is fetched first: a repository or an address.
    Remote,
    Projector,
    Adapters,
    ScaledAdapters,
    ControlVectors,
    Devices,
    MainGpu,
    Overrides,
    Fit,
    Draft,
    DraftDevices,
    DraftOverrides,
    DraftRemote,
    Speculation,
    /// A flag that stands for several, e.g. `--gpt-oss-20b-default`.
    Bundle,
    /// Belongs to the router, not to the model: address, keys, where models are.
    Router,
}

/// Writes a flag's value into the parameters that it sets.
pub type Setter = fn(&mut ModelParams, &GivenFlag<'_>) -> Result<(), FlagError>;

/// Engines that accept a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownFlag {
    /// llama-server b10605.
    Today,
    /// Older llama-servers; the text names today's replacement.
    Before(&'static str),
    /// ik_llama.cpp's llama-server.
    Ik,
    /// The preset INI only; never on a command line.
    Preset,
}

/// One row of the table: a flag with all its spellings.
#[derive(Debug)]
pub struct Flag {
    /// In llama.cpp's order; the last is the one to write, the first sorts.
    pub names: Vec<&'static str>,
    pub negations: Vec<&'static str>,
    pub env: Option<&'static str>,
    pub takes: FlagArity,
    pub effect: FlagClass,
    /// `None` for a flag on which no memory depends.
    pub setter: Option<Setter>,
    /// The flags that a bundle sets, as on a command line.
    pub stands_for: Option<&'static str>,
    pub known: KnownFlag,
}

/// Rows are equal if they are the same row.
impl PartialEq for Flag {
    fn eq(&self, other: &Self) -> bool {
        // Function pointers cannot be compared reliably, and the spellings identify a row.
        self.names == other.names
    }
}

impl Flag {
    /// The spelling to write for a value.
    pub fn spelling(&self, value: &FlagValue) -> Option<&'static str> {
        let names = match value {
            FlagValue::Switch(false) => &self.negations,
            _ => &self.names,
        };
        names.last().copied()
    }

    /// The best-known spelling.
    pub fn name(&self) -> &'static str {
        self.names.last().copied().unwrap_or_default()
    }

    /// The variable that switches the flag off; llama.cpp derives its name from the one that switches it on.
    pub fn negative_env(&self) -> Option<String> {
        let env = self.env.filter(|_| !self.negations.is_empty())?;
        // `common_arg::get_value_from_env` derives the name in the same way.
        Some(env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_"))
    }
}

/// Reads a line of `flags.txt`; `None` for a comment. A test holds that every other line is a row.
fn row(line: &'static str, setters: &[(&str, Setter)]) -> Option<Flag> {
    let (kind, mut rest) = line.split_once(' ')?;
    let takes = match kind {
        "bare" => FlagArity::Nothing,
        "switch" => FlagArity::Switch,
        "value" => FlagArity::Value,
        "optional" => FlagArity::OptionalValue,
        "number" => FlagArity::Number,
        "two" => FlagArity::TwoValues,
        _ => return None,
    };
    let mut flag = Flag {
        names: Vec::new(),
        negations: Vec::new(),
        env: None,
        takes,
        // Most flags concern sampling, logging or threads; a row states only what differs.
        effect: FlagClass::None,
        setter: None,
        stands_for: None,
        known: KnownFlag::Today,
    };
    // Word by word, because every command reads the table as it starts. A search of each line for the marks
    // of a bundle and of an older flag takes three times as long.
    while !rest.is_empty() {
        // Byte by byte, because words are too short for `split_once` to gain on them.
        let (word, after) = rest.split_at(rest.bytes().position(|byte| byte == b' ').unwrap_or(rest.len()));
        rest = after.strip_prefix(' ').unwrap_or_default();
        match word.split_at_checked(1)? {
            ("-", "-") => flag.known = KnownFlag::Before(std::mem::take(&mut rest)),
            ("=", "") => flag.stands_for = Some(std::mem::take(&mut rest)),
            ("!", name) => flag.negations.push(name),
            ("$", name) => flag.env = Some(name),
            ("@", "ik") => flag.known = KnownFlag::Ik,
            ("@", "preset") => flag.known = KnownFlag::Preset,
            ("@", name) => flag.effect = EFFECTS.iter().find(|(known, _)| *known == name)?.1,
            _ => flag.names.push(word),
        }
    }
    let name = flag.name();
    let place = setters.binary_search_by_key(&name, |(known, _)| *known);
    flag.setter = place.ok().and_then(|place| Some(setters.get(place)?.1));
    Some(flag)
}

/// Words of `flags.txt` for the classes of flags.
const EFFECTS: [(&str, FlagClass); 17] = [
    ("model", FlagClass::Model),
    ("remote", FlagClass::Remote),
    ("projector", FlagClass::Projector),
    ("adapters", FlagClass::Adapters),
    ("scaled-adapters", FlagClass::ScaledAdapters),
    ("control-vectors", FlagClass::ControlVectors),
    ("devices", FlagClass::Devices),
    ("main-gpu", FlagClass::MainGpu),
    ("overrides", FlagClass::Overrides),
    ("fit", FlagClass::Fit),
    ("draft", FlagClass::Draft),
    ("draft-devices", FlagClass::DraftDevices),
    ("draft-overrides", FlagClass::DraftOverrides),
    ("draft-remote", FlagClass::DraftRemote),
    ("speculation", FlagClass::Speculation),
    ("bundle", FlagClass::Bundle),
    ("router", FlagClass::Router),
];

/// A spelling found in the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FoundFlag {
    pub flag: &'static Flag,
    /// The spelling as the table has it.
    pub spelling: &'static str,
    /// The spelling is one of the negative ones.
    pub negative: bool,
}

/// Looks an argument up. As llama.cpp does, `_` counts as `-` in a long flag.
pub fn by_argument(argument: &str) -> Option<FoundFlag> {
    // `common_params_parse_ex @ b10605` replaces underscores in long flags only.
    if argument.starts_with("--") && argument.contains('_') {
        return ARGUMENTS.get(argument.replace('_', "-").as_str()).copied();
    }
    ARGUMENTS.get(argument).copied()
}

/// Looks a key of a preset INI up: a spelling without its dashes, or a variable
/// (`common/preset.cpp: get_map_key_opt`).
pub fn by_key(key: &str) -> Option<FoundFlag> {
    KEYS.get(key).copied()
}

fn spellings(flag: &'static Flag) -> impl Iterator<Item = FoundFlag> {
    let found = move |negative| move |&spelling: &&'static str| FoundFlag { flag, spelling, negative };
    flag.names.iter().map(found(false)).chain(flag.negations.iter().map(found(true)))
}

static ARGUMENTS: LazyLock<HashMap<&'static str, FoundFlag>> = LazyLock::new(|| {
    // Preset keys are no flags: llama-server refuses them on a command line.
    let on_a_line = FLAGS.iter().filter(|flag| flag.known != KnownFlag::Preset);
    // Room at once: a map that grows hashes each name again.
    let mut arguments = HashMap::with_capacity(3 * FLAGS.len());
    arguments.extend(on_a_line.flat_map(spellings).map(|found| (found.spelling, found)));
    arguments
});

static KEYS: LazyLock<HashMap<String, FoundFlag>> = LazyLock::new(|| {
    let mut keys = HashMap::new();
    for flag in FLAGS.iter() {
        let variables = flag.env.map(str::to_owned).into_iter().chain(flag.negative_env());
        for variable in variables {
            // The negative variable is a key too, but llama.cpp reads its value as if it were the positive
            // one.
            let spelling = flag.env.unwrap_or_default();
            let found = FoundFlag { flag, spelling, negative: false };
            // Spellings are added after the variables and would win; no name is in both sets.
            keys.insert(variable, found);
        }
        keys.extend(spellings(flag).map(|found| (found.spelling.trim_start_matches('-').to_owned(), found)));
    }
    keys
});

/// Other programs' names for the context.
const CONTEXT: [&str; 6] = ["context", "context-size", "context-length", "n-ctx", "num-ctx", "max-model-len"];

/// Returns the known spelling nearest to a mistyped or shortened one, if any is near.
pub fn nearest(argument: &str) -> Option<&'static str> {
    let long = argument.starts_with("--");
    let typed = argument.trim_start_matches('-');
    if CONTEXT.contains(&typed.replace('_', "-").as_str()) {
        return Some("--ctx-size");
    }
    let all = || FLAGS.iter().filter(|flag| flag.known == KnownFlag::Today).flat_map(spellings);
    let rest = |found: &FoundFlag| found.spelling.strip_prefix("--")?.strip_prefix(typed)?.strip_prefix('-');
    let begun = all().filter(|found| typed.len() > 2 && rest(found).is_some());
    if let Some(found) = begun.min_by_key(|found| found.spelling.len()) {
        return Some(found.spelling);
    }
    all()
        .filter(|found| long == found.spelling.starts_with("--"))
        .filter_map(|found| {
            let name = found.spelling.trim_start_matches('-');
            // A third of the letters: enough for transpositions and missing letters, too little for other
            // flags.
            distance_within(typed, name, name.len() / 3).map(|distance| (distance, found.spelling))
        })
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, spelling)| spelling)
}

/// Levenshtein distance, if it is not above `limit`. Long input cannot cost more than the known word allows.
pub fn distance_within(typed: &str, known: &str, limit: usize) -> Option<usize> {
    // Hostile input is long: this check bounds the work by the length of the known word.
    if typed.len().abs_diff(known.len()) > limit {
        return None;
    }
    let known: Vec<char> = known.chars().collect();
    let mut row: Vec<usize> = (0..=known.len()).collect();
    for (i, typed) in typed.chars().enumerate() {
        // One row of the distance matrix at a time; `diagonal` is the value above and to the left.
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &wanted) in known.iter().enumerate() {
            let replaced = diagonal + usize::from(typed != wanted);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().filter(|&distance| distance <= limit)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Spellings and variables of every server flag of b10605, one flag a line, drawn from its source once.
    const NAMES: &str = include_str!("table/llama-server-flags-b10605.txt");
    /// Those that 0.5.0 and b11549 have in addition, from their `--help`.
    const NEWER: &str = include_str!("table/llama-server-flags-newer.txt");

    #[test]
    fn the_table_holds_every_flag_of_b10605_and_of_newer_builds_and_no_other_as_todays() {
        let ours: BTreeSet<String> = FLAGS
            .iter()
            .filter(|flag| {
                matches!(flag.known, KnownFlag::Today | KnownFlag::Preset)
                    || NAMES.contains(&flag.names.join(" "))
            })
            .map(|flag| {
                let spellings = spellings(flag).map(|found| found.spelling);
                spellings.chain(flag.env).collect::<Vec<_>>().join(" ")
            })
            .collect();
        let theirs: BTreeSet<String> = NAMES.lines().chain(NEWER.lines()).map(str::to_owned).collect();
        assert_eq!(ours, theirs);
    }

    #[test]
    fn every_line_is_a_row_and_every_setter_has_one() {
        let lines = include_str!("table/flags.txt").lines();
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        assert_eq!(FLAGS.len(), lines.count());
        for (name, _) in SETTERS {
            assert!(FLAGS.iter().any(|flag| flag.name() == *name), "{name}");
        }
    }

    #[test]
    fn no_spelling_means_two_flags() {
        let mut seen = HashMap::new();
        for found in FLAGS.iter().flat_map(spellings) {
            let before = seen.insert(found.spelling, found.flag.name());
            assert_eq!(before, None, "{} twice", found.spelling);
        }
    }

    #[test]
    fn only_a_switch_has_a_negative_spelling() {
        for flag in FLAGS.iter() {
            assert_eq!(flag.takes == FlagArity::Switch, !flag.negations.is_empty(), "{}", flag.name());
        }
    }

    #[test]
    fn underscores_count_as_dashes_in_long_flags_only() {
        assert_eq!(by_argument("--ctx_size").unwrap().spelling, "--ctx-size");
        assert!(by_argument("-no_kvu").is_none());
        assert!(by_argument("--load-on-startup").is_none());
    }

    #[test]
    fn keys_are_spellings_without_dashes_and_variables() {
        for key in ["c", "ctx-size", "LLAMA_ARG_CTX_SIZE"] {
            assert_eq!(by_key(key).unwrap().flag.name(), "--ctx-size", "{key}");
        }
        assert!(by_key("no-mmap").unwrap().negative);
        assert!(by_key("LLAMA_ARG_NO_MMAP").is_some());
        assert!(by_key("ctx_size").is_none());
        assert_eq!(by_key("load-on-startup").unwrap().flag.known, KnownFlag::Preset);
    }

    #[test]
    fn a_typo_finds_its_flag() {
        assert_eq!(nearest("--ctx-sise"), Some("--ctx-size"));
        for begun in ["-ctx", "--ctx", "--context", "--n_ctx", "--context-length"] {
            assert_eq!(nearest(begun), Some("--ctx-size"), "{begun}");
        }
        assert_eq!(nearest("--gpu-layer"), Some("--gpu-layers"));
        assert_eq!(nearest("-nglx"), Some("-ngl"));
        assert_eq!(nearest("--entirely-different"), None);
        assert_eq!(nearest(&"-".repeat(100_000)), None);
    }
}
