//! Table of ggml's element types (F16, Q8_0 and others), and a second table for those of ik_llama.cpp.
//!
//! The two engines use some numbers for different types, so the caller chooses the engine. Sources:
//! `ggml/src/ggml.c: type_traits @ b10605`, and the same @ ik_llama.cpp 8337e4cd.

use std::sync::LazyLock;

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
            Self::Ggml => row(&GGML),
            // The numbers up to BF16 were given before the fork.
            Self::Ik if id <= BF16.id || id == MXFP4.id => row(&GGML).or_else(|| row(&IK)),
            // Never llama.cpp's table: a number of a newer llama.cpp may be another type here.
            Self::Ik => row(&IK),
        }
    }
}

const fn plain(id: u32, name: &'static str, block: u64, size: u64) -> TensorType {
    TensorType { id, name, block, size, row_extra: 0 }
}

// Types that code refers to by name; the tables hold all of them.
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

static GGML: LazyLock<Vec<TensorType>> = LazyLock::new(|| rows(include_str!("types/ggml.tsv")));
static IK: LazyLock<Vec<TensorType>> = LazyLock::new(|| rows(include_str!("types/ik.tsv")));

/// A malformed row is left out here; the tests fail for it.
fn rows(table: &'static str) -> Vec<TensorType> {
    let row = |line: &'static str| {
        let mut cells = line.split('\t');
        let (id, name) = (cells.next()?.parse().ok()?, cells.next()?);
        let mut size = || cells.next()?.parse().ok();
        Some(TensorType { id, name, block: size()?, size: size()?, row_extra: size()? })
    };
    table.lines().filter_map(row).collect()
}

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
            assert_eq!(Dialect::Ggml.tensor_type(kind.id), Some(kind));
        }
        assert_eq!(Q8_0.row(33), None);
    }

    #[test]
    fn numbers_are_unique_and_withdrawn_ones_are_unknown() {
        for (table, count) in [(&*GGML, 35), (&*IK, 61)] {
            assert_eq!(table.len(), count);
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
