//! Fixed-size text buffer for paths and messages in code that must not allocate memory.

use core::ffi::CStr;
use core::fmt::{self, Write};

/// Longer than any path in a folder of pages, and than any line of guard's.
const ROOM: usize = 1024;

/// String of at most [`ROOM`] bytes that ends in zero.
#[derive(Debug)]
pub(crate) struct Text {
    bytes: [u8; ROOM],
    length: usize,
}

impl Text {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; ROOM], length: 0 }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    /// The text as a path; None if there is a zero in it.
    pub(crate) fn as_c(&self) -> Option<&CStr> {
        CStr::from_bytes_with_nul(self.bytes.get(..=self.length)?).ok()
    }
}

impl Write for Text {
    /// Appends as much as fits, and fails if that is not all.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // ROOM - 1: `as_c` needs the zero behind the text.
        let room = self.bytes.get_mut(self.length..ROOM - 1).unwrap_or(&mut []);
        let fitting = text.len().min(room.len());
        for (place, byte) in room.iter_mut().zip(text.bytes()) {
            *place = byte;
        }
        self.length += fitting;
        if fitting == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
