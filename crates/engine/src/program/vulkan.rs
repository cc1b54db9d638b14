//! Finds the Vulkan device number of each card by running the engine.

use std::path::Path;
use std::sync::Mutex;

use super::identity::{Answers, IdentityError, LIMIT, remembered};
use crate::environment::VULKAN;
use plimsoll_base::{Backend, Card, CardMaker};
use plimsoll_process::Environment;
use plimsoll_process::own_command::own_command;
use plimsoll_process::run;

/// Vulkan numbers that are tried.
const MOST: usize = 16;

/// The product names of the cards by Vulkan's number; none for an engine that has no Vulkan backend.
pub fn vulkan_cards(program: &Path, environment: &Environment) -> Result<Vec<String>, IdentityError> {
    // DECISION: `--list-devices` gives no PCI address, so the engine is run with one visible number at a
    // time, and product names are compared. If cards with the same name cannot be distinguished, no number is
    // returned. What a process then holds is asked of the kernel before it counts as ready.
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
        Ok(names)
    })
}

/// True for an engine that has a card of this environment without Vulkan: it would have it twice with.
pub fn lists_card_without_vulkan(program: &Path, environment: &Environment) -> bool {
    static KNOWN: Answers<bool> = Mutex::new(Vec::new());
    let listed = remembered(&KNOWN, program, |program| {
        let devices = listed_devices(program, environment, &[(VULKAN, "")])?;
        Ok(devices.iter().any(|(device, _)| Backend::of_device(device).is_some()))
    });
    listed.unwrap_or(false)
}

/// Vulkan's numbers of the cards `given`; `None` where they cannot be distinguished from others. `shown` are
/// the names by number, and `present` all cards of the machine.
pub fn vulkan_numbers(shown: &[String], given: &[&Card], present: &[&Card]) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for card in given {
        let alike = |other: &&&Card| other.name == card.name;
        let mut same = numbered(shown, |name| is_name_of(name, &card.name));
        let mut expected = given.iter().filter(alike).count();
        if same.is_empty() {
            // A name of the kernel's table may be that of several products; a maker's only card is known.
            same = numbered(shown, |name| CardMaker::of_name(name) == Some(card.maker));
            expected = 1;
            if present.iter().filter(|other| other.maker == card.maker).count() != 1 {
                return None;
            }
        }
        if same.len() != expected {
            return None;
        }
        numbers.extend(same.into_iter().filter(|number| !numbers.contains(number)).collect::<Vec<_>>());
    }
    Some(numbers)
}

fn numbered(shown: &[String], is_meant: impl Fn(&str) -> bool) -> Vec<usize> {
    shown.iter().enumerate().filter(|(_, name)| is_meant(name)).map(|(number, _)| number).collect()
}

/// Mesa writes the chip behind the product: `AMD Radeon RX 7900 XTX (RADV NAVI31)`.
fn is_name_of(shown: &str, card: &str) -> bool {
    shown.strip_prefix(card).is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("))
}

/// Devices that the engine lists: its own name for each, and the product's.
pub(super) fn listed_devices(
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
    fn cards_are_recognised_by_their_names_and_of_the_same_name_all_or_none() {
        let shown = names(&["NVIDIA L4", "llvmpipe", "NVIDIA H200", "NVIDIA H200"]);
        let card = |name: &str| format!("name={name},total=1GiB").parse::<Card>().unwrap();
        let found = |given: &[&str]| {
            let given: Vec<Card> = given.iter().map(|name| card(name)).collect();
            let present = [card("NVIDIA L4"), card("NVIDIA H200"), card("NVIDIA H200")];
            vulkan_numbers(&shown, &given.iter().collect::<Vec<_>>(), &present.iter().collect::<Vec<_>>())
        };
        assert_eq!(found(&["NVIDIA L4"]), Some(vec![0]));
        assert_eq!(found(&["NVIDIA H200", "NVIDIA H200"]), Some(vec![2, 3]));
        assert_eq!(found(&["NVIDIA H200", "NVIDIA L4", "NVIDIA H200"]), Some(vec![2, 3, 0]));
        assert_eq!(found(&["NVIDIA H200"]), None);
        assert_eq!(found(&["NVIDIA A100"]), None);
    }

    #[test]
    fn a_card_of_another_maker_is_recognised_by_the_drivers_spelling_or_as_the_only_one() {
        let card = |name: &str| format!("name={name},total=1GiB").parse::<Card>().unwrap();
        let (nvidia, amd) = (card("NVIDIA L4"), card("AMD Radeon RX 7900 XTX"));
        let many = card("AMD Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M");
        let shown = names(&["AMD Radeon RX 7900 XTX (RADV NAVI31)", "NVIDIA L4"]);
        assert_eq!(vulkan_numbers(&shown, &[&amd], &[&nvidia, &amd]), Some(vec![0]));
        assert_eq!(vulkan_numbers(&shown, &[&many], &[&nvidia, &many]), Some(vec![0]));
        assert_eq!(vulkan_numbers(&shown, &[&many], &[&nvidia, &many, &amd]), None);
        let two = names(&["AMD Radeon RX 7900 XTX (RADV NAVI31)", "AMD Radeon RX 7900 XTX (RADV NAVI31)"]);
        assert_eq!(vulkan_numbers(&two, &[&amd], &[&amd, &amd.clone()]), None);
        assert_eq!(vulkan_numbers(&two, &[&amd, &amd.clone()], &[&amd, &amd.clone()]), Some(vec![0, 1]));
    }

    #[test]
    fn an_engine_is_shown_one_number_at_a_time_and_one_that_has_the_card_already_is_known() {
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
            (vulkan_cards(&path, &environment).unwrap(), lists_card_without_vulkan(&path, &environment))
        };
        let both = names(&["NVIDIA L4", "NVIDIA H200"]);
        assert_eq!(engine("vulkan", ""), (both.clone(), false));
        assert_eq!(engine("both", "  CUDA0: NVIDIA L4 (1 MiB, 1 MiB free)"), (both, true));
    }
}
