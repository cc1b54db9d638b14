//! Limits the cards that a child process sees, and knows by which numbers the process then sees them.
//!
//! Each runtime's variable lists a child's cards by their identities, so the child numbers them from 0. The
//! user's flags number all cards of the machine that the engine can use, so they are rewritten.

use plimsoll_base::Order;

use plimsoll_process::Environment;

/// Cards that a child may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visible {
    /// These, in this order.
    Cards(VisibleCards),
    /// None: it runs on the host and must not open a context anywhere.
    NoCard,
    /// The cards are only described: the child gets those that the daemon sees.
    AsInherited,
}

/// A child's cards, by the names that each runtime has for them. A runtime without a name sees none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VisibleCards {
    /// UUIDs of NVIDIA's.
    pub cuda: Vec<String>,
    /// UUIDs of AMD's, and the numbers in ROCr of those that have none.
    pub rocr: Vec<String>,
    /// Numbers of Intel's in Level Zero, in the order of the PCI bus.
    pub level_zero: Vec<usize>,
}

const DEVICE: &[&str] = &["-dev", "--device"];
const OTHER_DEVICES: &[&str] =
    &["-devd", "--device-draft", "--spec-draft-device", "-mmdev", "--mmproj-device"];
const BUFFERS: &[&str] =
    &["-ot", "--override-tensor", "-otd", "--override-tensor-draft", "--spec-draft-override-tensor"];
const MAIN_GPU: &[&str] = &["-mg", "--main-gpu"];
const TENSOR_SPLIT: &[&str] = &["-ts", "--tensor-split"];
/// Environment variables of these flags, each with a spelling of its flag.
const VARIABLES: &[(&str, &str)] = &[
    (CHOSEN_DEVICES, "--device"),
    ("MTMD_BACKEND_DEVICE", "--mmproj-device"),
    ("LLAMA_ARG_OVERRIDE_TENSOR", "--override-tensor"),
    ("LLAMA_ARG_MAIN_GPU", "--main-gpu"),
    ("LLAMA_ARG_TENSOR_SPLIT", "--tensor-split"),
];
const CHOSEN_DEVICES: &str = "LLAMA_ARG_DEVICE";

/// Rewrites card numbers in llama-server's arguments and variables.
///
/// `all` are the cards in the order of the user's numbers; `own` are those that the child sees, in its order.
/// Arguments that name a card which the child does not get are left out and returned, as `flag value` or
/// `NAME=value`.
pub fn renumber(
    arguments: &mut Vec<String>,
    environment: &mut Environment,
    all: &[String],
    own: &[String],
) -> Vec<String> {
    // With `-dev`, `--main-gpu` and `--tensor-split` count within its list (`llama.cpp:
    // llama_prepare_model_devices @ b10605`).
    let numbers = CardNumbering::new(arguments, environment, all, own);
    let mut dropped = numbers.rewrite_variables(environment);
    let mut kept = Vec::with_capacity(arguments.len());
    let mut rest = std::mem::take(arguments).into_iter();
    while let Some(flag) = rest.next() {
        let Some(rewrite) = rewriter(&flag) else {
            kept.push(flag);
            continue;
        };
        // A flag without its value is the engine's to report.
        let Some(value) = rest.next() else {
            kept.push(flag);
            break;
        };
        match rewrite(&value, &numbers) {
            Some(value) => kept.extend([flag, value]),
            None => dropped.push(format!("{flag} {value}")),
        }
    }
    *arguments = kept;
    dropped
}

/// The child's card numbers for the user's.
struct CardNumbering {
    /// For each card, its number in the child.
    cards: Vec<Option<usize>>,
    /// For each position of `-dev`, its position among the child's cards; without `-dev` the same as `cards`.
    list: Vec<Option<usize>>,
}

impl CardNumbering {
    fn new(arguments: &[String], environment: &Environment, all: &[String], own: &[String]) -> Self {
        let cards: Vec<Option<usize>> =
            all.iter().map(|card| own.iter().position(|other| other == card)).collect();
        // The flag wins over its variable, as in llama.cpp (`arg.cpp: common_params_parse_ex @ b10605`).
        let variable = environment.get(CHOSEN_DEVICES).and_then(|value| value.to_str());
        let Some(chosen) = last_value(arguments, DEVICE).or(variable) else {
            return Self { list: cards.clone(), cards };
        };
        // Only the names that the child keeps are numbered: the others leave no gap.
        let mut next = 0..;
        let list = chosen.split(',').map(|name| {
            device(name.trim(), &cards)?;
            next.next()
        });
        Self { list: list.collect(), cards }
    }

