//! Memory sharing between processes in the fake driver: legacy IPC for `cuMemAlloc`, file descriptors for
//! `cuMemCreate`.
//!
//! A legacy handle contains the process and descriptor to open through `/proc`. A shareable descriptor is a
//! separate file for the block; its name contains the block's location. The memory stays charged to its
//! owner.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use crate::abi::structs::{AllocationProp, IpcHandle, Location};
use crate::abi::{DevicePtr, Host, Out, Physical};
use crate::blocks::{Place, own_file_name};
use crate::call::driver;
use crate::code::{Code, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, Outcome, UNKNOWN};
use crate::driver::{Driver, driver};
use crate::space::{Behind, Kind};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: i32 = 1;

/// What we write into the 64 bytes of an [`IpcHandle`].
#[derive(Debug, Clone, Copy)]
struct Ticket {
    pid: u64,
    descriptor: u64,
    offset: u64,
    length: u64,
    card: u64,
}

impl Ticket {
    fn to_handle(self) -> IpcHandle {
        let words = [self.pid, self.descriptor, self.offset, self.length, self.card, 0, 0, 0];
        let mut bytes = [0; 64];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        IpcHandle(bytes)
    }

    fn from_handle(handle: IpcHandle) -> Self {
        let (words, _) = handle.0.as_chunks::<8>();
        let word = |index: usize| u64::from_le_bytes(words[index]);
        Self { pid: word(0), descriptor: word(1), offset: word(2), length: word(3), card: word(4) }
    }
}

impl Driver {
    fn ticket(&self, at: DevicePtr) -> Result<Ticket, Code> {
        let (start, region) = self.space.region(at).ok_or(INVALID_VALUE)?;
        let segment = self.space.segments.get(&start).ok_or(INVALID_VALUE)?;
        let (Kind::Linear | Kind::Small, Behind::Block(physical, offset)) = (region.kind, segment.behind)
        else {
            return Err(INVALID_VALUE);
        };
        let block = self.blocks.get(physical)?;
        Ok(Ticket {
            pid: std::process::id().into(),
            descriptor: u64::try_from(block.file.as_raw_fd()).map_err(|_| UNKNOWN)?,
            offset: block.offset + offset,
            length: region.length,
            card: region.card as u64,
        })
    }

    fn open_ticket(&mut self, ticket: Ticket) -> Result<DevicePtr, Code> {
        let context = self.current()?;
        if ticket.pid == u64::from(std::process::id()) {
            return Err(INVALID_CONTEXT);
        }
        let path = format!("/proc/{}/fd/{}", ticket.pid, ticket.descriptor);
        let file = File::options().read(true).write(true).open(path).map_err(|_| INVALID_VALUE)?;
        let card = usize::try_from(ticket.card).map_err(|_| INVALID_VALUE)?;
        let physical = Physical(self.new_handle());
        let (place, file) = (Place::Foreign(card), Arc::new(file));
        self.blocks.insert(physical, place, ticket.length, file, ticket.offset);
        self.place(physical, ticket.length, Kind::Imported, card, Some(context))
    }

    fn import(&mut self, descriptor: OwnedFd) -> Result<Physical, Code> {
        let link =
            fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd())).map_err(|_| INVALID_VALUE)?;
        let location = own_file_location(&link.to_string_lossy()).ok_or(INVALID_VALUE)?;
        let file = File::from(descriptor);
        let size = file.metadata().map_err(|_| INVALID_VALUE)?.len();
        let place = match self.place_of(location)? {
            Place::Card(card) => Place::Foreign(card),
            host => host,
        };
        let physical = Physical(self.new_handle());
        self.blocks.insert(physical, place, size, Arc::new(file), 0);
        self.blocks.get_mut(physical)?.prop = Some(AllocationProp {
            kind: 1,
            handle_types: DESCRIPTOR,
            location,
            metadata: Host::new(0),
            flags: 0,
        });
        Ok(physical)
    }
}

/// Reads the name that [`own_file_name`] gave, as `/proc` shows it.
fn own_file_location(link: &str) -> Option<Location> {
    let name = link.strip_prefix("/memfd:")?.strip_suffix(" (deleted)")?;
    let (kind, id) = name.strip_prefix("fake-cuda-at-")?.split_once('-')?;
    let location = Location { kind: kind.parse().ok()?, id: id.parse().ok()? };
    (own_file_name(location) == name).then_some(location)
}

fn open(address: Out<DevicePtr>, handle: IpcHandle, flags: u32) -> Outcome {
    if address.is_null() || flags > 1 {
        return Err(INVALID_VALUE);
    }
    let opened = driver()?.open_ticket(Ticket::from_handle(handle))?;
    address.set(opened)
}

