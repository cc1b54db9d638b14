//! Reader of the tensor list in a GGUF header: checks of each entry, and of the tensors' positions in the
//! file.

use std::collections::HashSet;

use plimsoll_base::Bytes;

use super::cursor::Cursor;
use super::error::{GgufError, GgufPlace, shortened};
use super::{Header, TensorInfo};
use crate::{Dialect, TensorType};

/// `GGML_MAX_NAME`, which counts the closing zero.
const NAME_LIMIT: usize = 64;

/// Room is made for this many at most before they are seen: a count is a claim.
const ROOM: usize = 1 << 11;

/// `INT64_MAX`: ggml counts elements in signed numbers.
const MOST_ELEMENTS: u64 = i64::MAX.cast_unsigned();

pub(super) fn read<'a>(
    cursor: &mut Cursor<'a>,
    count: u64,
    dialect: Dialect,
) -> Result<Vec<TensorInfo<'a>>, GgufError> {
    // A count is a claim; a real model has about a thousand tensors.
    let room = usize::try_from(count).map_or(ROOM, |count| count.min(ROOM));
    let mut tensors = Vec::with_capacity(room);
    let mut seen = HashSet::with_capacity(room);
    for index in 0..count {
        let offset = cursor.offset();
        let tensor = read_one(cursor, index, dialect)?;
        if !seen.insert(tensor.name) {
            let tensor = shortened(tensor.name);
            return Err(GgufError::DuplicateTensor { tensor, offset });
        }
        tensors.push(tensor);
        cursor.ahead.tensors -= 1;
    }
    Ok(tensors)
}

fn read_one<'a>(cursor: &mut Cursor<'a>, index: u64, dialect: Dialect) -> Result<TensorInfo<'a>, GgufError> {
    let start = cursor.offset();
    let name = read_name(cursor, index)?;
    let place = GgufPlace::Tensor(name);
    let shape = read_shape(cursor, name, start)?;
    let id = cursor.u32(place)?;
    let kind = dialect.tensor_type(id).ok_or_else(|| GgufError::TensorType {
        tensor: shortened(name),
        id,
        offset: start,
    })?;
    let bytes = weigh(kind, shape, name, start)?;
    let offset = cursor.u64(place)?;
    Ok(TensorInfo { name, kind, shape, offset, bytes })
}

/// ggml takes a name as a C string: it ends at the first zero.
fn read_name<'a>(cursor: &mut Cursor<'a>, index: u64) -> Result<&'a str, GgufError> {
    let offset = cursor.offset();
    let name = cursor.name(GgufPlace::TensorName(index))?;
    if name.len() >= NAME_LIMIT {
        return Err(GgufError::TensorNameTooLong { tensor: shortened(name), length: name.len(), offset });
    }
    // Names are compared as ggml compares them.
    Ok(name.split('\0').next().unwrap_or(name))
}

fn read_shape(cursor: &mut Cursor<'_>, name: &str, offset: u64) -> Result<[u64; 4], GgufError> {
    let place = GgufPlace::Tensor(name);
    let mut shape = [1; 4];
    let dimensions = cursor.u32(place)?;
    let given = usize::try_from(dimensions).ok().and_then(|n| shape.get_mut(..n));
    for size in given.ok_or_else(|| GgufError::Dimensions { tensor: shortened(name), dimensions, offset })? {
        *size = cursor.u64(place)?;
    }
    if !countable(shape) {
        let tensor = shortened(name);
        return Err(GgufError::Shape { tensor, shape, offset });
    }
    Ok(shape)
}

/// May ggml count the elements of this shape? None at all is fine.
fn countable(shape: [u64; 4]) -> bool {
    let signed = shape.iter().all(|&size| size <= MOST_ELEMENTS);
    let [first, rest @ ..] = shape;
    let product = rest.iter().try_fold(first, |product, &size| {
        // Division instead of multiplication: the product itself could wrap.
        (MOST_ELEMENTS / size.max(1) > product).then(|| product * size)
    });
    signed && (shape.contains(&0) || product.is_some())
}

fn weigh(kind: TensorType, shape: [u64; 4], name: &str, offset: u64) -> Result<Bytes, GgufError> {
    let [row, rest @ ..] = shape;
    let one = kind.row(row).ok_or_else(|| GgufError::RowLength {
        tensor: shortened(name),
        row,
        block: kind.block,
        kind: kind.name,
        offset,
    })?;
    if shape.contains(&0) {
        return Ok(Bytes::ZERO);
    }
    rest.iter()
        .try_fold(one, |bytes, &size| bytes.checked_mul(size))
        .filter(|&bytes| bytes < Bytes::MAX)
        .ok_or_else(|| GgufError::Shape { tensor: shortened(name), shape, offset })
}

/// Tensors lie one after the other, each padded to the alignment, and all of them within the file.
/// Mirrors `gguf.cpp` for the order and `llama-model-loader.h: llama_tensor_weight @ b10605` for the end.
pub(super) fn check_layout(header: &Header<'_>) -> Result<(), GgufError> {
    let mut expected = Bytes::ZERO;
    for tensor in &header.tensors {
        // gguf.cpp accepts no other order, so a gap or overlap is damage.
        if tensor.offset != expected.get() {
            return Err(GgufError::TensorOffset {
                tensor: shortened(tensor.name),
                found: tensor.offset,
                expected: expected.get(),
            });
        }
        let end = expected + tensor.bytes + Bytes::new(header.data_offset);
        if end.get() > header.file_length {
            return Err(GgufError::TensorPastEnd {
                tensor: shortened(tensor.name),
                end: end.get(),
                length: header.file_length,
            });
        }
        expected = (expected + tensor.bytes).padded(header.alignment);
    }
    Ok(())
}
