//! Describes an allocation that holds an engine's KV cache: which bytes belong to which token position.
//!
//! A plan knows it before the engine starts, and passes it to guard as one word:
//! `cache=GPU-<uuid>:STREAMS:POSITIONS:LAYERSxROW/SIZE[,ROW/SIZE][;LAYERSxROW/SIZE…]`. A layer has one or two
//! tensors, K and V. `SIZE` is the tensor's share of the allocation, `ROW` the bytes of one position in one
//! stream. A tensor whose positions are not stored one after the other has rows of 0 bytes.

use core::fmt;

/// Allocations of caches that one process can have a layout for.
pub const CACHES: usize = 8;
/// Different kinds of layers in one allocation.
const GROUPS: usize = 8;
/// More layers than any model has.
const MOST_LAYERS: u32 = 1024;
/// More streams than an engine has (`LLAMA_MAX_SEQ`).
const MOST_STREAMS: u32 = 256;

/// One tensor of a layer's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheTensor {
    /// Bytes of one position; 0 if a position's bytes are spread over the tensor.
    pub row: u64,
    /// Bytes in the allocation, with the padding behind the tensor; 0 for no tensor.
    pub size: u64,
}

/// Consecutive layers with equal tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LayerGroup {
    layers: u32,
    tensors: [CacheTensor; 2],
}

/// The layout of one cache allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLayout {
    streams: u32,
    positions: u32,
    groups: [LayerGroup; GROUPS],
    size: u64,
}

/// The bytes of one stream's positions in a tensor, or of a tensor without rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRows {
    /// Offset in the allocation.
    pub start: u64,
    pub row: u64,
    /// All bytes, padding included.
    pub size: u64,
    /// The stream whose positions they are; 0 for a tensor without rows.
    pub stream: u32,
}

impl CacheLayout {
    /// A layout without layers; `None` for sizes that no engine has.
    pub const fn new(streams: u32, positions: u32) -> Option<Self> {
        if streams == 0 || streams > MOST_STREAMS || positions == 0 {
            return None;
        }
        let none = LayerGroup { layers: 0, tensors: [CacheTensor { row: 0, size: 0 }; 2] };
        Some(Self { streams, positions, groups: [none; GROUPS], size: 0 })
    }

    /// Appends `layers` equal layers; `None` if their rows do not fit their sizes, or if there are too many
    /// kinds.
    pub fn add(&mut self, layers: u32, tensors: [CacheTensor; 2]) -> Option<()> {
        let rows = u64::from(self.streams) * u64::from(self.positions);
        let fits = |tensor: &CacheTensor| tensor.row.checked_mul(rows).is_some_and(|all| all <= tensor.size);
        let before = self.groups.iter().rposition(|group| group.layers > 0);
        let all = self.layers().checked_add(layers).filter(|all| *all <= MOST_LAYERS);
        if all.is_none() || layers == 0 || !tensors.iter().all(fits) {
            return None;
        }
        let each = tensors[0].size.checked_add(tensors[1].size)?;
        let size = self.size.checked_add(each.checked_mul(layers.into())?)?;
        match before.map(|at| &mut self.groups[at]) {
            Some(last) if last.tensors == tensors => last.layers += layers,
            _ => *self.groups.get_mut(before.map_or(0, |at| at + 1))? = LayerGroup { layers, tensors },
        }
        self.size = size;
        Some(())
    }

    /// Bytes of the allocation.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Positions of each stream.
    pub const fn positions(&self) -> u32 {
        self.positions
    }

    /// Streams, each with positions of its own.
    pub const fn streams(&self) -> u32 {
        self.streams
    }

    /// Bytes of one position of one stream, over all tensors with rows.
    pub fn position_bytes(&self) -> u64 {
        self.rows().filter(|rows| rows.stream == 0).fold(0, |sum, rows| sum.saturating_add(rows.row))
    }

