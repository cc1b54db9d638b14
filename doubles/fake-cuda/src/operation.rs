//! Stream operations of the fake CUDA driver, such as copies: executed once, or at each launch of a graph
//! that contains them.

use std::ops::Range;

use crate::abi::{DevicePtr, Host, Physical};
use crate::code::{Code, ILLEGAL_ADDRESS, INVALID_HANDLE, INVALID_VALUE, Outcome};
use crate::driver::Driver;
use crate::settings::settings;
use crate::space::{Behind, Segment};
use crate::work::Touch;

/// Bytes moved at a time.
const STEP: usize = 1 << 20;

#[derive(Debug, Clone)]
pub(crate) enum Operation {
    /// Lines of bytes from one place to another.
    Copy(Vec<Line>),
    /// Rows of a repeated pattern of 1, 2 or 4 bytes.
    Fill { at: DevicePtr, pitch: u64, pattern: Vec<u8>, width: u64, rows: u64 },
    /// A kernel, with the memory that we know it touches.
    Kernel { touches: Vec<Range<u64>> },
    /// Host functions, events: nothing that touches memory.
    Nothing,
}

/// Bytes that lie side by side at both ends of a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    pub(crate) to: Memory,
    pub(crate) from: Memory,
    pub(crate) length: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Memory {
    Host(Host),
    Device(DevicePtr),
    /// So many bytes into an array.
    Array(Physical, u64),
}

impl Memory {
    /// The place so many bytes further on.
    pub(crate) fn after(self, offset: u64) -> Self {
        match self {
            Self::Host(host) => Self::Host(Host::new(host.address().wrapping_add(offset))),
            Self::Device(at) => Self::Device(DevicePtr(at.0.wrapping_add(offset))),
            Self::Array(array, at) => Self::Array(array, at.wrapping_add(offset)),
        }
    }

    fn touch(self, length: u64, write: bool) -> Option<Touch> {
        match self {
            Self::Device(at) => Some((at.0..at.0.saturating_add(length), write)),
            Self::Host(_) | Self::Array(..) => None,
        }
    }
}

fn span(at: u64, pitch: u64, width: u64, rows: u64) -> Range<u64> {
    let last = pitch.saturating_mul(rows.saturating_sub(1));
    at..at.saturating_add(last).saturating_add(width)
}

impl Operation {
    /// The ranges of the unified address space that it touches; `true` for those it writes.
    pub(crate) fn reach(&self) -> Vec<Touch> {
        match self {
            Self::Copy(lines) => lines
                .iter()
                .flat_map(|line| [line.to.touch(line.length, true), line.from.touch(line.length, false)])
                .flatten()
                .collect(),
            Self::Fill { at, pitch, width, rows, .. } => vec![(span(at.0, *pitch, *width, *rows), true)],
            Self::Kernel { touches } => touches.iter().map(|range| (range.clone(), true)).collect(),
            Self::Nothing => Vec::new(),
        }
    }

    /// `CUgraphNodeType`.
    pub(crate) fn kind(&self) -> i32 {
        match self {
            Self::Kernel { .. } => 0,
            Self::Copy(_) => 1,
            Self::Fill { .. } => 2,
            Self::Nothing => 5,
        }
    }

    /// How long it takes.
    pub(crate) fn delay(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            _ => settings().delay,
        }
    }

    /// The driver carries it out itself, without a kernel of the program.
    fn is_plain(&self) -> bool {
        !matches!(self, Self::Kernel { .. })
    }

    fn is_copy(&self) -> bool {
        matches!(self, Self::Copy(_))
    }
}

impl Driver {
    /// Says whether an address is the driver's or the program's.
    pub(crate) fn memory_at(&self, address: u64) -> Memory {
        match self.space.region(DevicePtr(address)) {
            Some(_) => Memory::Device(DevicePtr(address)),
            None => Memory::Host(Host::new(address)),
        }
    }

    /// Refuses an operation that would touch what it may not.
    pub(crate) fn check(&self, operation: &Operation, card: usize) -> Outcome {
        for (range, write) in operation.reach() {
            if range.is_empty() {
                continue;
            }
            let length = range.end - range.start;
            let refusal = match operation {
                Operation::Kernel { .. } => ILLEGAL_ADDRESS,
                _ => INVALID_VALUE,
            };
            let segments = self.space.cover(DevicePtr(range.start), length).ok_or(refusal)?;
            let permitted = |(_, segment): &(u64, Segment)| segment.access.permits(card, write);
            if !segments.iter().all(permitted) {
                return Err(refusal);
            }
            if !settings().across && operation.is_plain() && self.cross_the_border(&segments) {
                return Err(INVALID_VALUE);
            }
            if !operation.is_copy() && !settings().host_touch && self.lead_to_host_blocks(&segments) {
                return Err(INVALID_HANDLE);
            }
        }
        Ok(())
    }

    /// Some segments are host memory and some are not.
    fn cross_the_border(&self, segments: &[(u64, Segment)]) -> bool {
        let mut places = segments.iter().map(|segment| self.lead_to_host_blocks(&[*segment]));
        let first = places.next();
        places.any(|place| Some(place) != first)
    }

    /// Some segment is host memory that was made by `cuMemCreate`.
    fn lead_to_host_blocks(&self, segments: &[(u64, Segment)]) -> bool {
        segments.iter().any(|(_, segment)| match segment.behind {
            Behind::Block(physical, _) => {
                self.blocks.get(physical).is_ok_and(|block| block.is_host() && block.prop.is_some())
            }
            Behind::Host => false,
        })
    }

