//! Table of ggml's element types (F16, Q8_0 and others), and a second table for those of ik_llama.cpp.
//!
//! The two engines use some numbers for different types, so the caller chooses the engine. Sources:
//! `ggml/src/ggml.c: type_traits @ b10605`, and the same @ ik_llama.cpp 8337e4cd.

use super::TensorType;

/// The engine whose type numbers a file uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// llama.cpp, and all that follow it.
    #[default]
    Ggml,
    /// ik_llama.cpp, whose additional types start at 133.
    Ik,
}

impl Dialect {
    /// The type with this number in a file; `None` if the engine does not define the number.
    pub fn tensor_type(self, id: u32) -> Option<TensorType> {
        // A number without a row is an error, because a wrong block size would make the plan wrong.
        // ik_llama.cpp's type 36 (`i2_s`) is left out, because its size is no multiple of a block.
        let row = |table: &[TensorType]| table.iter().find(|row| row.id == id).copied();
        match self {
            Self::Ggml => row(GGML),
            // The numbers up to BF16 were given before the fork.
            Self::Ik if id <= BF16.id || id == MXFP4.id => row(GGML).or_else(|| row(IK)),
            // Never llama.cpp's table: a number of a newer llama.cpp may be another type here.
            Self::Ik => row(IK),
        }
    }
}

const fn plain(id: u32, name: &'static str, block: u64, size: u64) -> TensorType {
    TensorType { id, name, block, size, row_extra: 0 }
}

const fn with_row(id: u32, name: &'static str, block: u64, size: u64, row_extra: u64) -> TensorType {
    TensorType { id, name, block, size, row_extra }
}

// Types that code refers to by name; the tables below hold all of them.
pub const F32: TensorType = plain(0, "f32", 1, 4);
pub const F16: TensorType = plain(1, "f16", 1, 2);
pub const Q4_0: TensorType = plain(2, "q4_0", 32, 18);
pub const Q4_1: TensorType = plain(3, "q4_1", 32, 20);
pub const Q5_0: TensorType = plain(6, "q5_0", 32, 22);
pub const Q5_1: TensorType = plain(7, "q5_1", 32, 24);
pub const Q8_0: TensorType = plain(8, "q8_0", 32, 34);
pub const Q2_K: TensorType = plain(10, "q2_K", 256, 84);
pub const Q3_K: TensorType = plain(11, "q3_K", 256, 110);
pub const Q4_K: TensorType = plain(12, "q4_K", 256, 144);
pub const Q5_K: TensorType = plain(13, "q5_K", 256, 176);
pub const Q6_K: TensorType = plain(14, "q6_K", 256, 210);
pub const IQ4_NL: TensorType = plain(20, "iq4_nl", 32, 18);
pub const I32: TensorType = plain(26, "i32", 1, 4);
pub const BF16: TensorType = plain(30, "bf16", 1, 2);
pub const MXFP4: TensorType = plain(39, "mxfp4", 32, 17);

/// Ordered by number; most files use the first dozen.
#[rustfmt::skip]
const GGML: &[TensorType] = &[
    F32,
    F16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    // q8_1 and q8_K are intermediate types of matrix products; files do not use them.
    plain(9, "q8_1", 32, 36),
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    plain(15, "q8_K", 256, 292),
    // The i-quants: codebooks, in super-blocks of 256 like the K-quants.
    plain(16, "iq2_xxs", 256, 66),
    plain(17, "iq2_xs", 256, 74),
    plain(18, "iq3_xxs", 256, 98),
    plain(19, "iq1_s", 256, 50),
    IQ4_NL,
    plain(21, "iq3_s", 256, 110),
    plain(22, "iq2_s", 256, 82),
    plain(23, "iq4_xs", 256, 136),
    plain(24, "i8", 1, 1),
    plain(25, "i16", 1, 2),
    I32,
    plain(27, "i64", 1, 8),
    plain(28, "f64", 1, 8),
    plain(29, "iq1_m", 256, 56),
    BF16,
    // 31 to 33 were repacked q4_0, which is now done at load time; 36 to 38 were repacked iq4_nl.
    plain(34, "tq1_0", 256, 54),
    plain(35, "tq2_0", 256, 66),
    MXFP4,
    // Newer than ik_llama.cpp's fork: the same numbers mean other types there.
    plain(40, "nvfp4", 64, 36),
    plain(41, "q1_0", 128, 18),
    plain(42, "q2_0", 64, 18),
];

