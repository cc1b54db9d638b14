//! What a child sees of the machine's cards, and the numbers by which it then knows them.
//!
//! A child's cards are named by UUID in `CUDA_VISIBLE_DEVICES`, so it counts them from 0 in that order. A user who
//! wrote `-dev CUDA1` or `--main-gpu 1` counted all cards in the order of the PCI bus. These numbers are rewritten
//! here, and only these: with `-dev` given, `--main-gpu` and `--tensor-split` count along that list in
//! llama.cpp (`llama.cpp: llama_prepare_model_devices @ b10605`) and are right as they stand.

use super::environment::Environment;

/// Which cards a child may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visible {
    /// These UUIDs, in this order.
    Cards(Vec<String>),
    /// None: it runs on the host and must not open a context anywhere.
    NoCard,
    /// We do not know the cards (no NVML, or not NVIDIA): what the daemon sees.
    AsInherited,
}

/// A command line with the child's own numbers in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renumbered {
    pub arguments: Vec<String>,
    /// What named a card that the child does not get, as `flag value`; it was left out.
    pub dropped: Vec<String>,
}

const DEVICES: &[&str] = &[
    "-dev",
    "--device",
    "-devd",
    "--device-draft",
    "--spec-draft-device",
];
const BUFFERS: &[&str] = &[
    "-ot",
    "--override-tensor",
    "-otd",
    "--override-tensor-draft",
    "--spec-draft-override-tensor",
];
const MAIN_GPU: &[&str] = &["-mg", "--main-gpu"];
const TENSOR_SPLIT: &[&str] = &["-ts", "--tensor-split"];
/// The same in the environment, each with a spelling of its flag.
const VARIABLES: &[(&str, &str)] = &[
    (CHOSEN_DEVICES, "--device"),
    ("LLAMA_ARG_OVERRIDE_TENSOR", "--override-tensor"),
    ("LLAMA_ARG_MAIN_GPU", "--main-gpu"),
    ("LLAMA_ARG_TENSOR_SPLIT", "--tensor-split"),
];
const CHOSEN_DEVICES: &str = "LLAMA_ARG_DEVICE";

/// Rewrites the numbers of cards in llama-server's arguments.
///
/// `all` are the UUIDs in the order the user counts in; `own` those that the child sees, in its order.
pub fn renumber_devices(arguments: &[String], all: &[String], own: &[String]) -> Renumbered {
    let numbers = own_numbers(all, own);
    let chosen = chooses_devices(arguments);
    let mut result = Renumbered {
        arguments: Vec::with_capacity(arguments.len()),
        dropped: Vec::new(),
    };
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        let Some(rewrite) = rewriter(flag, chosen) else {
            result.arguments.push(flag.clone());
            continue;
        };
        let Some(value) = rest.next() else {
            result.arguments.push(flag.clone());
            break;
        };
        match rewrite(value, &numbers) {
            Some(value) => result.arguments.extend([flag.clone(), value]),
            None => result.dropped.push(format!("{flag} {value}")),
        }
    }
    result
}

/// The same for llama-server's variables in a child's environment; returns what was left out, as `NAME=value`.
///
/// `arguments` are the child's, as the user gave them: they decide whether devices are chosen.
pub fn renumber_variables(
    environment: &mut Environment,
    arguments: &[String],
    all: &[String],
    own: &[String],
) -> Vec<String> {
    let numbers = own_numbers(all, own);
    let chosen = chooses_devices(arguments) || environment.get(CHOSEN_DEVICES).is_some();
    let mut dropped = Vec::new();
    for (name, flag) in VARIABLES {
        let value = environment.get(name).and_then(|value| value.to_str());
        let (Some(value), Some(rewrite)) = (value, rewriter(flag, chosen)) else {
            continue;
        };
        match rewrite(value, &numbers) {
            Some(value) => environment.set(*name, value),
            None => {
                dropped.push(format!("{name}={value}"));
                environment.remove(name);
            }
        }
    }
    dropped
}

/// For each card in the user's order, its number in the child.
fn own_numbers(all: &[String], own: &[String]) -> Vec<Option<usize>> {
    all.iter()
        .map(|uuid| own.iter().position(|other| other == uuid))
        .collect()
}

fn chooses_devices(arguments: &[String]) -> bool {
    arguments
        .iter()
        .any(|argument| ["-dev", "--device"].contains(&argument.as_str()))
}

type Rewrite = fn(&str, &[Option<usize>]) -> Option<String>;

fn rewriter(flag: &str, chosen: bool) -> Option<Rewrite> {
    match flag {
        _ if DEVICES.contains(&flag) => Some(devices),
        _ if BUFFERS.contains(&flag) => Some(buffers),
        _ if !chosen && MAIN_GPU.contains(&flag) => Some(main_gpu),
        _ if !chosen && TENSOR_SPLIT.contains(&flag) => Some(tensor_split),
        _ => None,
    }
}

/// `CUDA1` by the child's numbers; what is no CUDA device stays as it is.
fn device(name: &str, numbers: &[Option<usize>]) -> Option<String> {
    let Some(number) = name
        .strip_prefix("CUDA")
        .and_then(|digits| digits.parse::<usize>().ok())
    else {
        return Some(name.to_owned());
    };
    let own = numbers.get(number).copied().flatten()?;
    Some(format!("CUDA{own}"))
}

