//! Types of GGUF values: their numbers, widths and names (`gguf.h: enum gguf_type @ b10605`).

use std::fmt;

/// Type of a GGUF value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    Array,
    U64,
    I64,
    F64,
}

/// Type, bytes of one value if that is fixed, and the name that `gguf.cpp: GGUF_TYPE_NAME` prints, in the
/// order of their numbers in files.
const TYPES: [(ValueType, Option<u64>, &str); 13] = [
    (ValueType::U8, Some(1), "u8"),
    (ValueType::I8, Some(1), "i8"),
    (ValueType::U16, Some(2), "u16"),
    (ValueType::I16, Some(2), "i16"),
    (ValueType::U32, Some(4), "u32"),
    (ValueType::I32, Some(4), "i32"),
    (ValueType::F32, Some(4), "f32"),
    (ValueType::Bool, Some(1), "bool"),
    (ValueType::Text, None, "str"),
    (ValueType::Array, None, "arr"),
    (ValueType::U64, Some(8), "u64"),
    (ValueType::I64, Some(8), "i64"),
    (ValueType::F64, Some(8), "f64"),
];

impl ValueType {
    pub fn all() -> impl Iterator<Item = Self> {
        TYPES.into_iter().map(|row| row.0)
    }

    /// The type of a number in the file.
    pub fn from_id(id: u32) -> Option<Self> {
        TYPES.get(usize::try_from(id).ok()?).map(|row| row.0)
    }

    /// The number in the file.
    pub fn id(self) -> u32 {
        let mut numbers = (0..).zip(TYPES);
        numbers.find(|(_, row)| row.0 == self).map_or(u32::MAX, |(id, _)| id)
    }

    /// Bytes of one value; `None` for text and arrays, whose length is stored with them.
    pub fn width(self) -> Option<u64> {
        self.row().1
    }

    pub fn name(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> (Self, Option<u64>, &'static str) {
        let row = TYPES.into_iter().find(|row| row.0 == self);
        row.unwrap_or((self, None, ""))
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_their_types_and_back() {
        for (kind, id) in ValueType::all().zip(0_u32..) {
            assert_eq!((kind.id(), ValueType::from_id(id)), (id, Some(kind)));
        }
        assert_eq!(ValueType::from_id(13), None);
    }
}
