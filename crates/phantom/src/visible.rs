//! Applies the environment variables that hide cards from a process, as AMD's runtime does.
//!
//! The lower layer, ROCr, comes first. `ROCR_VISIBLE_DEVICES` lists cards of the machine, and an empty list
//! shows none (`amd_filter_device.cpp: RvdFilter::BuildUsrDeviceList @ rocm-6.4`). HIP renumbers the
//! remaining cards. `HIP_VISIBLE_DEVICES` selects from them or, if it is unset or empty,
//! `CUDA_VISIBLE_DEVICES` (`rocdevice.cpp: Device::init @ rocm-6.4`). Either list ends at an entry that names
//! no card. Simulated cards have no UUID, so a UUID names none.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Variables that hide cards: ROCr's and HIP's, and CUDA's, which HIP reads too.
pub(crate) const HIDING: [&str; 3] =
    ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", plimsoll_wire::env::CUDA_VISIBLE_DEVICES];

/// The cards that are left, in HIP's order, by the values of [`HIDING`]; `None` where one is unset.
pub(crate) fn left<T>(cards: Vec<T>, [of_rocr, of_hip, of_cuda]: [Option<String>; 3]) -> Vec<T> {
    // ROCr stops at a number that was there before; HIP passes over it, and takes decimal numbers without a
    // sign or blank.
    let rocr = |entry: &str| entry.trim().parse().ok();
    let hip = |entry: &str| entry.parse().ok().filter(|number: &usize| number.to_string() == entry);
    let cards = if let Some(list) = of_rocr { chosen(cards, numbers(&list, rocr, true)) } else { cards };
    let set = |list: &String| !list.is_empty();
    match of_hip.filter(set).or(of_cuda.filter(set)) {
        Some(list) => chosen(cards, numbers(&list, hip, false)),
        None => cards,
    }
}

fn numbers(list: &str, number: impl Fn(&str) -> Option<usize>, ends_at_repetition: bool) -> Vec<usize> {
    let mut numbers = Vec::new();
    for number in list.split(',').map_while(number) {
        let is_repeated = numbers.contains(&number);
        if is_repeated && ends_at_repetition {
            break;
        }
        if !is_repeated {
            numbers.push(number);
        }
    }
    numbers
}

/// The cards with these numbers, up to the first invalid one.
fn chosen<T>(cards: Vec<T>, numbers: Vec<usize>) -> Vec<T> {
    let mut cards: Vec<Option<T>> = cards.into_iter().map(Some).collect();
    numbers.into_iter().map_while(|number| cards.get_mut(number)?.take()).collect()
}

#[cfg(test)]
mod tests {
    use super::{ToString, Vec};

    fn left(rocr: Option<&str>, hip: Option<&str>, cuda: Option<&str>) -> Vec<char> {
        super::left(Vec::from(['a', 'b', 'c']), [rocr, hip, cuda].map(|value| value.map(ToString::to_string)))
    }

    #[test]
    fn rocr_comes_first_and_hip_numbers_what_is_left() {
        assert_eq!(left(None, None, None), ['a', 'b', 'c']);
        assert_eq!(left(Some("2,1"), None, None), ['c', 'b']);
        assert_eq!(left(Some("2,1"), Some("1"), None), ['b']);
        assert_eq!(left(Some("2,1"), Some("2"), None), []);
        assert_eq!(left(None, Some("2,0"), Some("1")), ['c', 'a']);
        assert_eq!(left(None, Some(""), Some("1")), ['b'], "an empty list of HIP's is none");
        assert_eq!(left(Some(""), Some("0"), Some("0")), [], "an empty list of ROCr's shows no card");
    }

    #[test]
    fn an_entry_that_names_no_card_ends_the_list() {
        for nothing in ["-1", "GPU-aaaa", "9", "x", "99999999999999999999"] {
            assert_eq!(left(None, Some(nothing), None), []);
            let list = alloc::format!("1,{nothing},0");
            assert_eq!(left(None, Some(&list), None), ['b']);
            assert_eq!(left(Some(&list), None, None), ['b']);
        }
        assert_eq!(left(Some("1,1,0"), None, None), ['b']);
        assert_eq!(left(None, Some("1,1,0"), None), ['b', 'a']);
        assert_eq!(
            (left(Some("1, 0"), None, None), left(None, Some("1, 0"), None)),
            (Vec::from(['b', 'a']), Vec::from(['b']))
        );
    }
}