/// ik_llama.cpp's own, `row_extra` last: many of them keep a scale at the head of each row.
#[rustfmt::skip]
const IK: &[TensorType] = &[
    plain(31, "q4_0_4x4", 32, 18),
    plain(32, "q4_0_4x8", 32, 18),
    plain(33, "q4_0_8x8", 32, 18),
    plain(41, "q1_0_g128", 128, 18),
    plain(97, "q8_0_x4", 32, 34),
    plain(98, "q8_1_x4", 32, 36),
    plain(99, "q8_2_x4", 32, 36),
    // From here on ik_llama.cpp's own quantisations.
    plain(133, "q6_0", 32, 26),
    with_row(134, "iq1_bn", 64, 13, 2),
    with_row(135, "iq2_bn", 64, 16, 4),
    plain(136, "q8_K64", 64, 68),
    plain(137, "iq2_k", 256, 76),
    plain(138, "iq3_k", 256, 110),
    plain(139, "iq4_k", 256, 144),
    plain(140, "iq5_k", 256, 176),
    plain(141, "iq6_k", 256, 212),
    with_row(144, "iq4_ks", 256, 136, 4),
    with_row(145, "iq2_ks", 256, 70, 2),
    with_row(146, "iq4_kss", 256, 128, 4),
    with_row(147, "q8_K16", 64, 64, 20),
    plain(148, "q8_K32", 256, 296),
    plain(149, "q8_KR8", 256, 296),
    plain(150, "q8_K128", 128, 140),
    with_row(151, "q8_KV", 32, 32, 8),
    with_row(152, "iq5_ks", 256, 168, 4),
    with_row(153, "iq2_kt", 256, 68, 4),
    with_row(154, "iq3_kt", 256, 100, 4),
    with_row(155, "iq4_kt", 256, 128, 4),
    with_row(156, "iq3_ks", 256, 102, 2),
    with_row(157, "iq2_kl", 256, 86, 2),
    with_row(158, "iq1_kt", 256, 56, 4),
    // Interleaved rows, which `-rtr` and the repacking quantiser write; most numbers are the plain type's
    // plus 200.
    plain(202, "q4_0_r8", 32, 18),
    plain(206, "q5_0_r4", 32, 22),
    plain(208, "q8_0_r8", 32, 34),
    plain(210, "q2_k_r4", 256, 84),
    plain(211, "q3_k_r4", 256, 110),
    plain(212, "q4_k_r4", 256, 144),
    plain(213, "q5_k_r4", 256, 176),
    plain(214, "q6_k_r4", 256, 210),
    plain(216, "iq2_xxs_r4", 256, 66),
    plain(217, "iq2_xs_r4", 256, 74),
    plain(218, "iq3_xxs_r4", 256, 98),
    with_row(219, "iq1_s_r4", 32, 6, 2),
    plain(220, "iq4_nl_r4", 32, 18),
    plain(221, "iq3_s_r4", 256, 110),
    plain(222, "iq2_s_r4", 256, 82),
    plain(223, "iq4_xs_r8", 256, 136),
    with_row(229, "iq1_m_r4", 32, 7, 2),
    plain(230, "bf16_r16", 1, 2),
    plain(233, "q6_0_r4", 32, 26),
    with_row(335, "iq2_bn_r4", 64, 16, 4),
    plain(337, "iq2_k_r4", 256, 76),
    plain(338, "iq3_k_r4", 256, 110),
    plain(339, "iq4_k_r4", 256, 144),
    plain(340, "iq5_k_r4", 256, 176),
    with_row(344, "iq4_ks_r4", 256, 136, 4),
    with_row(352, "iq5_ks_r4", 256, 168, 4),
    plain(353, "mxfp4_r8", 32, 17),
    plain(397, "q8_k_r16", 256, 258),
    with_row(398, "q8_KV_r8", 32, 32, 4),
    plain(399, "q8_k_r8", 256, 258),
];

#[cfg(test)]
mod tests {
    use plimsoll_base::Bytes;

    use super::*;

    #[test]
    fn a_row_weighs_what_the_engine_says() {
        for (kind, elements, bytes) in [
            (F32, 7, 28),
            (F16, 4096, 8192),
            (Q8_0, 4096, 4352),
            (Q4_0, 32, 18),
            (Q4_K, 4096, 2304),
            (Q6_K, 4096, 3360),
            (MXFP4, 2880, 1530),
        ] {
            assert_eq!(kind.row(elements), Some(Bytes::new(bytes)), "{}", kind.name);
        }
        assert_eq!(Q8_0.row(33), None);
    }

    #[test]
    fn numbers_are_unique_and_withdrawn_ones_are_unknown() {
        for table in [GGML, IK] {
            assert!(table.is_sorted_by(|a, b| a.id < b.id));
            assert!(table.iter().all(|row| row.block > 0 && row.size > 0));
        }
        for id in [4, 5, 31, 32, 33, 36, 37, 38, 43, 133, u32::MAX] {
            assert_eq!(Dialect::Ggml.tensor_type(id), None, "{id}");
        }
    }

    #[test]
    fn ik_reads_its_own_numbers_only_when_asked() {
        let name = |dialect: Dialect, id| dialect.tensor_type(id).map(|kind| kind.name);
        assert_eq!(name(Dialect::Ggml, 41), Some("q1_0"));
        assert_eq!(name(Dialect::Ik, 41), Some("q1_0_g128"));
        assert_eq!(name(Dialect::Ik, 12), Some("q4_K"));
        assert_eq!(name(Dialect::Ik, 39), Some("mxfp4"));
        assert_eq!(name(Dialect::Ik, 40), None);
        assert_eq!(name(Dialect::Ik, 34), None);
        let iq4_ks = Dialect::Ik.tensor_type(144).map(|kind| kind.row(512));
        assert_eq!(iq4_ks, Some(Some(Bytes::new(4 + 2 * 136))));
    }
}