    fn rewrite_variables(&self, environment: &mut Environment) -> Vec<String> {
        let mut dropped = Vec::new();
        for (name, flag) in VARIABLES {
            let value = environment.get(name).and_then(|value| value.to_str());
            let (Some(value), Some(rewrite)) = (value, rewriter(flag)) else {
                continue;
            };
            match rewrite(value, self) {
                Some(value) => environment.set(*name, value),
                None => {
                    dropped.push(format!("{name}={value}"));
                    environment.remove(name);
                }
            }
        }
        dropped
    }
}

/// The value of the last of these flags.
fn last_value<'a>(arguments: &'a [String], flags: &[&str]) -> Option<&'a str> {
    // Where a flag is repeated, llama.cpp takes the last one.
    let at = arguments.iter().rposition(|argument| flags.contains(&spelling(argument).as_str()))?;
    arguments.get(at + 1).map(String::as_str)
}

/// llama.cpp takes `_` for `-` in the long ones (`arg.cpp: common_params_parse_ex @ b10605`).
fn spelling(argument: &str) -> String {
    if argument.starts_with("--") { argument.replace('_', "-") } else { argument.to_owned() }
}

type Rewrite = fn(&str, &CardNumbering) -> Option<String>;

fn rewriter(argument: &str) -> Option<Rewrite> {
    let flag = spelling(argument);
    let is_in = |flags: &[&str]| flags.contains(&flag.as_str());
    match () {
        () if is_in(DEVICE) || is_in(OTHER_DEVICES) => Some(devices),
        () if is_in(BUFFERS) => Some(buffers),
        () if is_in(MAIN_GPU) => Some(main_gpu),
        () if is_in(TENSOR_SPLIT) => Some(tensor_split),
        () => None,
    }
}

/// Converts a name such as `CUDA1` or `Vulkan1` to the child's number; names that are no card's stay
/// unchanged.
fn device(name: &str, cards: &[Option<usize>]) -> Option<String> {
    let Some((interface, number)) = plimsoll_flags::device_number(name) else {
        return Some(name.to_owned());
    };
    let own = cards.get(number).copied().flatten()?;
    Some(format!("{interface}{own}"))
}

/// `-dev CUDA1,CUDA3`
fn devices(value: &str, numbers: &CardNumbering) -> Option<String> {
    let kept: Vec<String> = value.split(',').filter_map(|name| device(name.trim(), &numbers.cards)).collect();
    // With no device left the flag goes, and the child uses the cards that it sees.
    (!kept.is_empty()).then(|| kept.join(","))
}

