//! Hooks of memory copies, which are split if the driver refuses to copy across a spilled range.
//!
//! A spilled range is device memory followed by host memory. A test at run time shows whether the driver
//! copies across the border between the two. Copy nodes added to a CUDA graph by hand are not split.

use crate::driver::{Context, CuArray, CuResult, CuStream, DevicePointer};
use crate::hooks::hooks;
use crate::policy::copy_split::{CopyBox, CopySide, split};
use crate::spill::copy_border;

/// Pointer to the program's memory, passed on without being dereferenced.
type HostPointer = u64;

/// CU_MEMORYTYPE_DEVICE and CU_MEMORYTYPE_UNIFIED: the sides of a copy that can be in a spilled range.
const DEVICE: u32 = 2;
const UNIFIED: u32 = 4;

/// `CUDA_MEMCPY2D_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy2D {
    from: Copy2DSide,
    to: Copy2DSide,
    width: u64,
    height: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Copy2DSide {
    x: u64,
    y: u64,
    memory: u32,
    host: HostPointer,
    device: DevicePointer,
    array: CuArray,
    pitch: u64,
}

/// `CUDA_MEMCPY3D_v2`, and `CUDA_MEMCPY3D_PEER`, which has contexts in the reserved fields.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy3D {
    from: Copy3DSide,
    to: Copy3DSide,
    width: u64,
    height: u64,
    depth: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Copy3DSide {
    x: u64,
    y: u64,
    z: u64,
    level: u64,
    memory: u32,
    host: HostPointer,
    device: DevicePointer,
    array: CuArray,
    context: Context,
    pitch: u64,
    height: u64,
}

const _: () = assert!(size_of::<Copy2D>() == 128 && size_of::<Copy3D>() == 200);

impl Copy2DSide {
    fn side(&self) -> CopySide {
        side(self.memory, self.device, [self.pitch, 0], [self.x, self.y, 0])
    }

    fn at(self, piece: &CopyBox) -> Self {
        let [x, y, _] = piece.at;
        Self { x: self.x + x, y: self.y + y, ..self }
    }
}

impl Copy3DSide {
    fn side(&self) -> CopySide {
        let slice = self.pitch.wrapping_mul(self.height);
        let at = [self.x, self.y, self.z];
        side(self.memory, self.device, [self.pitch, slice], at)
    }

    fn at(self, piece: &CopyBox) -> Self {
        let [x, y, z] = piece.at;
        Self { x: self.x + x, y: self.y + y, z: self.z + z, ..self }
    }
}

fn side(memory: u32, device: DevicePointer, [pitch, slice]: [u64; 2], at: [u64; 3]) -> CopySide {
    let border = match memory {
        DEVICE | UNIFIED => copy_border::of(device),
        _ => copy_border::NONE,
    };
    let side = CopySide { start: device, pitch, slice, border };
    let start = side.address(at);
    CopySide { start, ..side }
}

/// A copy of `size` bytes that touches the memory behind `ends`; `copy` does the bytes from an offset on.
fn line(ends: [DevicePointer; 2], size: u64, copy: impl Fn(u64, u64) -> CuResult) -> CuResult {
    if !copy_border::matter() {
        return copy(0, size);
    }
    let sides = ends.map(|start| CopySide::line(start, copy_border::of(start)));
    code(split(CopyBox::line(size), &sides, &mut |piece| result(copy(piece.at[0], piece.size[0]))))
}

fn plane(whole: *const Copy2D, copy: impl Fn(*const Copy2D) -> CuResult) -> CuResult {
    if !copy_border::matter() || whole.is_null() {
        return copy(whole);
    }
    // SAFETY: not null, and the caller promised the driver a description of a copy.
    let whole = unsafe { whole.read() };
    let sides = [whole.from.side(), whole.to.side()];
    let block = CopyBox::solid([whole.width, whole.height, 1]);
    code(split(block, &sides, &mut |piece| {
        let [width, height, _] = piece.size;
        let (from, to) = (whole.from.at(&piece), whole.to.at(&piece));
        result(copy(&Copy2D { from, to, width, height }))
    }))
}

fn solid(whole: *const Copy3D, copy: impl Fn(*const Copy3D) -> CuResult) -> CuResult {
    if !copy_border::matter() || whole.is_null() {
        return copy(whole);
    }
    // SAFETY: not null, and the caller promised the driver a description of a copy.
    let whole = unsafe { whole.read() };
    let sides = [whole.from.side(), whole.to.side()];
    let block = CopyBox::solid([whole.width, whole.height, whole.depth]);
    code(split(block, &sides, &mut |piece| {
        let [width, height, depth] = piece.size;
        let (from, to) = (whole.from.at(&piece), whole.to.at(&piece));
        result(copy(&Copy3D { from, to, width, height, depth }))
    }))
}

pub(super) fn result(code: CuResult) -> Result<(), CuResult> {
    if code == 0 { Ok(()) } else { Err(code) }
}

