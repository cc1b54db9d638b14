//! Generates random programs: sequences of memory operations that an engine could perform on a pool.

use proptest::collection::vec;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// One act of a program. Numbers that choose something are taken modulo what there is.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Allocate {
        size: u64,
        stream: u64,
    },
    Free {
        which: usize,
    },
    /// The block is used on another stream, behind an event, and freed there.
    FreeAcross {
        which: usize,
        stream: u64,
    },
    Launch {
        which: usize,
        microseconds: u64,
    },
    Advance {
        microseconds: u64,
    },
    Synchronize,
    BeginCapture {
        stream: u64,
    },
    EndCapture {
        which: usize,
    },
    LaunchGraph {
        which: usize,
    },
    DestroyGraph {
        which: usize,
    },
    TrimIdle,
    TrimAll,
    /// The card has so many bytes from now on.
    Resize {
        mib: u64,
    },
    /// The next so many requests to the driver are refused.
    Refuse {
        requests: u64,
    },
}

pub(crate) fn size() -> impl Strategy<Value = u64> {
    prop_oneof![0..4096_u64, 4096..MIB, MIB..100 * MIB, Just(2 * MIB), Just(64 * MIB)]
}

fn act() -> impl Strategy<Value = Act> {
    let stream = 0..3_u64;
    prop_oneof![
        12 => (size(), stream.clone()).prop_map(|(size, stream)| Act::Allocate { size, stream }),
        // Mostly the newest, as engines do; sometimes any.
        7 => Just(Act::Free { which: usize::MAX }),
        4 => any::<usize>().prop_map(|which| Act::Free { which }),
        1 => (any::<usize>(), stream.clone()).prop_map(|(which, stream)| Act::FreeAcross { which, stream }),
        3 => (any::<usize>(), 1..500_u64).prop_map(|(which, microseconds)| Act::Launch { which, microseconds }),
        2 => (1..300_u64).prop_map(|microseconds| Act::Advance { microseconds }),
        1 => Just(Act::Synchronize),
        2 => stream.prop_map(|stream| Act::BeginCapture { stream }),
        3 => any::<usize>().prop_map(|which| Act::EndCapture { which }),
        4 => any::<usize>().prop_map(|which| Act::LaunchGraph { which }),
        1 => any::<usize>().prop_map(|which| Act::DestroyGraph { which }),
        3 => Just(Act::TrimIdle),
        1 => Just(Act::TrimAll),
        1 => (64..512_u64).prop_map(|mib| Act::Resize { mib }),
        1 => (1..3_u64).prop_map(|requests| Act::Refuse { requests }),
    ]
}

pub(crate) fn program(most: usize) -> impl Strategy<Value = Vec<Act>> {
    vec(act(), 1..most)
}

/// Sizes to push, and `None` to pop.
pub(crate) fn stack(most: usize) -> impl Strategy<Value = Vec<Option<u64>>> {
    vec(proptest::option::weighted(0.6, size()), 1..most)
}
