//! Divides copies of rectangles and boxes (2D and 3D) into their lines, for the fake CUDA driver.

use crate::abi::Array;
use crate::abi::structs::{Copy2D, Copy2DSide, Copy3D, Copy3DSide};
use crate::code::{Code, INVALID_HANDLE, INVALID_VALUE};
use crate::driver::Driver;
use crate::operation::{Line, Memory, Operation};

/// `CUmemorytype`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

/// One end of a copy: a place, and how far its rows and planes lie apart.
#[derive(Debug, Clone, Copy)]
struct End {
    memory: Memory,
    start: u64,
    pitch: u64,
    plane: u64,
}

impl End {
    fn row(&self, row: u64, plane: u64) -> Option<u64> {
        let rows = row.checked_mul(self.pitch)?;
        let planes = plane.checked_mul(self.plane)?;
        self.start.checked_add(rows)?.checked_add(planes)
    }
}

impl Driver {
    pub(super) fn array_bytes(&self, array: Array, offset: u64) -> Result<Memory, Code> {
        let state = self.arrays.get(&array).ok_or(INVALID_HANDLE)?;
        Ok(Memory::Array(state.physical, offset))
    }

    /// The end of a box, and the offset of its first byte.
    fn end_of_box(&self, side: &Copy3DSide, width: u64) -> Result<End, Code> {
        let (memory, pitch, height) = match side.memory {
            HOST => (self.memory_at(side.host.address()), side.pitch, side.height),
            DEVICE => (Memory::Device(side.device), side.pitch, side.height),
            UNIFIED => (self.memory_at(side.device.0), side.pitch, side.height),
            ARRAY => {
                let array = self.arrays.get(&side.array).ok_or(INVALID_HANDLE)?;
                let (pitch, height) = array.layout()?;
                (self.array_bytes(side.array, 0)?, pitch, height)
            }
            _ => return Err(INVALID_VALUE),
        };
        // A pitch of zero means that the rows lie side by side.
        let pitch = if pitch == 0 { width } else { pitch };
        if pitch < width {
            return Err(INVALID_VALUE);
        }
        let plane = pitch.checked_mul(height).ok_or(INVALID_VALUE)?;
        let mut end = End { memory, start: side.x, pitch, plane };
        end.start = end.row(side.y, side.z).ok_or(INVALID_VALUE)?;
        Ok(end)
    }

    pub(super) fn solid(&self, copy: &Copy3D) -> Result<Operation, Code> {
        let (to, from) = (self.end_of_box(&copy.to, copy.width)?, self.end_of_box(&copy.from, copy.width)?);
        let mut lines = Vec::new();
        for plane in 0..copy.depth {
            for row in 0..copy.height {
                let place = |end: &End| Some(end.memory.after(end.row(row, plane)?));
                lines.push(Line {
                    to: place(&to).ok_or(INVALID_VALUE)?,
                    from: place(&from).ok_or(INVALID_VALUE)?,
                    length: copy.width,
                });
            }
        }
        Ok(Operation::Copy(lines))
    }
}

impl From<Copy2D> for Copy3D {
    fn from(flat: Copy2D) -> Self {
        Self { from: flat.from.into(), to: flat.to.into(), width: flat.width, height: flat.height, depth: 1 }
    }
}

impl From<Copy2DSide> for Copy3DSide {
    fn from(side: Copy2DSide) -> Self {
        Self {
            x: side.x,
            y: side.y,
            z: 0,
            level: 0,
            memory: side.memory,
            host: side.host,
            device: side.device,
            array: side.array,
            reserved: 0,
            pitch: side.pitch,
            height: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::structs::Array3dDescriptor;
    use crate::abi::{DevicePtr, Host, In};
    use crate::alone::{alone, get, ok, start};
    use crate::arrays::cuArray3DCreate_v2;
    use crate::copy::{cuMemcpy2D_v2, cuMemcpy3D_v2, cuMemcpyAtoD_v2, cuMemcpyDtoH_v2};
    use crate::linear::cuMemAlloc_v2;

    fn nowhere() -> Copy3DSide {
        Copy3DSide {
            x: 0,
            y: 0,
            z: 0,
            level: 0,
            memory: HOST,
            host: Host::new(0),
            device: DevicePtr(0),
            array: Array(0),
            reserved: 0,
            pitch: 0,
            height: 0,
        }
    }

    #[test]
    fn a_rectangle_is_copied_out_of_the_middle() {
        alone("", || {
            start();
            let at = get(|at| cuMemAlloc_v2(at, 4096));
            let square = *b"0123456789abcdef";
            let side = |x: u64, y: u64, memory, host, device, pitch| Copy2DSide {
                x,
                y,
                memory,
                host,
                device,
                array: Array(0),
                pitch,
            };
            let copy = Copy2D {
                from: side(1, 1, HOST, Host::to(&square), DevicePtr(0), 4),
                to: side(0, 0, DEVICE, Host::new(0), at, 2),
                width: 2,
                height: 3,
            };
            ok(cuMemcpy2D_v2(In::from(&copy)));
            let mut back = [0; 6];
            ok(cuMemcpyDtoH_v2(Host::into(&mut back), at, 6));
            assert_eq!(&back, b"569ade");
            let narrow = Copy2D { width: 5, ..copy };
            assert_eq!(cuMemcpy2D_v2(In::from(&narrow)), INVALID_VALUE, "a row is longer than the pitch");
        });
    }

    #[test]
    fn a_box_goes_into_an_array_and_out_of_it() {
        alone("", || {
            start();
            let shape = Array3dDescriptor { width: 2, height: 2, depth: 2, format: 1, channels: 1, flags: 0 };
            let array = get(|array| cuArray3DCreate_v2(array, In::from(&shape)));
            let at = get(|at| cuMemAlloc_v2(at, 4096));
            let cube = *b"abcdefgh";
            let copy = Copy3D {
                from: Copy3DSide { host: Host::to(&cube), pitch: 2, height: 2, ..nowhere() },
                to: Copy3DSide { memory: ARRAY, array, ..nowhere() },
                width: 2,
                height: 2,
                depth: 2,
            };
            ok(cuMemcpy3D_v2(In::from(&copy)));
            ok(cuMemcpyAtoD_v2(at, array, 3, 4));
            let mut back = [0; 4];
            ok(cuMemcpyDtoH_v2(Host::into(&mut back), at, 4));
            assert_eq!(&back, b"defg");
        });
    }
}
