//! Lists the rates that the program ships, for cards that were measured.

use super::rates::{AttentionRates, HostRates, PrefillRates, SpeedRates};

/// An H200 with driver 580.159.04 and llama.cpp 0.5.0: fitted to three synthetic models
/// (`data/measured/h200-speed-rates-2-0.5.0.json`). The rate of its memory is that of the vendor's data
/// sheet, 4.8 TB/s. The host has 16 threads (`h200-speed-rates-0.5.0.json`).
///
/// DECISION: the least squares of `token`, `entry`, `kernel` and `step` are held to the single kernels
/// (`h200-speed-kernels-0.5.0.json`) by a weight of 5 %. Three models alone tell a constant from the kernels
/// badly. So are the times of a prompt's products by micro-batch, which no model varies by itself.
pub(super) const H200: SpeedRates = SpeedRates {
    token: 184_000_000_000,
    entry: 2_024_000,
    kernel: 1_557_000_000,
    step: 466_400,
    byte: 208,
    spread: 20,
    attention: AttentionRates {
        filled: 1_697_000_000,
        quantised: 9_758_000_000,
        vector: 264,
        vector_quantised: [621, 936],
        grouped: 290,
        single: 1133,
        matrix: 21_175_000_000,
        converted: 611,
    },
    prefill: PrefillRates {
        product: 20_000_000_000,
        routed_product: 60_000_000_000,
        kernel: 18_821_000_000,
        dense: 5_593_000,
        routed: 7_727_000,
        grouped: 3_158_000,
        single: 19_345_000,
    },
    host: HostRates {
        byte: 14_105,
        table_byte: 21_150,
        kernel: 13_272_000_000,
        cache: 70_956,
        crossing: 41_902_000_000,
        bus: 122_000,
        attended: 250_000,
    },
};
