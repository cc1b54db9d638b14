//! Adaptors for allocator policies: budget, fault injection, host overflow, tracing and statistics.
//!
//! Each adaptor wraps a device or a policy and has the same interface, so adaptors can be stacked.
//!
//! DECISION: an adaptor that concerns the card's memory wraps the device ([`Limited`], [`Failing`]); one that
//! concerns blocks wraps the policy ([`Tracked`]). [`Traced`] and [`Spilled`] concern both: they wrap the
//! policy and pass it a wrapped device at each call.

use crate::device::{Address, DeviceEvent, OutOfMemory, PoolDevice, Stream};

/// Forwards the named methods of a wrapper to its `device`.
macro_rules! forward {
    ($($method:ident)*) => { $(forward!(@$method);)* };
    (@granule) => { fn granule(&self) -> u64 { self.device.granule() } };
    (@available) => { fn available(&self) -> u64 { self.device.available() } };
    (@allocate) => {
        fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory> { self.device.allocate(size) }
    };
    (@allocate_host) => {
        fn allocate_host(&mut self, size: u64) -> Result<Address, OutOfMemory> { self.device.allocate_host(size) }
    };
    (@free) => { fn free(&mut self, address: Address) { self.device.free(address); } };
    (@reserve) => { fn reserve(&mut self, size: u64) -> Option<Address> { self.device.reserve(size) } };
    (@map) => {
        fn map(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> { self.device.map(at, size) }
    };
    (@map_host) => {
        fn map_host(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> { self.device.map_host(at, size) }
    };
    (@unmap) => { fn unmap(&mut self, at: Address, size: u64) { self.device.unmap(at, size); } };
    (@release) => { fn release(&mut self, at: Address, size: u64) { self.device.release(at, size); } };
    (@events) => {
        fn record(&mut self, stream: Stream) -> DeviceEvent { self.device.record(stream) }
        fn done(&mut self, event: DeviceEvent) -> bool { self.device.done(event) }
        fn wait(&mut self, event: DeviceEvent) { self.device.wait(event); }
        fn order(&mut self, stream: Stream, event: DeviceEvent) { self.device.order(stream, event); }
        fn forget(&mut self, event: DeviceEvent) { self.device.forget(event); }
        fn capturing(&self, stream: Stream) -> bool { self.device.capturing(stream) }
    };
}

mod fail;
mod limit;
mod spill;
mod trace;
mod track;

pub use fail::Failing;
pub use limit::{Budget, Limited};
pub use spill::Spilled;
pub use trace::{Sink, Traced};
pub use track::{Tag, TagUse, Tracked};

/// A borrowed device is a device, so that wrappers can be made for the time of a call.
impl<D: PoolDevice + ?Sized> PoolDevice for &mut D {
    fn granule(&self) -> u64 {
        (**self).granule()
    }
    fn available(&self) -> u64 {
        (**self).available()
    }
    fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory> {
        (**self).allocate(size)
    }
    fn allocate_host(&mut self, size: u64) -> Result<Address, OutOfMemory> {
        (**self).allocate_host(size)
    }
    fn free(&mut self, address: Address) {
        (**self).free(address);
    }
    fn reserve(&mut self, size: u64) -> Option<Address> {
        (**self).reserve(size)
    }
    fn map(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> {
        (**self).map(at, size)
    }
    fn map_host(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> {
        (**self).map_host(at, size)
    }
    fn unmap(&mut self, at: Address, size: u64) {
        (**self).unmap(at, size);
    }
    fn release(&mut self, at: Address, size: u64) {
        (**self).release(at, size);
    }
    fn record(&mut self, stream: Stream) -> DeviceEvent {
        (**self).record(stream)
    }
    fn done(&mut self, event: DeviceEvent) -> bool {
        (**self).done(event)
    }
    fn wait(&mut self, event: DeviceEvent) {
        (**self).wait(event);
    }
    fn order(&mut self, stream: Stream, event: DeviceEvent) {
        (**self).order(stream, event);
    }
    fn forget(&mut self, event: DeviceEvent) {
        (**self).forget(event);
    }
    fn capturing(&self, stream: Stream) -> bool {
        (**self).capturing(stream)
    }
}
