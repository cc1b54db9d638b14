//! The cards that the plugin pretends to have, from `PLIMSOLL_PHANTOM_CARDS`.
//!
//! DECISION: one card after another, in the order of the engine's device numbers, each a list of `key=value`.
//! What is left out is the H200's; what cannot be read is an error that names it, because a plan for another
//! card than was meant is worse than none.

use alloc::ffi::CString;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use plimsoll_pool::demand::Capability;

/// As many as ggml's CUDA backend knows: `ggml-cuda.h:GGML_CUDA_MAX_DEVICES`.
const MOST: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    /// Device name in the engine, such as `CUDA0`.
    pub(crate) device: CString,
    pub(crate) name: CString,
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) capability: Capability,
    /// Multiprocessors.
    pub(crate) processors: u64,
    /// True where the card uses the host's memory: Jetson, GB10.
    pub(crate) integrated: bool,
}

/// Reads the whole list.
pub(crate) fn parse(text: &str) -> Result<Vec<Card>, String> {
    let cards: Vec<Card> = text
        // The position in the list is the device number, as CUDA_VISIBLE_DEVICES makes it for real cards.
        .split(';')
        .enumerate()
        .map(|(index, text)| card(index, text).map_err(|what| format!("card {index}: {what}")))
        .collect::<Result<_, _>>()?;
    if cards.len() > MOST {
        return Err(format!("{} cards; ggml knows {MOST} at most", cards.len()));
    }
    Ok(cards)
}

fn card(index: usize, text: &str) -> Result<Card, String> {
    let (mut total, mut free, mut capability) = (None, None, None);
    let (mut processors, mut name, mut integrated) = (None, "phantom", false);
    for pair in text.split(',') {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| format!("`{pair}` is not key=value"))?;
        match key.trim() {
            "total" => total = Some(number(value)?),
            "free" => free = Some(number(value)?),
            "cc" => capability = Some(version(value)?),
            "sms" => processors = Some(number(value)?),
            "integrated" => integrated = number(value)? > 0,
            "name" => name = value.trim(),
            other => {
                return Err(format!(
                    "`{other}` is none of total, free, cc, sms, integrated, name"
                ));
            }
        }
    }
    let total = total.ok_or("total= is missing")?;
    let capability = capability.ok_or("cc= is missing")?;
    Ok(Card {
        // The engine's `-dev` and `-ts` go by these names, so they must be those of ggml's CUDA backend.
        device: CString::new(format!("CUDA{index}")).map_err(|_| "no name")?,
        name: CString::new(name).map_err(|_| "a zero in the name")?,
        total,
        // A driver never reports more free memory than there is; a snapshot taken by hand may.
        free: free.unwrap_or(total).min(total),
        capability,
        // 132 multiprocessors are an H200's. The bound keeps products of this number from overflowing.
        processors: processors.unwrap_or(132).clamp(1, 4096),
        integrated,
    })
}

fn number(text: &str) -> Result<u64, String> {
    let text = text.trim();
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

/// `8.9` as 890.
fn version(text: &str) -> Result<Capability, String> {
    let wrong = || format!("cc `{}` is not major.minor", text.trim());
    let (major, minor) = text.trim().split_once('.').ok_or_else(wrong)?;
    let part = |text: &str| text.parse::<u32>().ok().filter(|&part| part < 100);
    match (part(major), part(minor)) {
        (Some(major), Some(minor @ 0..10)) => Ok(major * 100 + minor * 10),
        _ => Err(wrong()),
    }
}

impl Card {
    /// The name as text, for reports.
    pub(crate) fn device_name(&self) -> String {
        self.device.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_read_in_order() {
        let cards =
            parse("total=100,free=50,cc=9.0,sms=132,name=H200;total=200,cc=12.1,integrated=1").unwrap();
        assert_eq!(cards.len(), 2);
        assert_eq!(
            (cards[0].free, cards[0].capability, cards[0].processors),
            (50, 900, 132)
        );
        assert_eq!((cards[1].free, cards[1].capability), (200, 1210));
        assert_eq!((cards[0].integrated, cards[1].integrated), (false, true));
        assert_eq!(cards[1].device_name(), "CUDA1");
        assert_eq!(cards[0].name.to_str(), Ok("H200"));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, word) in [
            ("", "key=value"),
            ("total=1", "cc= is missing"),
            ("cc=9.0", "total= is missing"),
            ("total=x,cc=9.0", "`x` is not a number"),
            ("total=1,cc=9", "cc `9`"),
            ("total=1,cc=9.10", "cc `9.10`"),
            ("total=1,cc=9.0,ram=3", "`ram`"),
            ("total=1,cc=9.0;", "card 1"),
        ] {
            let what = parse(text).unwrap_err();
            assert!(what.contains(word), "{text}: {what}");
        }
        let many = ["total=1,cc=9.0"; 17].join(";");
        assert!(parse(&many).unwrap_err().contains("16 at most"));
    }
}
