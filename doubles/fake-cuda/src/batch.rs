//! Batched copies in the fake CUDA driver: many copies in one call (`cuMemcpyBatchAsync`).
//!
//! The real driver guarantees no order among them; here they run one after the other.
//!
//! Arguments that the documentation calls errors are refused. They are attributes that do not begin with the
//! first copy, do not rise, or name no order of access. The default stream is refused too. `failIdx` reports
//! the first copy that the driver refuses.

use crate::abi::{DevicePtr, In, Out, Stream};
use crate::call::driver;
use crate::code::{Code, INVALID_VALUE, Outcome};
use crate::driver::driver;
use crate::operation::{Line, Operation};

/// `CUmemcpyAttributes` is six numbers: the order of access, two locations, flags.
const NUMBERS: usize = 6;
/// CU_MEMCPY_SRC_ACCESS_ORDER_STREAM to _ANY.
const ORDERS: core::ops::RangeInclusive<i32> = 1..=3;
/// No copy in particular.
const NONE: u64 = u64::MAX;

struct Batch {
    to: In<DevicePtr>,
    from: In<DevicePtr>,
    sizes: In<u64>,
    count: u64,
    attributes: In<i32>,
    first: In<u64>,
    kinds: u64,
}

impl Batch {
    fn submit(&self, stream: Stream, failed: impl Fn(u64)) -> Outcome {
        failed(NONE);
        let copies = self.copies()?;
        if stream.0 == 0 || !self.attributes_are_right()? {
            return Err(INVALID_VALUE);
        }
        let mut driver = driver()?;
        for (index, (to, from, length)) in (0..).zip(copies) {
            let (to, from) = (driver.memory_at(to.0), driver.memory_at(from.0));
            let copy = Operation::Copy(Vec::from([Line { to, from, length }]));
            driver.submit(stream, copy).inspect_err(|_| failed(index))?;
        }
        Ok(())
    }

    fn copies(&self) -> Result<Vec<(DevicePtr, DevicePtr, u64)>, Code> {
        let count = usize::try_from(self.count).map_err(|_| INVALID_VALUE)?;
        let (to, from, sizes) = (self.to.list(count)?, self.from.list(count)?, self.sizes.list(count)?);
        let ends = to.into_iter().zip(from);
        Ok(ends.zip(sizes).map(|((to, from), size)| (to, from, size)).collect())
    }

    fn attributes_are_right(&self) -> Result<bool, Code> {
        let kinds = usize::try_from(self.kinds).map_err(|_| INVALID_VALUE)?;
        let (first, numbers) = (self.first.list(kinds)?, self.attributes.list(kinds * NUMBERS)?);
        let rises = first.windows(2).all(|pair| pair[0] < pair[1]);
        let begins = first.first() == Some(&0) && first.last().is_some_and(|last| *last < self.count);
        let orders = numbers.chunks(NUMBERS).all(|kind| ORDERS.contains(&kind[0]));
        Ok(rises && begins && orders)
    }
}

driver! {
    fn cuMemcpyBatchAsync / cuMemcpyBatchAsync_ptsz = "cuMemcpyBatchAsync" since 12080
        (dsts: In<DevicePtr>, srcs: In<DevicePtr>, sizes: In<u64>, count: u64, attrs: In<i32>, attrsIdxs: In<u64>,
         numAttrs: u64, failIdx: Out<u64>, hStream: Stream)
    {
        let batch = Batch { to: dsts, from: srcs, sizes, count, attributes: attrs, first: attrsIdxs, kinds: numAttrs };
        batch.submit(hStream, |index| failIdx.set_if_wanted(index))
    }

    fn cuMemcpyBatchAsync_v2 / cuMemcpyBatchAsync_v2_ptsz = "cuMemcpyBatchAsync" since 13000
        (dsts: In<DevicePtr>, srcs: In<DevicePtr>, sizes: In<u64>, count: u64, attrs: In<i32>, attrsIdxs: In<u64>,
         numAttrs: u64, hStream: Stream)
    {
        let batch = Batch { to: dsts, from: srcs, sizes, count, attributes: attrs, first: attrsIdxs, kinds: numAttrs };
        batch.submit(hStream, |_| {})
    }
}
