//! The engine's driver calls as a device.
//!
//! DECISION: the structure of the header is taken apart once, at creation. What is optional there is an `Option` here,
//! what is needed is a function, so that no call has to ask again.

use std::ffi::{c_int, c_void};

use plimsoll_pool::{Address, Device, Event, OutOfMemory, Stream};

/// `plimsoll_device`, as the header has it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceTable {
    size: usize,
    context: *mut c_void,
    granule: u64,
    available: Option<unsafe extern "C" fn(*mut c_void) -> u64>,
    allocate: Option<Obtain>,
    release: Option<unsafe extern "C" fn(*mut c_void, u64)>,
    reserve_range: Option<Obtain>,
    map: Option<unsafe extern "C" fn(*mut c_void, u64, u64) -> c_int>,
    unmap: Option<unsafe extern "C" fn(*mut c_void, u64, u64)>,
    release_range: Option<unsafe extern "C" fn(*mut c_void, u64, u64)>,
    record: Option<unsafe extern "C" fn(*mut c_void, u64) -> u64>,
    done: Option<unsafe extern "C" fn(*mut c_void, u64) -> c_int>,
    wait: Option<unsafe extern "C" fn(*mut c_void, u64)>,
    order: Option<unsafe extern "C" fn(*mut c_void, u64, u64)>,
    forget: Option<unsafe extern "C" fn(*mut c_void, u64)>,
    capturing: Option<unsafe extern "C" fn(*mut c_void, u64) -> c_int>,
}

/// Asks for so many bytes and writes where they are.
type Obtain = unsafe extern "C" fn(*mut c_void, u64, *mut u64) -> c_int;

/// The calls, all there.
#[derive(Debug)]
pub(crate) struct Engine {
    context: *mut c_void,
    granule: u64,
    available: unsafe extern "C" fn(*mut c_void) -> u64,
    allocate: Obtain,
    release: unsafe extern "C" fn(*mut c_void, u64),
    ranges: Option<Ranges>,
    record: unsafe extern "C" fn(*mut c_void, u64) -> u64,
    done: unsafe extern "C" fn(*mut c_void, u64) -> c_int,
    wait: unsafe extern "C" fn(*mut c_void, u64),
    order: unsafe extern "C" fn(*mut c_void, u64, u64),
    forget: unsafe extern "C" fn(*mut c_void, u64),
    capturing: Option<unsafe extern "C" fn(*mut c_void, u64) -> c_int>,
}

#[derive(Clone, Copy, Debug)]
struct Ranges {
    reserve: Obtain,
    map: unsafe extern "C" fn(*mut c_void, u64, u64) -> c_int,
    unmap: unsafe extern "C" fn(*mut c_void, u64, u64),
    release: unsafe extern "C" fn(*mut c_void, u64, u64),
}

// SAFETY: the header asks of an engine that uses a pool from several threads that its callbacks may be called from any
// of them, one at a time; the context is only ever handed to them.
unsafe impl Send for Engine {}

impl Engine {
    /// `None`: a call that is needed is missing, or the granule is not a power of two.
    pub(crate) fn new(table: &DeviceTable) -> Option<Self> {
        let range_calls = [
            table.reserve_range.is_some(),
            table.map.is_some(),
            table.unmap.is_some(),
            table.release_range.is_some(),
        ];
        let whole = range_calls.iter().all(|&given| given == range_calls[0]);
        (whole && table.granule.is_power_of_two()).then_some(())?;
        Some(Self {
            context: table.context,
            granule: table.granule,
            available: table.available?,
            allocate: table.allocate?,
            release: table.release?,
            ranges: table.ranges(),
            record: table.record?,
            done: table.done?,
            wait: table.wait?,
            order: table.order?,
            forget: table.forget?,
            capturing: table.capturing,
        })
    }

    /// Has the engine obtain something of `size` bytes; `None` if it fails.
    fn obtain(&self, call: Obtain, size: u64) -> Option<Address> {
        let mut address = 0;
        // SAFETY: the engine gave the call and the context together, and `address` outlives the call.
        let failed = unsafe { call(self.context, size, &raw mut address) };
        (failed == 0).then_some(Address(address))
    }

    fn refused(&self, asked: u64) -> OutOfMemory {
        let free = self.available();
        OutOfMemory { asked, free }
    }
}

impl DeviceTable {
    /// The size that the engine was compiled with.
    pub(crate) fn has_its_size(&self) -> bool {
        self.size == size_of::<Self>()
    }

    fn ranges(&self) -> Option<Ranges> {
        Some(Ranges {
            reserve: self.reserve_range?,
            map: self.map?,
            unmap: self.unmap?,
            release: self.release_range?,
        })
    }
}

/// Makes one of the engine's calls. Every one is safe for the same reason.
macro_rules! call {
    ($engine:ident, $call:expr $(, $argument:expr)*) => {{
        let call = $call;
        // SAFETY: the engine gave the call and the context together, and keeps both valid while the pool lives.
        unsafe { call($engine.context $(, $argument)*) }
    }};
}

impl Device for Engine {
    fn granule(&self) -> u64 {
        self.granule
    }

    fn available(&self) -> u64 {
        call!(self, self.available)
    }

    fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory> {
        self.obtain(self.allocate, size).ok_or_else(|| self.refused(size))
    }

    fn free(&mut self, address: Address) {
        call!(self, self.release, address.0);
    }

    fn reserve(&mut self, size: u64) -> Option<Address> {
        self.obtain(self.ranges?.reserve, size)
    }

    fn map(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> {
        let failed = self.ranges.map(|ranges| call!(self, ranges.map, at.0, size));
        if failed == Some(0) {
            Ok(())
        } else {
            Err(self.refused(size))
        }
    }

    fn unmap(&mut self, at: Address, size: u64) {
        if let Some(ranges) = self.ranges {
            call!(self, ranges.unmap, at.0, size);
        }
    }

    fn release(&mut self, at: Address, size: u64) {
        if let Some(ranges) = self.ranges {
            call!(self, ranges.release, at.0, size);
        }
    }

    fn record(&mut self, stream: Stream) -> Event {
        Event(call!(self, self.record, stream.0))
    }

    fn done(&mut self, event: Event) -> bool {
        call!(self, self.done, event.0) != 0
    }

    fn wait(&mut self, event: Event) {
        call!(self, self.wait, event.0);
    }

    fn order(&mut self, stream: Stream, event: Event) {
        call!(self, self.order, stream.0, event.0);
    }

    fn forget(&mut self, event: Event) {
        call!(self, self.forget, event.0);
    }

    fn capturing(&self, stream: Stream) -> bool {
        self.capturing
            .is_some_and(|capturing| call!(self, capturing, stream.0) != 0)
    }
}