pub(super) fn code(result: Result<(), CuResult>) -> CuResult {
    result.err().unwrap_or(0)
}

/// For the side of a copy that cannot be in one of guard's ranges.
const ELSEWHERE: DevicePointer = 0;

hooks! {
    in CUDA;

    fn cuMemcpy / cuMemcpy_ptds = "cuMemcpy" since 4000
        (to: DevicePointer, from: DevicePointer, size: u64) calls copy
    {
        line([to, from], size, |at, size| copy(to + at, from + at, size))
    }

    fn cuMemcpyAsync / cuMemcpyAsync_ptsz = "cuMemcpyAsync" since 4000
        (to: DevicePointer, from: DevicePointer, size: u64, stream: CuStream) calls copy
    {
        line([to, from], size, |at, size| copy(to + at, from + at, size, stream))
    }

    fn cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds = "cuMemcpyHtoD" since 3020
        (to: DevicePointer, from: HostPointer, size: u64) calls copy
    {
        line([to, ELSEWHERE], size, |at, size| copy(to + at, from + at, size))
    }

    fn cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz = "cuMemcpyHtoDAsync" since 3020
        (to: DevicePointer, from: HostPointer, size: u64, stream: CuStream) calls copy
    {
        line([to, ELSEWHERE], size, |at, size| copy(to + at, from + at, size, stream))
    }

    fn cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds = "cuMemcpyDtoH" since 3020
        (to: HostPointer, from: DevicePointer, size: u64) calls copy
    {
        line([ELSEWHERE, from], size, |at, size| copy(to + at, from + at, size))
    }

    fn cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz = "cuMemcpyDtoHAsync" since 3020
        (to: HostPointer, from: DevicePointer, size: u64, stream: CuStream) calls copy
    {
        line([ELSEWHERE, from], size, |at, size| copy(to + at, from + at, size, stream))
    }

    fn cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds = "cuMemcpyDtoD" since 3020
        (to: DevicePointer, from: DevicePointer, size: u64) calls copy
    {
        line([to, from], size, |at, size| copy(to + at, from + at, size))
    }

    fn cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz = "cuMemcpyDtoDAsync" since 3020
        (to: DevicePointer, from: DevicePointer, size: u64, stream: CuStream) calls copy
    {
        line([to, from], size, |at, size| copy(to + at, from + at, size, stream))
    }

    fn cuMemcpyDtoA_v2 / cuMemcpyDtoA_v2_ptds = "cuMemcpyDtoA" since 3020
        (to: CuArray, offset: u64, from: DevicePointer, size: u64) calls copy
    {
        line([ELSEWHERE, from], size, |at, size| copy(to, offset + at, from + at, size))
    }

    fn cuMemcpyAtoD_v2 / cuMemcpyAtoD_v2_ptds = "cuMemcpyAtoD" since 3020
        (to: DevicePointer, from: CuArray, offset: u64, size: u64) calls copy
    {
        line([to, ELSEWHERE], size, |at, size| copy(to + at, from, offset + at, size))
    }

    fn cuMemcpyPeer / cuMemcpyPeer_ptds = "cuMemcpyPeer" since 4000
        (to: DevicePointer, to_context: Context, from: DevicePointer, from_context: Context, size: u64) calls copy
    {
        line([to, from], size, |at, size| copy(to + at, to_context, from + at, from_context, size))
    }

    fn cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz = "cuMemcpyPeerAsync" since 4000
        (to: DevicePointer, to_context: Context, from: DevicePointer, from_context: Context, size: u64, stream: CuStream)
        calls copy
    {
        line([to, from], size, |at, size| copy(to + at, to_context, from + at, from_context, size, stream))
    }

    fn cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds = "cuMemcpy2D" since 3020 (whole: *const Copy2D) calls copy {
        plane(whole, |piece| copy(piece))
    }

    fn cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds = "cuMemcpy2DUnaligned" since 3020
        (whole: *const Copy2D) calls copy
    {
        plane(whole, |piece| copy(piece))
    }

    fn cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz = "cuMemcpy2DAsync" since 3020
        (whole: *const Copy2D, stream: CuStream) calls copy
    {
        plane(whole, |piece| copy(piece, stream))
    }

    fn cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds = "cuMemcpy3D" since 3020 (whole: *const Copy3D) calls copy {
        solid(whole, |piece| copy(piece))
    }

    fn cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz = "cuMemcpy3DAsync" since 3020
        (whole: *const Copy3D, stream: CuStream) calls copy
    {
        solid(whole, |piece| copy(piece, stream))
    }

    fn cuMemcpy3DPeer / cuMemcpy3DPeer_ptds = "cuMemcpy3DPeer" since 4000 (whole: *const Copy3D) calls copy {
        solid(whole, |piece| copy(piece))
    }

    fn cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz = "cuMemcpy3DPeerAsync" since 4000
        (whole: *const Copy3D, stream: CuStream) calls copy
    {
        solid(whole, |piece| copy(piece, stream))
    }
}
