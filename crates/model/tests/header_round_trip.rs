//! Tests that GGUF headers are read as they were written, for any keys, values and tensors, in both versions
//! and byte orders.

use std::collections::BTreeSet;

use plimsoll_model::Dialect;
use plimsoll_model::gguf::{Datum, DraftHeader, DraftTensor, GgufValue, Header, ValueType};
use plimsoll_model::types::{BF16, F16, F32, Q4_K, Q8_0};
use proptest::prelude::*;

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap()
}

fn datum() -> impl Strategy<Value = Datum> {
    let scalar = prop::sample::select(ValueType::all().collect::<Vec<_>>())
        .prop_filter("fixed width", |kind| kind.width().is_some());
    let number =
        (scalar.clone(), any::<u64>()).prop_map(|(kind, bits)| Datum::Number(kind, narrowed(kind, bits)));
    let numbers = (scalar, prop::collection::vec(any::<u64>(), 0..20)).prop_map(|(kind, all)| {
        Datum::Numbers(kind, all.into_iter().map(|bits| narrowed(kind, bits)).collect())
    });
    let text = prop::collection::vec(any::<u8>(), 0..30);
    let texts = prop::collection::vec(text.clone(), 0..20).prop_map(Datum::Texts);
    prop_oneof![number, numbers, text.prop_map(Datum::Text), texts]
}

/// Only the bits that a value of this type has in a file; a boolean is 0 or 1.
fn narrowed(kind: ValueType, bits: u64) -> u64 {
    match kind.width() {
        _ if kind == ValueType::Bool => bits & 1,
        Some(width) if width < 8 => bits & ((1 << (8 * width)) - 1),
        _ => bits,
    }
}

fn draft_tensor() -> impl Strategy<Value = (TensorShape, String)> {
    let kinds = prop::sample::select(vec![F32, F16, BF16, Q8_0, Q4_K]);
    let rest = prop::collection::vec(0_u64..5, 0..4);
    ((kinds, 0_u64..4, rest), "[a-z_.]{1,20}")
}

type TensorShape = (plimsoll_model::TensorType, u64, Vec<u64>);

fn any_draft() -> impl Strategy<Value = DraftHeader> {
    let entries = prop::collection::btree_map("[a-z.]{1,12}", datum(), 0..12);
    let tensors = prop::collection::vec(draft_tensor(), 0..12);
    (entries, tensors, 2_u32..=3, any::<bool>()).prop_map(|(entries, tensors, version, big_endian)| {
        let mut names = BTreeSet::new();
        let tensors = tensors.into_iter().filter(|(_, name)| names.insert(name.clone()));
        let tensors = tensors.map(|((kind, blocks, rest), name)| {
            let shape = std::iter::once(blocks * kind.block).chain(rest).collect();
            DraftTensor { name, kind, shape }
        });
        DraftHeader {
            version,
            big_endian,
            tensors: tensors.collect(),
            entries: entries.into_iter().collect(),
            ..DraftHeader::default()
        }
    })
}

/// What the reader says of a value, as the writer would have it.
fn written(kind: ValueType, value: GgufValue<'_>) -> Datum {
    let bits = |value: GgufValue<'_>, kind: ValueType| match value {
        GgufValue::Unsigned(n) => n,
        GgufValue::Signed(n) => narrowed(kind, n.cast_unsigned()),
        GgufValue::Bool(yes) => yes.into(),
        GgufValue::Float(n) if kind == ValueType::F64 => n.to_bits(),
        #[allow(clippy::cast_possible_truncation, reason = "an f64 that came from an f32")]
        GgufValue::Float(n) => (n as f32).to_bits().into(),
        other => panic!("{other:?}"),
    };
    match value {
        GgufValue::Text(text) => Datum::Text(text.to_vec()),
        GgufValue::Array(array) if array.element == ValueType::Text => {
            Datum::Texts(array.texts().unwrap().map(<[u8]>::to_vec).collect())
        }
        GgufValue::Array(array) => match array.integers() {
            Some(numbers) => {
                let low = |number: i128| u64::from_le_bytes(number.to_le_bytes()[..8].try_into().unwrap());
                Datum::Numbers(array.element, numbers.map(|n| narrowed(array.element, low(n))).collect())
            }
            None => Datum::Numbers(array.element, vec![0; usize::try_from(array.count).unwrap()]),
        },
        value => Datum::Number(kind, bits(value, kind)),
    }
}

/// Floats in arrays are passed over, not read; a NaN is only a NaN.
fn comparable(datum: &Datum) -> Datum {
    let float = |kind| matches!(kind, ValueType::F32 | ValueType::F64);
    match datum {
        Datum::Numbers(kind, all) if float(*kind) => Datum::Numbers(*kind, vec![0; all.len()]),
        Datum::Number(ValueType::F32, bits) if f32::from_bits(u32::try_from(*bits).unwrap()).is_nan() => {
            Datum::Number(ValueType::F32, f32::NAN.to_bits().into())
        }
        Datum::Number(ValueType::F64, bits) if f64::from_bits(*bits).is_nan() => {
            Datum::Number(ValueType::F64, f64::NAN.to_bits())
        }
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn written_gguf_header_is_read_back(draft in any_draft()) {
        let bytes = draft.header();
        let file = length(&bytes) + draft.data_length().get();
        let header = Header::read(&bytes, file, Dialect::Ggml).unwrap();
        prop_assert_eq!((header.version, header.big_endian), (draft.version, draft.big_endian));
        prop_assert_eq!(header.data_offset, length(&bytes));
        prop_assert_eq!(header.entries.len(), draft.entries.len());
        for (entry, (key, datum)) in header.entries.iter().zip(&draft.entries) {
            prop_assert_eq!(entry.key, key);
            prop_assert_eq!(comparable(&written(entry.kind, entry.value)), comparable(datum));
        }
        prop_assert_eq!(header.tensors.len(), draft.tensors.len());
        for ((info, tensor), offset) in header.tensors.iter().zip(&draft.tensors).zip(draft.offsets()) {
            prop_assert_eq!(info.name, &tensor.name);
            prop_assert_eq!(info.kind, tensor.kind);
            prop_assert_eq!(&info.shape[..tensor.shape.len()], &tensor.shape[..]);
            prop_assert_eq!(info.bytes, tensor.bytes());
            prop_assert_eq!(info.offset, offset.get());
        }
    }
}
