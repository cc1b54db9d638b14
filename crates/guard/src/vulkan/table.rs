//! Table of the instances and devices that the program has created through this layer.
//!
//! A handle's first word is the address of the loader's table, which an instance shares with its physical
//! devices, and which no two devices share.

use alloc::sync::Arc;
use alloc::vec::Vec;

use ash::vk::{self, Handle};
use plimsoll_nostd::lock::Lock;

use super::device::Device;
use super::instance::Instance;

static INSTANCES: Table<Instance> = Table(Lock::new(Vec::new()));
static DEVICES: Table<Device> = Table(Lock::new(Vec::new()));

#[derive(Debug)]
struct Table<T>(Lock<Vec<(usize, Arc<T>)>>);

impl<T> Table<T> {
    fn insert(&self, key: usize, value: T) {
        self.0.hold().push((key, Arc::new(value)));
    }

    fn find(&self, key: usize) -> Option<Arc<T>> {
        let known = self.0.hold();
        known.iter().find(|(other, _)| *other == key).map(|(_, value)| Arc::clone(value))
    }

    fn remove(&self, key: usize) -> Option<Arc<T>> {
        let mut known = self.0.hold();
        let at = known.iter().position(|(other, _)| *other == key)?;
        Some(known.swap_remove(at).1)
    }
}

/// The first word of a dispatchable handle; 0 for a null handle.
fn key(handle: impl Handle) -> usize {
    let place = core::ptr::with_exposed_provenance::<usize>(usize::try_from(handle.as_raw()).unwrap_or(0));
    // SAFETY: null, or a live dispatchable handle, which begins with the loader's word.
    unsafe { place.as_ref() }.copied().unwrap_or(0)
}

pub(super) fn add_instance(instance: Instance) {
    INSTANCES.insert(key(instance.handle), instance);
}

/// The instance that this handle or physical device belongs to.
pub(super) fn find_instance(of: impl Handle) -> Option<Arc<Instance>> {
    INSTANCES.find(key(of))
}

pub(super) fn remove_instance(instance: vk::Instance) -> Option<Arc<Instance>> {
    INSTANCES.remove(key(instance))
}

pub(super) fn add_device(handle: vk::Device, device: Device) {
    DEVICES.insert(key(handle), device);
}

pub(super) fn find_device(device: vk::Device) -> Option<Arc<Device>> {
    DEVICES.find(key(device))
}

pub(super) fn remove_device(device: vk::Device) -> Option<Arc<Device>> {
    DEVICES.remove(key(device))
}