    /// Does it to the memory.
    pub(crate) fn execute(&self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Copy(lines) => lines.iter().try_for_each(|line| self.copy_bytes(line)),
            Operation::Fill { at, pitch, pattern, width, rows } => {
                (0..*rows).try_for_each(|row| self.fill_bytes(DevicePtr(at.0 + row * pitch), pattern, *width))
            }
            // The one kernel that we know adds one to every byte.
            Operation::Kernel { touches } => touches.iter().try_for_each(|range| self.add_one(range)),
            Operation::Nothing => Ok(()),
        }
    }

    fn copy_bytes(&self, line: &Line) -> Outcome {
        let mut buffer = vec![0; STEP.min(usize::try_from(line.length).map_err(|_| INVALID_VALUE)?)];
        let mut done = 0;
        while done < line.length {
            let length = usize::try_from(line.length - done).unwrap_or(STEP).min(STEP);
            let step = &mut buffer[..length];
            match line.from.after(done) {
                Memory::Host(host) => step.copy_from_slice(host.bytes(0, length)),
                Memory::Device(at) => self.read_bytes(at, step)?,
                Memory::Array(array, at) => self.blocks.get(array)?.read(at, step)?,
            }
            match line.to.after(done) {
                Memory::Host(host) => host.bytes_mut(0, length).copy_from_slice(step),
                Memory::Device(at) => self.write_bytes(at, step)?,
                Memory::Array(array, at) => self.blocks.get(array)?.write(at, step)?,
            }
            done += length as u64;
        }
        Ok(())
    }

    fn fill_bytes(&self, at: DevicePtr, pattern: &[u8], width: u64) -> Outcome {
        if pattern.iter().all(|byte| *byte == 0) {
            return self.clear_bytes(at, width);
        }
        let length = STEP.min(usize::try_from(width).map_err(|_| INVALID_VALUE)?);
        let step: Vec<u8> = pattern.iter().copied().cycle().take(length).collect();
        let mut done = 0;
        while done < width {
            let length = usize::try_from(width - done).unwrap_or(STEP).min(STEP);
            self.write_bytes(DevicePtr(at.0 + done), &step[..length])?;
            done += length as u64;
        }
        Ok(())
    }

    fn add_one(&self, range: &Range<u64>) -> Outcome {
        let length = usize::try_from(range.end - range.start).map_err(|_| INVALID_VALUE)?;
        let mut bytes = vec![0; length];
        self.read_bytes(DevicePtr(range.start), &mut bytes)?;
        bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        self.write_bytes(DevicePtr(range.start), &bytes)
    }

    fn read_bytes(&self, at: DevicePtr, out: &mut [u8]) -> Outcome {
        let mut rest = out;
        for piece in self.pieces(at, rest.len() as u64)? {
            let length = usize::try_from(piece.length).map_err(|_| INVALID_VALUE)?;
            let (part, after) = rest.split_at_mut(length);
            match piece.behind {
                Behind::Block(physical, offset) => self.blocks.get(physical)?.read(offset, part)?,
                Behind::Host => part.copy_from_slice(Host::new(piece.at).bytes(0, length)),
            }
            rest = after;
        }
        Ok(())
    }

    fn write_bytes(&self, at: DevicePtr, bytes: &[u8]) -> Outcome {
        let mut rest = bytes;
        for piece in self.pieces(at, rest.len() as u64)? {
            let length = usize::try_from(piece.length).map_err(|_| INVALID_VALUE)?;
            let (part, after) = rest.split_at(length);
            match piece.behind {
                Behind::Block(physical, offset) => self.blocks.get(physical)?.write(offset, part)?,
                Behind::Host => Host::new(piece.at).bytes_mut(0, length).copy_from_slice(part),
            }
            rest = after;
        }
        Ok(())
    }

    fn clear_bytes(&self, at: DevicePtr, length: u64) -> Outcome {
        for piece in self.pieces(at, length)? {
            match piece.behind {
                Behind::Block(physical, offset) => self.blocks.get(physical)?.clear(offset, piece.length)?,
                Behind::Host => {
                    let length = usize::try_from(piece.length).map_err(|_| INVALID_VALUE)?;
                    Host::new(piece.at).bytes_mut(0, length).fill(0);
                }
            }
        }
        Ok(())
    }

    /// The parts of a range, each in one segment.
    fn pieces(&self, at: DevicePtr, length: u64) -> Result<Vec<Piece>, Code> {
        if length == 0 {
            return Ok(Vec::new());
        }
        let end = at.0 + length;
        let covering = self.space.cover(at, length).ok_or(INVALID_VALUE)?;
        let piece = |(start, segment): (u64, Segment)| {
            let from = start.max(at.0);
            let behind = match segment.behind {
                Behind::Block(physical, offset) => Behind::Block(physical, offset + (from - start)),
                Behind::Host => Behind::Host,
            };
            Piece { at: from, length: end.min(start + segment.length) - from, behind }
        };
        Ok(covering.into_iter().map(piece).collect())
    }
}

/// A part of a range that one segment leads on.
#[derive(Debug, Clone, Copy)]
struct Piece {
    at: u64,
    length: u64,
    behind: Behind,
}
