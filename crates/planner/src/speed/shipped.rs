//! Lists the rates that the program ships, for cards that were measured.

use super::rates::{AttentionRates, HostRates, PrefillRates, SpeedRates};

/// An H200 with driver 580.159.04 and llama.cpp 0.5.0, on a host with 16 threads: fitted to three synthetic
/// models (`data/measured/h200-speed-rates-0.5.0.json`). The rate of its memory is that of the vendor's data
/// sheet, 4.8 TB/s.
pub(super) const H200: SpeedRates = SpeedRates {
    token: 135_300_000_000,
    entry: 3_053_000,
    kernel: 1_929_029_000,
    step: 520_400,
    byte: 208,
    spread: 25,
    attention: AttentionRates {
        filled: [5_901_800_000, 4_636_600_000],
        quantised: 13_231_600_000,
        vector: [461, 498],
        vector_quantised: [702, 934],
        matrix: [19_577_900_000, 24_190_000_000],
        grouped: 557,
        single: [1017, 2758],
    },
    prefill: PrefillRates {
        kernel: 44_898_000,
        dense: 5_439_000,
        routed: 6_523_000,
        grouped: 3_283_000,
        single: 16_373_000,
    },
    host: HostRates {
        byte: 14_105,
        table_byte: 21_150,
        kernel: 13_272_000_000,
        cache: 70_956,
        crossing: 41_902_000_000,
    },
};