/// `-dev CUDA1,CUDA3`
fn devices(value: &str, numbers: &[Option<usize>]) -> Option<String> {
    let kept: Vec<String> = value
        .split(',')
        .filter_map(|name| device(name.trim(), numbers))
        .collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

/// `-ot pattern=CUDA1,pattern=CPU`
fn buffers(value: &str, numbers: &[Option<usize>]) -> Option<String> {
    let kept: Vec<String> = value
        .split(',')
        .filter_map(|pair| match pair.rsplit_once('=') {
            Some((pattern, buffer)) => Some(format!("{pattern}={}", device(buffer, numbers)?)),
            None => Some(pair.to_owned()),
        })
        .collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

fn main_gpu(value: &str, numbers: &[Option<usize>]) -> Option<String> {
    match value.trim().parse::<usize>() {
        Ok(number) => numbers.get(number).copied().flatten().map(|own| own.to_string()),
        // Not ours to judge; the engine will.
        Err(_) => Some(value.to_owned()),
    }
}

/// `-ts 3,1,0,2`: one share for each card, in order; llama.cpp separates at commas and slashes.
fn tensor_split(value: &str, numbers: &[Option<usize>]) -> Option<String> {
    let mut shares: Vec<(usize, &str)> = value
        .split([',', '/'])
        .zip(numbers)
        .filter_map(|(share, own)| Some(((*own)?, share.trim())))
        .collect();
    shares.sort_by_key(|(own, _)| *own);
    let kept: Vec<&str> = shares.into_iter().map(|(_, share)| share).collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renumber(arguments: &[&str], own: &[&str]) -> Renumbered {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        renumber_devices(&words(arguments), &words(&["a", "b", "c", "d"]), &words(own))
    }

    #[test]
    fn cards_are_named_by_the_numbers_that_the_child_counts_in() {
        for (before, own, after) in [
            (&["-dev", "CUDA1"][..], &["b"][..], &["-dev", "CUDA0"][..]),
            (
                &["--device", "CUDA1,CUDA3"],
                &["d", "b"],
                &["--device", "CUDA1,CUDA0"],
            ),
            (&["-mg", "3", "-c", "1"], &["b", "d"], &["-mg", "1", "-c", "1"]),
            (&["-ts", "1,2,3,4"], &["b", "d"], &["-ts", "2,4"]),
            (&["-ts", "1/2/3/4"], &["d", "a"], &["-ts", "4,1"]),
            (
                &["-ot", "exps=CPU,attn=CUDA2"],
                &["c"],
                &["-ot", "exps=CPU,attn=CUDA0"],
            ),
            (&["-dev", "none"], &[], &["-dev", "none"]),
            (&["-dev", "Vulkan1"], &["b"], &["-dev", "Vulkan1"]),
            (&["-m", "CUDA1"], &["b"], &["-m", "CUDA1"]),
        ] {
            let result = renumber(before, own);
            assert_eq!(result.arguments, after, "{before:?}");
            assert!(result.dropped.is_empty());
        }
    }

    #[test]
    fn a_chosen_device_list_is_what_the_other_numbers_count_along() {
        let result = renumber(&["-dev", "CUDA1,CUDA3", "-mg", "1", "-ts", "1,2"], &["b", "d"]);
        assert_eq!(
            result.arguments,
            ["-dev", "CUDA0,CUDA1", "-mg", "1", "-ts", "1,2"]
        );
    }

    #[test]
    fn variables_are_renumbered_like_their_flags() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let set = || {
            let pairs = [
                ("LLAMA_ARG_MAIN_GPU", "3"),
                ("LLAMA_ARG_TENSOR_SPLIT", "1,2,3,4"),
                ("HOME", "/"),
            ];
            pairs
                .map(|(name, value)| (name.into(), value.into()))
                .into_iter()
                .collect::<Environment>()
        };
        let (all, own) = (words(&["a", "b", "c", "d"]), words(&["b", "d"]));
        let mut environment = set();
        assert!(renumber_variables(&mut environment, &[], &all, &own).is_empty());
        assert_eq!(environment.get("LLAMA_ARG_MAIN_GPU").unwrap(), "1");
        assert_eq!(environment.get("LLAMA_ARG_TENSOR_SPLIT").unwrap(), "2,4");

        let mut chosen = set();
        renumber_variables(&mut chosen, &words(&["-dev", "CUDA1"]), &all, &own);
        assert_eq!(chosen, set());

        let mut elsewhere = set();
        let dropped = renumber_variables(&mut elsewhere, &[], &all, &words(&["b"]));
        assert_eq!(dropped, ["LLAMA_ARG_MAIN_GPU=3"]);
        assert_eq!(elsewhere.get("LLAMA_ARG_MAIN_GPU"), None);
    }

    #[test]
    fn what_names_a_card_of_others_is_left_out_and_said() {
        let result = renumber(&["-mg", "0", "-ts"], &["b"]);
        assert_eq!(
            (result.arguments, result.dropped),
            (vec!["-ts".to_owned()], vec!["-mg 0".to_owned()])
        );
    }
}