    /// All rows, by offset.
    pub fn rows(&self) -> impl Iterator<Item = CacheRows> {
        let mut end = 0_u64;
        let tensors = self.groups.iter().flat_map(|group| (0..group.layers).flat_map(|_| group.tensors));
        let placed = tensors.filter(|tensor| tensor.size > 0).map(move |tensor| {
            let start = end;
            // No overflow: `add` has summed the sizes.
            end += tensor.size;
            (start, tensor)
        });
        placed.flat_map(|(start, tensor)| {
            let streams = if tensor.row == 0 { 1 } else { self.streams };
            let stride = tensor.row * u64::from(self.positions);
            (0..streams).map(move |stream| {
                let from = stride * u64::from(stream);
                // The padding is behind the last stream.
                let size = if stream + 1 == streams { tensor.size - from } else { stride };
                CacheRows { start: start + from, row: tensor.row, size, stream }
            })
        })
    }

    fn layers(&self) -> u32 {
        self.groups.iter().map(|group| group.layers).sum()
    }

    /// Reads what [`fmt::Display`] writes.
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let mut number = || parts.next()?.parse().ok();
        let mut layout = Self::new(number()?, number()?)?;
        for group in parts.next()?.split(';') {
            let (layers, tensors) = group.split_once('x')?;
            let mut read = tensors.splitn(2, ',').map(tensor);
            let first = read.next()??;
            let second = read.next().map_or(Some(CacheTensor::default()), |second| second)?;
            layout.add(layers.parse().ok()?, [first, second])?;
        }
        Some(layout)
    }
}

fn tensor(text: &str) -> Option<CacheTensor> {
    let (row, size) = text.split_once('/')?;
    Some(CacheTensor { row: row.parse().ok()?, size: size.parse().ok()? })
}

impl fmt::Display for CacheLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.streams, self.positions)?;
        for (index, group) in self.groups.iter().filter(|group| group.layers > 0).enumerate() {
            let [key, value] = group.tensors;
            let between = if index > 0 { ";" } else { "" };
            write!(f, "{between}{}x{}/{}", group.layers, key.row, key.size)?;
            if value.size > 0 {
                write!(f, ",{}/{}", value.row, value.size)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const fn tensor(row: u64, size: u64) -> CacheTensor {
        CacheTensor { row, size }
    }

    #[test]
    fn a_layout_is_read_as_it_is_written() {
        let mut layout = CacheLayout::new(2, 256).unwrap();
        layout.add(1, [tensor(4, 2048), tensor(2, 1152)]).unwrap();
        layout.add(2, [tensor(4, 2048), tensor(2, 1152)]).unwrap();
        layout.add(1, [tensor(8, 4096), tensor(0, 0)]).unwrap();
        assert_eq!(layout.to_string(), "2:256:3x4/2048,2/1152;1x8/4096");
        assert_eq!(CacheLayout::read(&layout.to_string()), Some(layout));
        assert_eq!(layout.size(), 3 * (2048 + 1152) + 4096);
        assert_eq!(layout.position_bytes(), 3 * (4 + 2) + 8);
    }

    #[test]
    fn rows_of_streams_follow_each_other_and_padding_is_behind_them() {
        let mut layout = CacheLayout::new(2, 256).unwrap();
        layout.add(1, [tensor(4, 2048), tensor(2, 1152)]).unwrap();
        layout.add(1, [tensor(0, 512), tensor(0, 0)]).unwrap();
        let rows: Vec<_> = layout.rows().map(|rows| (rows.start, rows.row, rows.size, rows.stream)).collect();
        assert_eq!(
            rows,
            [(0, 4, 1024, 0), (1024, 4, 1024, 1), (2048, 2, 512, 0), (2560, 2, 640, 1), (3200, 0, 512, 0)]
        );
    }

    #[test]
    fn a_layout_that_no_engine_has_is_none() {
        for wrong in [
            "",
            "1:256",
            "1:256:",
            "0:256:1x4/1024",
            "1:0:1x4/1024",
            "257:256:1x4/1024",
            "1:256:0x4/1024",
            "1:256:1x4/1023",
            "1:256:1025x4/1024",
            "1:256:2x1/18446744073709551615",
            "1:256:1x18446744073709551615/8",
            "1:256:1x4",
            "1:256:1x4/1024,4",
            "1:256:1x1/256;1x2/512;1x1/256;1x2/512;1x1/256;1x2/512;1x1/256;1x2/512;1x1/256",
        ] {
            assert_eq!(CacheLayout::read(wrong), None, "{wrong}");
        }
    }
}
