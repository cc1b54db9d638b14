//! Types for the pointers that C programs pass to the fake CUDA driver.
//!
//! All pointers of the driver API arrive as [`In`], [`Out`] or [`Host`]. Only a C caller creates one, and by
//! `cuda.h` the caller guarantees that the pointer is null or valid for its type. This guarantee is part of
//! the type, so the driver functions themselves need no unsafe code; all of it is in this module.

pub(crate) mod structs;

use std::ffi::{CStr, c_char, c_void};
use std::fmt::{self, Write};
use std::slice;

use crate::code::{Code, INVALID_VALUE, Outcome};

/// An address in the unified address space.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DevicePtr(pub(crate) u64);

/// Declares opaque handles. Ours are numbers in order of creation, so that two runs of a program log the
/// same.
macro_rules! handles {
    ($($name:ident),*) => { $(
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name(pub(crate) u64);

        impl Show for $name {
            fn show(&self, _: bool, line: &mut String) {
                let _ = write!(line, "{:#x}", self.0);
            }
        }
    )* };
}

handles!(Context, Stream, Event, Graph, GraphExec, Pool, Array, Module, Function, Physical);

/// A pointer that the driver reads from.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct In<T>(*const T);

/// A pointer that the driver writes to.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

/// A pointer to the program's own memory, of a length that another argument tells.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Host(*mut c_void);

// SAFETY: a graph keeps the host pointers of its copies; the program keeps them valid for every thread that
// launches it, and we reach through them with the driver locked.
unsafe impl Send for Host {}

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}

impl<T> In<T> {
    #[cfg(test)]
    pub(crate) fn from_pointer(pointer: *const T) -> Self {
        Self(pointer)
    }
}

impl<T: Copy> In<T> {
    /// The value, where there is one.
    pub(crate) fn optional(self) -> Option<T> {
        // SAFETY: null is excluded; otherwise the C caller promises a readable value.
        (!self.0.is_null()).then(|| unsafe { self.0.read() })
    }

    pub(crate) fn get(self) -> Result<T, Code> {
        self.optional().ok_or(INVALID_VALUE)
    }

    /// The first `count` values.
    pub(crate) fn list(self, count: usize) -> Result<Vec<T>, Code> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, and the C caller promises `count` readable values.
        Ok(unsafe { slice::from_raw_parts(self.0, count) }.to_vec())
    }
}

impl In<c_char> {
    pub(crate) fn text(self) -> Result<String, Code> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, and the C caller promises a string that ends in zero.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

impl<T> Out<T> {
    #[cfg(test)]
    pub(crate) fn from_pointer(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// For results that a version of a function does not have.
    pub(crate) fn nowhere() -> Self {
        Self(std::ptr::null_mut())
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn set(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, and the C caller promises room for a value.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// For results that the program may leave out.
    pub(crate) fn set_if_wanted(self, value: T) {
        let _ = self.set(value);
    }

    /// The value that the program left there, for arguments that go both ways.
    pub(crate) fn get(self) -> Result<T, Code>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }

    /// The place `index` values further on, in a list whose length the program gave.
    pub(crate) fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }
}

impl Out<c_char> {
    /// Copies as much of `text` as fits into `room` characters, and a closing zero.
    pub(crate) fn set_text(self, text: &str, room: usize) -> Outcome {
        if self.0.is_null() || room == 0 {
            return Err(INVALID_VALUE);
        }
        for (index, byte) in text.bytes().take(room - 1).chain([0]).enumerate() {
            self.at(index).set(c_char::from_ne_bytes([byte]))?;
        }
        Ok(())
    }
}

impl<T> Out<T> {
    /// The same place as another type: the driver's attributes come in many.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl Host {
    pub(crate) fn new(address: u64) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0)))
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// Calls it with one argument, if it is a function at all.
    ///
    /// # Safety
    /// It is null or a C function that takes one pointer.
    pub(crate) unsafe fn call(self, argument: Self) {
        if self.0.is_null() {
            return;
        }
        // SAFETY: not null, and a function of this shape by this function's contract.
        let function = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void)>(self.0) };
        function(argument.0);
    }

    /// The value there.
    pub(crate) fn read<T: Copy>(self) -> T {
        // SAFETY: the C caller promises a value there; it need not be aligned.
        unsafe { self.0.cast::<T>().read_unaligned() }
    }

    pub(crate) fn bytes<'a>(self, offset: u64, length: usize) -> &'a [u8] {
        let start = Self::new(self.address() + offset).0.cast::<u8>();
        // SAFETY: the C caller promises `length` readable bytes for the time of the call.
        unsafe { slice::from_raw_parts(start, length) }
    }

    pub(crate) fn bytes_mut<'a>(self, offset: u64, length: usize) -> &'a mut [u8] {
        let start = Self::new(self.address() + offset).0.cast::<u8>();
        // SAFETY: the C caller promises `length` writable bytes, used by nobody else for the time of the
        // call.
        unsafe { slice::from_raw_parts_mut(start, length) }
    }
}

/// How an argument looks in the log. What differs from run to run (host addresses) is not shown.
pub(crate) trait Show {
    fn show(&self, succeeded: bool, line: &mut String);
}

macro_rules! show_numbers {
    ($($type:ty),*) => { $(
        impl Show for $type {
            fn show(&self, _: bool, line: &mut String) {
                let _ = write!(line, "{self}");
            }
        }
    )* };
}

show_numbers!(i8, u8, u16, i32, u32, i64, u64, usize, f32);

impl Show for DevicePtr {
    fn show(&self, _: bool, line: &mut String) {
        let _ = write!(line, "{self}");
    }
}

impl fmt::Display for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Show for Host {
    fn show(&self, _: bool, line: &mut String) {
        line.push_str(if self.0.is_null() { "null" } else { "host" });
    }
}

impl<T: Show + Copy> Show for In<T> {
    fn show(&self, succeeded: bool, line: &mut String) {
        match self.optional() {
            Some(value) => value.show(succeeded, line),
            None => line.push_str("null"),
        }
    }
}

impl<T: Show + Copy> Show for Out<T> {
    fn show(&self, succeeded: bool, line: &mut String) {
        if self.0.is_null() {
            return line.push_str("null");
        }
        line.push('&');
        if succeeded && let Ok(value) = self.get() {
            value.show(succeeded, line);
        }
    }
}
