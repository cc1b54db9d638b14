//! Pointer attributes (`cuPointerGetAttribute`) in the fake driver.

use crate::abi::{Context, DevicePtr, Host, In, Out, Pool};
use crate::call::driver;
use crate::code::{Code, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::driver::{Driver, driver};
use crate::space::{Behind, Kind};

/// `CUmemorytype`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// An attribute's value, in the width in which the driver writes it.
#[derive(Debug, Clone, Copy)]
enum Value {
    Wide(u64),
    Narrow(u32),
    Flag(bool),
}

impl Value {
    fn store(self, out: Out<u8>) -> Outcome {
        match self {
            Self::Wide(value) => out.cast().set(value),
            Self::Narrow(value) => out.cast().set(value),
            Self::Flag(value) => out.cast().set(value),
        }
    }
}

impl Driver {
    /// `CUpointer_attribute`, by number.
    fn pointer_attribute(&self, attribute: i32, address: DevicePtr) -> Result<Value, Code> {
        let (start, region) = self.space.region(address).ok_or(INVALID_VALUE)?;
        let segment = self.space.cover(address, 1).and_then(|covering| covering.first().copied());
        let on_host = segment.is_some_and(|(_, segment)| match segment.behind {
            Behind::Block(physical, _) => self.blocks.get(physical).is_ok_and(|block| block.is_host()),
            Behind::Host => true,
        });
        let managed = region.kind == Kind::Managed;
        Ok(match attribute {
            1 => Value::Wide(region.context.unwrap_or(Context(0)).0),
            2 => Value::Narrow(if on_host && !managed { HOST } else { DEVICE }),
            3 => Value::Wide(address.0),
            4 if on_host => Value::Wide(address.0),
            4 => return Err(INVALID_VALUE),
            6 => Value::Flag(false),
            7 => Value::Wide(region.id),
            8 => Value::Flag(managed),
            9 => Value::Narrow(u32::try_from(region.card).unwrap_or(0)),
            10 => Value::Flag(matches!(region.kind, Kind::Linear | Kind::Small)),
            11 => Value::Wide(start),
            12 => Value::Wide(region.length),
            13 => Value::Flag(segment.is_some()),
            14 => Value::Wide(0),
            16 => Value::Narrow(3),
            17 => Value::Wide(match region.kind {
                Kind::Pooled(Pool(pool)) => pool,
                _ => 0,
            }),
            _ => return Err(NOT_SUPPORTED),
        })
    }
}

/// What an attribute is for a pointer that the driver does not know.
fn nothing(attribute: i32) -> Value {
    match attribute {
        2 | 16 => Value::Narrow(0),
        // CU_DEVICE_INVALID.
        9 => Value::Narrow(u32::MAX - 1),
        6 | 8 | 10 | 13 => Value::Flag(false),
        _ => Value::Wide(0),
    }
}

driver! {
    fn cuPointerGetAttribute = "cuPointerGetAttribute" since 4000 (data: Out<u8>, attribute: i32, ptr: DevicePtr) {
        let value = driver()?.pointer_attribute(attribute, ptr)?;
        value.store(data)
    }

    fn cuPointerGetAttributes = "cuPointerGetAttributes" since 7000
        (numAttributes: u32, attributes: In<i32>, data: In<Out<u8>>, ptr: DevicePtr)
    {
        let count = usize::try_from(numAttributes).map_err(|_| INVALID_VALUE)?;
        let driver = driver()?;
        for (attribute, place) in attributes.list(count)?.into_iter().zip(data.list(count)?) {
            let value = driver.pointer_attribute(attribute, ptr);
            value.unwrap_or_else(|_| nothing(attribute)).store(place)?;
        }
        Ok(())
    }

    fn cuPointerSetAttribute = "cuPointerSetAttribute" since 6000 (value: Host, attribute: i32, ptr: DevicePtr) {
        let _ = (value, attribute);
        driver()?.space.region(ptr).map(drop).ok_or(INVALID_VALUE)
    }
}
