//! Finds the Vulkan device number of each card by running the engine.

use std::path::Path;
use std::sync::Mutex;

use super::identity::{Answers, IdentityError, LIMIT, remembered};
use crate::environment::VULKAN;
use plimsoll_process::Environment;
use plimsoll_process::own_command::own_command;
use plimsoll_process::run;

/// Vulkan numbers that are tried.
const MOST: usize = 16;

/// The product names of the cards by Vulkan's number; none for an engine that has no Vulkan backend, or one
/// for CUDA beside it.
pub fn vulkan_cards(program: &Path, environment: &Environment) -> Result<Vec<String>, IdentityError> {
    // DECISION: `--list-devices` gives no PCI address, so the engine is run with one visible number at a
    // time, and product names are compared. If cards with the same name cannot be distinguished, no number is
    // returned.
    static KNOWN: Answers<Vec<String>> = Mutex::new(Vec::new());
    remembered(&KNOWN, program, |program| {
        let number = |number: usize| -> Result<Option<String>, IdentityError> {
            // Without a card for CUDA, which would open a context on each.
            let shown = [("CUDA_VISIBLE_DEVICES", ""), (VULKAN, &number.to_string())];
            let listed = listed_devices(program, environment, &shown)?;
            Ok(listed.into_iter().find_map(|(device, name)| device.starts_with("Vulkan").then_some(name)))
        };
        let mut names = Vec::new();
        for at in 0..MOST {
            match number(at)? {
                Some(name) => names.push(name),
                None => break,
            }
        }
        let has_cuda = |device: &(String, String)| device.0.starts_with("CUDA");
        if !names.is_empty() && listed_devices(program, environment, &[(VULKAN, "")])?.iter().any(has_cuda) {
            names.clear();
        }
        Ok(names)
    })
}

/// Vulkan's numbers of the cards with these product names; `None` where they cannot be distinguished from
/// others.
pub fn vulkan_numbers(cards: &[String], given: &[&str]) -> Option<Vec<usize>> {
    let of = |name: &str| {
        let same = cards.iter().enumerate().filter(|(_, card)| *card == name);
        same.map(|(number, _)| number).collect::<Vec<_>>()
    };
    let mut numbers = Vec::new();
    for name in given {
        let same = of(name);
        if same.is_empty() || same.len() != given.iter().filter(|other| *other == name).count() {
            return None;
        }
        numbers.extend(same.into_iter().filter(|number| !numbers.contains(number)).collect::<Vec<_>>());
    }
    Some(numbers)
}

/// Devices that the engine lists: its own name for each, and the product's.
fn listed_devices(
    program: &Path,
    environment: &Environment,
    shown: &[(&str, &str)],
) -> Result<Vec<(String, String)>, IdentityError> {
    let failed = |source| IdentityError::Ask { path: program.to_owned(), source };
    let mut command = own_command(program).map_err(failed)?;
    command.arg("--list-devices").env_clear().envs(environment.iter());
    let ended = run(command.envs(shown.iter().copied()), LIMIT).map_err(failed)?;
    Ok(ended.stated.lines().filter_map(listed_device).collect())
}

/// `  Vulkan0: NVIDIA H200 (143771 MiB, 143000 MiB free)`
pub fn listed_device(line: &str) -> Option<(String, String)> {
    let (device, rest) = line.strip_prefix("  ")?.split_once(": ")?;
    let (name, memory) = rest.rsplit_once(" (")?;
    memory.ends_with(" free)").then(|| (device.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_listed_device_is_read_and_other_lines_are_not() {
        let line = "  Vulkan0: llvmpipe (LLVM 22.1.8, 256 bits) (24105 MiB, 22039 MiB free)";
        assert_eq!(
            listed_device(line),
            Some(("Vulkan0".to_owned(), "llvmpipe (LLVM 22.1.8, 256 bits)".to_owned()))
        );
        for line in [
            "",
            "  (none)",
            "Available devices:",
            "  : ",
            "  a: b",
            "  a: b (c)",
            "ggml: x (1 MiB, 1 MiB free)",
        ] {
            assert_eq!(listed_device(line), None, "{line}");
        }
    }

    #[test]
    fn cards_are_told_by_their_names_and_of_the_same_name_all_or_none() {
        let cards = names(&["NVIDIA L4", "llvmpipe", "NVIDIA H200", "NVIDIA H200"]);
        assert_eq!(vulkan_numbers(&cards, &["NVIDIA L4"]), Some(vec![0]));
        assert_eq!(vulkan_numbers(&cards, &["NVIDIA H200", "NVIDIA H200"]), Some(vec![2, 3]));
        assert_eq!(vulkan_numbers(&cards, &["NVIDIA H200", "NVIDIA L4", "NVIDIA H200"]), Some(vec![2, 3, 0]));
        assert_eq!(vulkan_numbers(&cards, &["NVIDIA H200"]), None);
        assert_eq!(vulkan_numbers(&cards, &["NVIDIA A100"]), None);
    }

    #[test]
    fn an_engine_is_shown_one_number_at_a_time_and_one_with_cuda_needs_none() {
        let folder = tempfile::tempdir().unwrap();
        let engine = |name: &str, cuda: &str| {
            let path = folder.path().join(name);
            let text = format!(
                "#!/bin/sh\necho Available devices:\n\
                 [ \"$CUDA_VISIBLE_DEVICES\" = GPU-a ] && echo '{cuda}'\n\
                 case \"$GGML_VK_VISIBLE_DEVICES\" in\n\
                 0) echo '  Vulkan0: NVIDIA L4 (1 MiB, 1 MiB free)';;\n\
                 1) echo '  Vulkan0: NVIDIA H200 (1 MiB, 1 MiB free)';;\n\
                 '') ;;\n\
                 *) echo 'Invalid device index'; exit 1;;\nesac\n"
            );
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            let mut environment: Environment = std::env::vars_os().collect();
            environment.set("CUDA_VISIBLE_DEVICES", "GPU-a");
            vulkan_cards(&path, &environment).unwrap()
        };
        assert_eq!(engine("vulkan", ""), ["NVIDIA L4", "NVIDIA H200"]);
        assert!(engine("both", "  CUDA0: NVIDIA L4 (1 MiB, 1 MiB free)").is_empty());
    }
}
