//! CUDA arrays in the fake driver: device memory in a layout chosen by the driver, without an address.

use std::collections::BTreeMap;

use crate::abi::structs::{Array3dDescriptor, ArrayDescriptor, MemoryRequirements};
use crate::abi::{Array, In, Out, Physical};
use crate::blocks::{GRANULE, Place};
use crate::call::driver;
use crate::capture::forbid_in_capture;
use crate::code::{Code, INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY, Outcome};
use crate::driver::{Driver, driver};
use crate::work::{Scope, synchronise};

pub(crate) type Arrays = BTreeMap<Array, State>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    pub(crate) physical: Physical,
    size: u64,
    shape: Array3dDescriptor,
}

impl State {
    /// Bytes of a row, and rows of a plane.
    pub(crate) fn layout(&self) -> Result<(u64, u64), Code> {
        let row = Array3dDescriptor { height: 0, depth: 0, ..self.shape };
        Ok((bytes(&row)?, self.shape.height.max(1) as u64))
    }
}

/// Bytes of one channel in a `CUarray_format`.
fn channel(format: u32) -> Result<usize, Code> {
    match format {
        0x01 | 0x08 => Ok(1),
        0x02 | 0x09 | 0x10 => Ok(2),
        0x03 | 0x0a | 0x20 => Ok(4),
        _ => Err(INVALID_VALUE),
    }
}

fn bytes(shape: &Array3dDescriptor) -> Result<u64, Code> {
    let channels = usize::try_from(shape.channels).map_err(|_| INVALID_VALUE)?;
    if shape.width == 0 || !matches!(channels, 1 | 2 | 4) {
        return Err(INVALID_VALUE);
    }
    [shape.height.max(1), shape.depth.max(1), channels, channel(shape.format)?]
        .into_iter()
        .try_fold(shape.width, usize::checked_mul)
        .and_then(|bytes| u64::try_from(bytes).ok())
        .ok_or(OUT_OF_MEMORY)
}

/// All levels of a pyramid, each half as long in every direction.
fn pyramid(shape: &Array3dDescriptor, levels: u32) -> Result<u64, Code> {
    let mut level = *shape;
    let mut sum = 0_u64;
    for _ in 0..levels.clamp(1, 32) {
        sum = sum.checked_add(bytes(&level)?).ok_or(OUT_OF_MEMORY)?;
        level.width = (level.width / 2).max(1);
        level.height /= 2;
        level.depth /= 2;
    }
    Ok(sum)
}

impl Driver {
    fn new_array(&mut self, shape: Array3dDescriptor, size: u64) -> Result<Array, Code> {
        let card = self.current_card()?;
        let physical = self.new_block(Place::Card(card), size, false)?;
        let array = Array(self.new_handle());
        self.arrays.insert(array, State { physical, size, shape });
        Ok(array)
    }
}

fn create(array: Out<Array>, shape: Array3dDescriptor, levels: u32) -> Outcome {
    if array.is_null() {
        return Err(INVALID_VALUE);
    }
    forbid_in_capture()?;
    let size = pyramid(&shape, levels)?;
    let created = driver()?.new_array(shape, size)?;
    array.set(created)
}

fn destroy(array: Array) -> Outcome {
    forbid_in_capture()?;
    synchronise(Scope::Everything)?;
    let mut driver = driver()?;
    let state = driver.arrays.remove(&array).ok_or(INVALID_HANDLE)?;
    driver.release_handle(state.physical)
}

fn requirements(out: Out<MemoryRequirements>, array: Array, device: i32) -> Outcome {
    let driver = driver()?;
    driver.device(device)?;
    let size = driver.arrays.get(&array).ok_or(INVALID_HANDLE)?.size;
    let size = usize::try_from(size.next_multiple_of(GRANULE)).map_err(|_| OUT_OF_MEMORY)?;
    let alignment = usize::try_from(GRANULE).map_err(|_| OUT_OF_MEMORY)?;
    out.set(MemoryRequirements { size, alignment, reserved: [0; 4] })
}

