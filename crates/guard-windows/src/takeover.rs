//! Replaces the methods of ggml's legacy pool (`ggml_cuda_pool_leg`) by guard's, in the class's virtual
//! table.
//!
//! They follow Microsoft's calling convention of x64: a method is a function whose first argument is the
//! object.

use std::ffi::{c_uint, c_void};
use std::fmt::Display;
use std::mem::transmute;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use plimsoll_pe::{Image, VirtualTable};

use crate::blocks::hold;
use crate::modules::write_pointer;
use crate::say::say;
use crate::{pools, settings};

const CLASS: &str = ".?AUggml_cuda_pool_leg@@";

type Destroy = unsafe extern "C" fn(*mut c_void, c_uint) -> *mut c_void;
type Allocate = unsafe extern "C" fn(*mut c_void, usize, *mut usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, *mut c_void, usize);

/// ggml's own methods, by the addresses of their module and of the table that they stood in.
#[derive(Clone, Copy, Debug)]
struct Originals {
    base: usize,
    table: usize,
    destroy: usize,
    allocate: usize,
    free: usize,
}

static TAKEN: Mutex<Vec<Originals>> = Mutex::new(Vec::new());
static IS_FOUND: AtomicBool = AtomicBool::new(false);

/// Takes over the class in a module, if the options ask for it and the module has the class.
///
/// # Safety
/// The image lies at `base`, and stays there.
pub(crate) unsafe fn take(image: &Image<'_>, base: usize, module: &str) {
    if !settings::options().is_some_and(|options| options.pool) {
        return;
    }
    // SAFETY: a table that was taken over in the module at this address.
    if hold(&TAKEN).iter().any(|taken| taken.base == base && unsafe { taken.stands() }) {
        return;
    }
    let Some(table) = image.virtual_table(CLASS) else { return };
    IS_FOUND.store(true, Relaxed);
    match table.map(|table| originals(&table, base)) {
        Ok(Some(originals)) => {
            // SAFETY: the table is of the module, as the caller promises.
            if !unsafe { replace(originals) } {
                say_once(base, module, &"its table cannot be written");
            }
        }
        Ok(None) => say_once(base, module, &"its layout is unknown"),
        Err(error) => say_once(base, module, &error),
    }
}

/// Says why the class in a module is left alone; modules are looked at more than once.
fn say_once(base: usize, module: &str, why: &dyn Display) {
    static TOLD: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let mut told = hold(&TOLD);
    if !told.contains(&base) {
        told.push(base);
        say!("ggml's legacy pool in {module} is not replaced: {why}");
    }
}

/// The destructor, `alloc` and `free`, in this order and nothing else.
fn originals(table: &VirtualTable, base: usize) -> Option<Originals> {
    let place = |address: u32| base.checked_add(usize::try_from(address).ok()?);
    match table.methods[..] {
        [destroy, allocate, free] if destroy != allocate && allocate != free => Some(Originals {
            base,
            table: place(table.address)?,
            destroy: place(destroy)?,
            allocate: place(allocate)?,
            free: place(free)?,
        }),
        _ => None,
    }
}

impl Originals {
    /// True if guard's method still stands in the table: another module may have been loaded at its
    /// address.
    ///
    /// # Safety
    /// A module lies at the address of the originals' module.
    unsafe fn stands(&self) -> bool {
        let slot = std::ptr::with_exposed_provenance::<usize>(self.table + size_of::<usize>());
        // SAFETY: modules are larger than headers, and a table is aligned.
        unsafe { slot.read() == (allocate as Allocate as *const c_void).addr() }
    }
}

/// # Safety
/// A table of three methods lies there.
unsafe fn replace(originals: Originals) -> bool {
    let mut taken = hold(&TAKEN);
    taken.retain(|other| other.base != originals.base);
    taken.push(originals);
    drop(taken);
    let slots = [
        // `alloc` last: every block that guard hands out also comes back to guard.
        (2, (free as Free as *const c_void).expose_provenance()),
        (0, (destroy as Destroy as *const c_void).expose_provenance()),
        (1, (allocate as Allocate as *const c_void).expose_provenance()),
    ];
    slots.into_iter().all(|(slot, method)| {
        // SAFETY: a slot of the table.
        unsafe { write_pointer(originals.table + slot * size_of::<usize>(), method) }.is_some()
    })
}

/// Says once, when the program uses CUDA, that no module has the class.
pub(crate) fn say_absent() {
    let is_asked = settings::options().is_some_and(|options| options.pool);
    if is_asked && !IS_FOUND.swap(true, Relaxed) {
        say!("ggml's legacy pool is not replaced: the program has not loaded it");
    }
}

/// ggml's methods for an object.
///
/// # Safety
/// An object of a class that was taken over.
unsafe fn of(this: *mut c_void) -> Option<Originals> {
    // SAFETY: such an object begins with the address of its table.
    let table = unsafe { this.cast::<usize>().read() };
    hold(&TAKEN).iter().find(|taken| taken.table == table).copied()
}

unsafe extern "C" fn allocate(this: *mut c_void, size: usize, actual: *mut usize) -> *mut c_void {
    if let Some((address, size)) = pools::allocate(this.expose_provenance(), size) {
        // SAFETY: where ggml wants to be told how much it got.
        unsafe { actual.write(size) };
        return std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0));
    }
    // SAFETY: the object through whose table we were called.
    let Some(originals) = (unsafe { of(this) }) else { return std::ptr::null_mut() };
    // SAFETY: what stood in this slot, with the caller's own arguments.
    unsafe { transmute::<usize, Allocate>(originals.allocate)(this, size, actual) }
}

unsafe extern "C" fn free(this: *mut c_void, block: *mut c_void, size: usize) {
    if pools::free(this.expose_provenance(), crate::driver::bytes(block.addr())) {
        return;
    }
    // SAFETY: the object through whose table we were called.
    if let Some(originals) = unsafe { of(this) } {
        // SAFETY: what stood in this slot, with the caller's own arguments.
        unsafe { transmute::<usize, Free>(originals.free)(this, block, size) };
    }
}

unsafe extern "C" fn destroy(this: *mut c_void, flags: c_uint) -> *mut c_void {
    pools::close(this.expose_provenance());
    // SAFETY: the object through whose table we were called.
    let Some(originals) = (unsafe { of(this) }) else { return this };
    // SAFETY: what stood in this slot, with the caller's own arguments.
    unsafe { transmute::<usize, Destroy>(originals.destroy)(this, flags) }
}