/// `-ot pattern=CUDA1,pattern=CPU`
fn buffers(value: &str, numbers: &CardNumbering) -> Option<String> {
    let kept: Vec<String> = value
        .split(',')
        .filter_map(|pair| match pair.rsplit_once('=') {
            // A pattern is a regular expression and may hold `=`; the name of a buffer does not.
            Some((pattern, buffer)) => Some(format!("{pattern}={}", device(buffer, &numbers.cards)?)),
            None => Some(pair.to_owned()),
        })
        .collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

fn main_gpu(value: &str, numbers: &CardNumbering) -> Option<String> {
    match value.trim().parse::<usize>() {
        Ok(number) => numbers.list.get(number).copied().flatten().map(|own| own.to_string()),
        // Not ours to judge; the engine will.
        Err(_) => Some(value.to_owned()),
    }
}

/// `-ts 3,1,0,2`: one share for each card, in order; llama.cpp separates at commas and slashes.
fn tensor_split(value: &str, numbers: &CardNumbering) -> Option<String> {
    // llama.cpp separates at `[,/]+`, so empty shares do not count.
    let mut shares: Vec<(usize, &str)> = value
        .split([',', '/'])
        .filter(|share| !share.is_empty())
        .zip(&numbers.list)
        .filter_map(|(share, own)| Some(((*own)?, share.trim())))
        .collect();
    // llama.cpp takes the shares in the child's own order of cards.
    shares.order_by_key(|(own, _)| *own);
    let kept: Vec<&str> = shares.into_iter().map(|(_, share)| share).collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// The arguments afterwards, and what was left out.
    fn renumbered(arguments: &[&str], own: &[&str]) -> (Vec<String>, Vec<String>) {
        let mut arguments = words(arguments);
        let all = words(&["a", "b", "c", "d"]);
        let dropped = renumber(&mut arguments, &mut Environment::default(), &all, &words(own));
        (arguments, dropped)
    }

    #[test]
    fn cards_are_named_by_the_numbers_that_the_child_counts_in() {
        for (before, own, after) in [
            (&["-dev", "CUDA1"][..], &["b"][..], &["-dev", "CUDA0"][..]),
            (&["--device", "CUDA1,CUDA3"], &["d", "b"], &["--device", "CUDA1,CUDA0"]),
            (&["-mg", "3", "-c", "1"], &["b", "d"], &["-mg", "1", "-c", "1"]),
            (&["--main_gpu", "1"], &["b"], &["--main_gpu", "0"]),
            (&["-ts", "1,2,3,4"], &["b", "d"], &["-ts", "2,4"]),
            (&["-ts", "1/2/3/4"], &["d", "a"], &["-ts", "4,1"]),
            (&["-ot", "exps=CPU,attn=CUDA2"], &["c"], &["-ot", "exps=CPU,attn=CUDA0"]),
            (&["-mmdev", "CUDA2"], &["b", "c"], &["-mmdev", "CUDA1"]),
            (&["-dev", "none"], &[], &["-dev", "none"]),
            (&["-dev", "Vulkan1"], &["b"], &["-dev", "Vulkan0"]),
            (&["-dev", "RPC1"], &["b"], &["-dev", "RPC1"]),
            (&["-m", "CUDA1"], &["b"], &["-m", "CUDA1"]),
        ] {
            let (arguments, dropped) = renumbered(before, own);
            assert_eq!(arguments, after, "{before:?}");
            assert!(dropped.is_empty());
        }
    }

    #[test]
    fn a_chosen_device_list_is_what_the_other_numbers_count_along() {
        let list = ["-dev", "CUDA3,CUDA1", "-mg", "1", "-ts", "1,2"];
        let (whole, _) = renumbered(&list, &["b", "d"]);
        assert_eq!(whole, ["-dev", "CUDA1,CUDA0", "-mg", "1", "-ts", "1,2"]);
        let (main, _) = renumbered(&list, &["b"]);
        assert_eq!(main, ["-dev", "CUDA0", "-mg", "0", "-ts", "2"]);
    }

    #[test]
    fn variables_are_renumbered_like_their_flags() {
        let set = || {
            let pairs = [("LLAMA_ARG_MAIN_GPU", "3"), ("LLAMA_ARG_TENSOR_SPLIT", "1,2,3,4"), ("HOME", "/")];
            pairs.map(|(name, value)| (name.into(), value.into())).into_iter().collect::<Environment>()
        };
        let all = words(&["a", "b", "c", "d"]);
        let mut environment = set();
        assert!(renumber(&mut Vec::new(), &mut environment, &all, &words(&["b", "d"])).is_empty());
        assert_eq!(environment.get("LLAMA_ARG_MAIN_GPU").unwrap(), "1");
        assert_eq!(environment.get("LLAMA_ARG_TENSOR_SPLIT").unwrap(), "2,4");

        let mut elsewhere = set();
        let dropped = renumber(&mut Vec::new(), &mut elsewhere, &all, &words(&["b"]));
        assert_eq!(dropped, ["LLAMA_ARG_MAIN_GPU=3"]);
        assert_eq!(elsewhere.get("LLAMA_ARG_MAIN_GPU"), None);
    }

    #[test]
    fn a_flag_counts_along_the_list_of_a_variable() {
        let mut environment: Environment =
            [("LLAMA_ARG_DEVICE".into(), "CUDA1,CUDA3".into())].into_iter().collect();
        let mut arguments = words(&["-mg", "1"]);
        let all = words(&["a", "b", "c", "d"]);
        renumber(&mut arguments, &mut environment, &all, &words(&["d"]));
        assert_eq!(arguments, ["-mg", "0"]);
        assert_eq!(environment.get("LLAMA_ARG_DEVICE").unwrap(), "CUDA0");
    }

    #[test]
    fn flags_naming_an_unassigned_card_are_dropped_and_reported() {
        assert_eq!(renumbered(&["-mg", "0", "-ts"], &["b"]), (words(&["-ts"]), words(&["-mg 0"])));
    }
}
