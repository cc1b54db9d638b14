//! Reads the descriptions of the simulated cards from `PLIMSOLL_PHANTOM_CARDS`.
//!
//! The cards are in the order of the engine's device numbers, each as a list of `key=value`.

use alloc::ffi::CString;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::c_int;

use crate::vulkan_limits::{NVIDIA, VulkanLimits};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) name: CString,
    pub(crate) total: u64,
    pub(crate) free: u64,
    /// Compute capability, major and minor.
    pub(crate) capability: (u32, u32),
    /// Multiprocessors.
    pub(crate) processors: u32,
    /// True where the card uses the host's memory: Jetson, GB10.
    pub(crate) integrated: bool,
    /// False where the driver has no virtual memory management: Tegra.
    pub(crate) virtual_memory: bool,
    pub(crate) vulkan: VulkanLimits,
    /// HIP's name of the architecture: `gfx1100`.
    pub(crate) architecture: CString,
}

/// Limits of a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) threads: u32,
    pub(crate) blocks: u32,
    /// Bytes of shared memory.
    pub(crate) shared: u32,
    /// Bytes of it that one block may ask for.
    pub(crate) opt_in: u32,
}

/// Per compute capability (CUDA C++ programming guide 13.0, "Compute Capabilities"): first capability,
/// threads, blocks, KiB of shared memory, KiB of it that one block may have.
const GENERATIONS: [((u32, u32), [u32; 4]); 14] = [
    ((5, 0), [2048, 32, 64, 48]),
    ((5, 2), [2048, 32, 96, 48]),
    ((6, 0), [2048, 32, 64, 48]),
    ((6, 1), [2048, 32, 96, 48]),
    ((7, 0), [2048, 32, 96, 96]),
    ((7, 5), [1024, 16, 64, 64]),
    ((8, 0), [2048, 32, 164, 163]),
    ((8, 6), [1536, 16, 100, 99]),
    ((8, 7), [1536, 16, 164, 163]),
    ((8, 9), [1536, 24, 100, 99]),
    ((9, 0), [2048, 32, 228, 227]),
    ((10, 0), [2048, 32, 228, 227]),
    ((11, 0), [1536, 24, 228, 227]),
    ((12, 0), [1536, 24, 100, 99]),
];

/// Reads the whole list.
pub(crate) fn parse(text: &str) -> Result<Vec<Card>, String> {
    // DECISION: a description that cannot be read is an error: a plan for the wrong card is worse than none.
    let cards: Vec<Card> = text
        // The position in the list is the device number, as CUDA_VISIBLE_DEVICES makes it for real cards.
        .split(';')
        .enumerate()
        .map(|(index, text)| card(text).map_err(|what| format!("card {index}: {what}")))
        .collect::<Result<_, _>>()?;
    if cards.len() > Card::MOST {
        return Err(format!("{} cards; ggml knows {} at most", cards.len(), Card::MOST));
    }
    Ok(cards)
}

fn card(text: &str) -> Result<Card, String> {
    // 132 multiprocessors are an H200's.
    let mut card = Card {
        name: c"phantom".into(),
        total: 0,
        free: u64::MAX,
        capability: (0, 0),
        processors: 132,
        integrated: false,
        virtual_memory: true,
        vulkan: VulkanLimits::default(),
        architecture: c"gfx1100".into(),
    };
    for pair in text.split(',') {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("`{pair}` is not key=value"))?;
        let words = || CString::new(value.trim()).map_err(|_| format!("a zero in {key}"));
        match key.trim() {
            "total" => card.total = number(value)?,
            "free" => card.free = number(value)?,
            "cc" => card.capability = version(value)?,
            // The bound keeps products of this number from overflowing.
            "sms" => card.processors = u32::try_from(number(value)?.clamp(1, 4096)).unwrap_or(1),
            "integrated" => {
                card.integrated = number(value)? > 0;
                card.vulkan.kind = if card.integrated { 1 } else { 2 };
            }
            "vmm" => card.virtual_memory = number(value)? > 0,
            "name" => card.name = words()?,
            "gfx" => card.architecture = words()?,
            other => card.vulkan.take(other, number(value)?)?,
        }
    }
    if card.total == 0 || card.capability == (0, 0) {
        return Err(format!("{}= is missing", if card.total == 0 { "total" } else { "cc" }));
    }
    // ggml-vulkan.cpp:get_device_architecture @ 0.5.0 knows a card before Turing by this.
    if card.vulkan.vendor == NVIDIA && card.capability < (7, 5) {
        card.vulkan.matrix = 0;
    }
    // A driver never reports more free memory than there is; a snapshot taken by hand may.
    card.free = card.free.min(card.total);
    Ok(card)
}