driver! {
    fn cuArrayCreate_v2 = "cuArrayCreate" since 3020 (pHandle: Out<Array>, pAllocateArray: In<ArrayDescriptor>) {
        let flat = pAllocateArray.get()?;
        let shape = Array3dDescriptor {
            width: flat.width,
            height: flat.height,
            depth: 0,
            format: flat.format,
            channels: flat.channels,
            flags: 0,
        };
        create(pHandle, shape, 1)
    }

    fn cuArray3DCreate_v2 = "cuArray3DCreate" since 3020
        (pHandle: Out<Array>, pAllocateArray: In<Array3dDescriptor>)
    {
        create(pHandle, pAllocateArray.get()?, 1)
    }

    fn cuArrayGetDescriptor_v2 = "cuArrayGetDescriptor" since 3020
        (pArrayDescriptor: Out<ArrayDescriptor>, hArray: Array)
    {
        let Array3dDescriptor { width, height, format, channels, .. } =
            driver()?.arrays.get(&hArray).ok_or(INVALID_HANDLE)?.shape;
        pArrayDescriptor.set(ArrayDescriptor { width, height, format, channels })
    }

    fn cuArray3DGetDescriptor_v2 = "cuArray3DGetDescriptor" since 3020
        (pArrayDescriptor: Out<Array3dDescriptor>, hArray: Array)
    {
        pArrayDescriptor.set(driver()?.arrays.get(&hArray).ok_or(INVALID_HANDLE)?.shape)
    }

    fn cuArrayDestroy = "cuArrayDestroy" since 2000 (hArray: Array) {
        destroy(hArray)
    }

    fn cuArrayGetMemoryRequirements = "cuArrayGetMemoryRequirements" since 11060
        (memoryRequirements: Out<MemoryRequirements>, array: Array, device: i32)
    {
        requirements(memoryRequirements, array, device)
    }

    fn cuMipmappedArrayCreate = "cuMipmappedArrayCreate" since 5000
        (pHandle: Out<Array>, pMipmappedArrayDesc: In<Array3dDescriptor>, numMipmapLevels: u32)
    {
        create(pHandle, pMipmappedArrayDesc.get()?, numMipmapLevels)
    }

    fn cuMipmappedArrayDestroy = "cuMipmappedArrayDestroy" since 5000 (hMipmappedArray: Array) {
        destroy(hMipmappedArray)
    }

    fn cuMipmappedArrayGetMemoryRequirements = "cuMipmappedArrayGetMemoryRequirements" since 11060
        (memoryRequirements: Out<MemoryRequirements>, mipmap: Array, device: i32)
    {
        requirements(memoryRequirements, mipmap, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::{alone, code, get, ok, start};

    #[test]
    fn arrays_take_bytes_of_the_card() {
        alone("total=64M context=0", || {
            start();
            let free = || driver().unwrap().memory_of(0).0 >> 20;
            let shape = ArrayDescriptor { width: 1024, height: 1024, format: 0x20, channels: 4 };
            let array = get(|array| cuArrayCreate_v2(array, In::from(&shape)));
            assert_eq!(free(), 48);
            assert_eq!(get(|needs| cuArrayGetMemoryRequirements(needs, array, 0)).size, 16 << 20);
            let cube = Array3dDescriptor {
                width: 1024,
                height: 1024,
                depth: 4,
                format: 0x20,
                channels: 4,
                flags: 0,
            };
            assert_eq!(code(|array| cuArray3DCreate_v2(array, In::from(&cube))), OUT_OF_MEMORY);
            ok(cuArrayDestroy(array));
            let levels = get(|array| cuMipmappedArrayCreate(array, In::from(&cube_of(1024)), 2));
            assert_eq!(free(), 64 - 20);
            ok(cuMipmappedArrayDestroy(levels));
            assert_eq!(free(), 64);
        });
    }

    fn cube_of(width: usize) -> Array3dDescriptor {
        Array3dDescriptor { width, height: width, depth: 0, format: 0x20, channels: 4, flags: 0 }
    }
}