driver! {
    fn cuIpcGetMemHandle = "cuIpcGetMemHandle" since 4010 (pHandle: Out<IpcHandle>, dptr: DevicePtr) {
        let ticket = driver()?.ticket(dptr)?;
        pHandle.set(ticket.to_handle())
    }

    fn cuIpcOpenMemHandle = "cuIpcOpenMemHandle" since 4010
        (pdptr: Out<DevicePtr>, handle: IpcHandle, Flags: u32)
    {
        open(pdptr, handle, Flags)
    }

    fn cuIpcOpenMemHandle_v2 = "cuIpcOpenMemHandle" since 11000
        (pdptr: Out<DevicePtr>, handle: IpcHandle, Flags: u32)
    {
        open(pdptr, handle, Flags)
    }

    fn cuIpcCloseMemHandle = "cuIpcCloseMemHandle" since 4010 (dptr: DevicePtr) {
        let mut driver = driver()?;
        let region = driver.space.regions.get(&dptr.0).ok_or(INVALID_VALUE)?;
        if region.kind != Kind::Imported {
            return Err(INVALID_VALUE);
        }
        driver.end_region(dptr.0)
    }

    fn cuMemExportToShareableHandle = "cuMemExportToShareableHandle" since 10020
        (shareableHandle: Out<i32>, handle: Physical, handleType: i32, flags: u64)
    {
        let driver = driver()?;
        let block = driver.blocks.get(handle)?;
        let prop = block.prop.ok_or(INVALID_VALUE)?;
        if handleType != DESCRIPTOR || flags != 0 || prop.handle_types & DESCRIPTOR == 0 {
            return Err(INVALID_VALUE);
        }
        let copy = block.file.try_clone().map_err(|_| UNKNOWN)?;
        shareableHandle.set(copy.into_raw_fd())
    }

    fn cuMemImportFromShareableHandle = "cuMemImportFromShareableHandle" since 10020
        (handle: Out<Physical>, osHandle: Host, shHandleType: i32)
    {
        if shHandleType != DESCRIPTOR {
            return Err(NOT_SUPPORTED);
        }
        let number = i32::try_from(osHandle.address()).map_err(|_| INVALID_HANDLE)?;
        if number < 0 || fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_err() {
            return Err(INVALID_HANDLE);
        }
        // SAFETY: the descriptor is open, and stays the caller's; we keep a copy.
        let copy = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().map_err(|_| INVALID_HANDLE)?;
        let imported = driver()?.import(copy)?;
        handle.set(imported)
    }

    fn cuMemGetHandleForAddressRange = "cuMemGetHandleForAddressRange" since 11070
        (handle: Host, dptr: DevicePtr, size: u64, handleType: i32, flags: u64)
    {
        let _ = (handle, dptr, size, handleType, flags);
        Err(NOT_SUPPORTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::In;
    use crate::alone::{alone, code, get, ok, start};
    use crate::vmm::{cuMemCreate, cuMemGetAllocationPropertiesFromHandle, cuMemRelease};

    #[test]
    fn a_descriptor_carries_a_block_and_where_it_lies() {
        alone("total=16M context=0", || {
            start();
            let location = Location { kind: 1, id: 0 };
            let prop = AllocationProp {
                kind: 1,
                handle_types: DESCRIPTOR,
                location,
                metadata: Host::new(0),
                flags: 0,
            };
            let shared = get(|handle| cuMemCreate(handle, 4 << 20, In::from(&prop), 0));
            let descriptor = get(|out| cuMemExportToShareableHandle(out, shared, DESCRIPTOR, 0));
            let os_handle = Host::new(u64::try_from(descriptor).unwrap());
            let imported = get(|handle| cuMemImportFromShareableHandle(handle, os_handle, DESCRIPTOR));
            assert_eq!(driver().unwrap().blocks.get(imported).unwrap().size, 4 << 20);
            assert_eq!(get(|prop| cuMemGetAllocationPropertiesFromHandle(prop, imported)).location, location);
            assert_eq!(driver().unwrap().memory_of(0).0, 12 << 20, "the owner pays, once");
            ok(cuMemRelease(imported));
            let private = AllocationProp { handle_types: 0, ..prop };
            let private = get(|handle| cuMemCreate(handle, 4 << 20, In::from(&private), 0));
            assert_eq!(code(|out| cuMemExportToShareableHandle(out, private, DESCRIPTOR, 0)), INVALID_VALUE);
            let stranger = Host::new(9999);
            let import = |handle| cuMemImportFromShareableHandle(handle, stranger, DESCRIPTOR);
            assert_eq!(code(import), INVALID_HANDLE);
        });
    }
}
