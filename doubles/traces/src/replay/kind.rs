//! Names the allocator policies of a replay, as given on the command line.

use std::fmt;
use std::str::FromStr;

use plimsoll_pool::replay::GRANULE;
use plimsoll_pool::{GgmlLegacy, GgmlLegacyOptions, Ours, OursOptions, Policy};

use super::ggml_vmm::{Broken, GgmlVmm};

/// A policy that can be replayed.
pub trait ReplayPolicy: Policy {
    /// The reason why the policy cannot go on and refuses everything, if there is one.
    fn broken(&self) -> Option<Broken> {
        None
    }
}

impl ReplayPolicy for GgmlLegacy {}
impl ReplayPolicy for Ours {}

/// Granule of whole allocations.
const WHOLE: u64 = 256;

/// Allocator policy that a trace can be replayed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// Ours, in regions.
    Plimsoll,
    /// Ours, in slots: for cards without virtual memory management.
    PlimsollSlots,
    GgmlLegacy,
    /// Frees everything idle when the driver refuses.
    GgmlLegacyFlush,
    /// With blocks of twice the requested size.
    GgmlLegacyDouble,
    GgmlVmm,
}

impl PolicyKind {
    pub const ALL: [Self; 6] = [
        Self::Plimsoll,
        Self::PlimsollSlots,
        Self::GgmlLegacy,
        Self::GgmlLegacyFlush,
        Self::GgmlLegacyDouble,
        Self::GgmlVmm,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Plimsoll => "plimsoll",
            Self::PlimsollSlots => "plimsoll-slots",
            Self::GgmlLegacy => "ggml-legacy",
            Self::GgmlLegacyFlush => "ggml-legacy-flush",
            Self::GgmlLegacyDouble => "ggml-legacy-double",
            Self::GgmlVmm => "ggml-vmm",
        }
    }

    /// A new policy of this kind.
    pub fn policy(self) -> Box<dyn ReplayPolicy> {
        // 105 and 200 percent: the released factor and the one of llama.cpp PR 22193.
        let legacy = |growth, flush| Box::new(GgmlLegacy::new(GgmlLegacyOptions { growth, flush }));
        let ours = |regions| Box::new(Ours::new(OursOptions { regions, ..OursOptions::default() }));
        match self {
            Self::Plimsoll => ours(true),
            Self::PlimsollSlots => ours(false),
            Self::GgmlLegacy => legacy(105, false),
            Self::GgmlLegacyFlush => legacy(105, true),
            Self::GgmlLegacyDouble => legacy(200, false),
            Self::GgmlVmm => Box::new(GgmlVmm::default()),
        }
    }

    /// Granule of the card for this policy.
    pub const fn granule(self) -> u64 {
        match self {
            Self::Plimsoll | Self::GgmlVmm => GRANULE,
            _ => WHOLE,
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error: no policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a policy; the policies are {}", name.escape_debug(), PolicyKind::ALL.map(PolicyKind::name).join(", "))]
pub struct UnknownPolicy {
    pub name: String,
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| UnknownPolicy { name: name.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_a_name_of_its_own_and_an_unknown_one_lists_them() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let stated = "buddy".parse::<PolicyKind>().unwrap_err().to_string();
        assert!(stated.starts_with("`buddy` is not a policy; the policies are plimsoll,"), "{stated}");
    }
}