pub(crate) fn number(text: &str) -> Result<u64, String> {
    let text = text.trim();
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

fn version(text: &str) -> Result<(u32, u32), String> {
    let parts = text.trim().split_once('.');
    let parts = parts.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let parts = parts.filter(|&(major, minor)| major < 100 && minor < 10);
    parts.ok_or_else(|| format!("cc `{}` is not major.minor", text.trim()))
}

impl Card {
    /// As many as ggml's CUDA backend knows: `ggml-cuda.h:GGML_CUDA_MAX_DEVICES`.
    pub(crate) const MOST: usize = 16;
    /// Registers of a multiprocessor, and of one block: the same since compute capability 5.0.
    pub(crate) const REGISTERS: u32 = 65_536;
    /// Shared memory that the driver reserves in each block, from compute capability 8.0 on.
    pub(crate) const RESERVED: u32 = 1024;

    pub(crate) fn limits(&self) -> Limits {
        // A later capability than the last row's is taken for that one.
        let of = GENERATIONS.iter().rev().find(|(from, _)| *from <= self.capability);
        let (_, [threads, blocks, shared, opt_in]) = *of.unwrap_or(&GENERATIONS[0]);
        Limits { threads, blocks, shared: shared << 10, opt_in: opt_in << 10 }
    }

    pub(crate) fn reserved(&self) -> u32 {
        if self.capability >= (8, 0) { Self::RESERVED } else { 0 }
    }

    /// An attribute by its number in `cudaDeviceAttr` and `CUdevice_attribute`; 0 for attributes that no
    /// engine requests.
    pub(crate) fn attribute(&self, number: c_int) -> u32 {
        let limits = self.limits();
        match number {
            1..=3 => 1024,
            4 => 64,
            5 => 2_147_483_647,
            6 | 7 => 65_535,
            8 => 49_152,
            10 => 32,
            12 | 82 => Self::REGISTERS,
            16 => self.processors,
            18 => u32::from(self.integrated),
            // Overlap, mapped host memory, concurrent kernels, unified and managed memory, cooperation,
            // registration.
            15 | 19 | 31 | 41 | 83 | 89 | 95 | 99 => 1,
            39 => limits.threads,
            75 => self.capability.0,
            76 => self.capability.1,
            81 => limits.shared,
            97 => limits.opt_in,
            // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
            102 => u32::from(self.virtual_memory),
            106 => limits.blocks,
            111 => self.reserved(),
            _ => 0,
        }
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
        assert_eq!((cards[0].free, cards[0].capability, cards[0].processors), (50, (9, 0), 132));
        assert_eq!((cards[1].free, cards[1].capability), (200, (12, 1)));
        assert_eq!((cards[0].integrated, cards[1].integrated), (false, true));
        assert!(cards[0].virtual_memory && !parse("total=1,cc=8.7,vmm=0").unwrap()[0].virtual_memory);
        assert_eq!(cards[0].name.to_str(), Ok("H200"));
    }

    #[test]
    fn matrices_are_of_cards_from_turing_on() {
        for (text, matrix) in [
            ("cc=7.5", 2),
            ("cc=7.0", 0),
            ("matrix=2,cc=6.1", 0),
            ("cc=9.0,matrix=1", 1),
            ("cc=6.1,vendor=4098", 1),
        ] {
            assert_eq!(parse(&format!("total=1,{text}")).unwrap()[0].vulkan.matrix, matrix, "{text}");
        }
        assert!(parse("total=1,cc=9.0,matrix=4294967296").unwrap_err().contains("too large"));
    }

    #[test]
    fn malformed_phantom_cards_are_rejected_with_their_defect_named() {
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

    /// As `cudaDeviceGetAttribute` said on an H200 (driver 580.159.04, 2026-11-22).
    #[test]
    fn an_h200_says_of_itself_what_the_card_said() {
        let card = &parse("total=150754820096,cc=9.0").unwrap()[0];
        for (number, stated) in [
            (1, 1024),
            (4, 64),
            (5, 2_147_483_647),
            (7, 65_535),
            (8, 49_152),
            (10, 32),
            (12, 65_536),
            (15, 1),
            (16, 132),
            (18, 0),
            (19, 1),
            (31, 1),
            (39, 2048),
            (41, 1),
            (75, 9),
            (76, 0),
            (81, 233_472),
            (82, 65_536),
            (83, 1),
            (88, 0),
            (89, 1),
            (95, 1),
            (97, 232_448),
            (99, 1),
            (102, 1),
            (106, 32),
            (111, 1024),
        ] {
            assert_eq!(card.attribute(number), stated, "attribute {number}");
        }
    }

    #[test]
    fn a_capability_between_two_rows_has_the_limits_of_the_earlier() {
        let of = |cc: &str| parse(&alloc::format!("total=1,cc={cc}")).unwrap()[0].limits();
        assert_eq!((of("8.9").blocks, of("8.8").blocks, of("12.1").threads), (24, 16, 1536));
        assert_eq!((of("3.5").opt_in, of("13.0").shared), (48 << 10, 100 << 10));
    }
}
