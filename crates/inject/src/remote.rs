//! Loads a library into another process, by a thread there that calls `LoadLibraryW`.

use std::ffi::c_void;
use std::io;
use std::mem::transmute;
use std::os::windows::io::{AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::ptr::{null, null_mut};

use windows_sys::Win32::Foundation::{FARPROC, WAIT_OBJECT_0};
use windows_sys::Win32::System::Diagnostics::Debug::WriteProcessMemory;
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_READWRITE, VirtualAllocEx, VirtualFreeEx,
};
use windows_sys::Win32::System::Threading::{
    CreateRemoteThread, GetExitCodeThread, IsWow64Process, LPTHREAD_START_ROUTINE, WaitForSingleObject,
};
use windows_sys::w;

/// Longest time that a library may take to load, in milliseconds: an antivirus program reads it first.
const LONGEST: u32 = 10_000;

/// Error: a library was not loaded into a process.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("it is a 32-bit program, and the library has 64 bits")]
    Narrow,
    #[error("no memory of the program can be written: {0}")]
    Write(io::Error),
    #[error("no thread can be started in the program: {0}")]
    Thread(io::Error),
    #[error("the library took longer than {} s", LONGEST / 1000)]
    Late,
    #[error("the loader of the program refused the library")]
    Refused,
}

/// Loads a library, whose path ends in zero, into a process. The handle needs the rights of its creator.
pub fn load(process: BorrowedHandle<'_>, library: &[u16]) -> Result<(), LoadError> {
    let mut is_narrow = 0;
    // SAFETY: a process that the caller has, and a place of ours.
    if unsafe { IsWow64Process(process.as_raw_handle(), &raw mut is_narrow) } != 0 && is_narrow != 0 {
        return Err(LoadError::Narrow);
    }
    let path = RemotePath::write(process, library).map_err(LoadError::Write)?;
    let thread = path.open_library().map_err(LoadError::Thread)?;
    // SAFETY: a thread that we have started.
    if unsafe { WaitForSingleObject(thread.as_raw_handle(), LONGEST) } != WAIT_OBJECT_0 {
        // The thread may still read the path.
        std::mem::forget(path);
        return Err(LoadError::Late);
    }
    let mut module = 0;
    // SAFETY: the thread has ended, and the place is ours.
    unsafe { GetExitCodeThread(thread.as_raw_handle(), &raw mut module) };
    // The lower half of what `LoadLibraryW` returned: the address of the library, or 0.
    if module == 0 { Err(LoadError::Refused) } else { Ok(()) }
}

/// A path in the memory of another process.
struct RemotePath<'a> {
    process: BorrowedHandle<'a>,
    place: *mut c_void,
}

impl<'a> RemotePath<'a> {
    fn write(process: BorrowedHandle<'a>, path: &[u16]) -> io::Result<Self> {
        let size = size_of_val(path);
        let handle = process.as_raw_handle();
        // SAFETY: new memory of that process, at an address of the system's choice.
        let place = unsafe { VirtualAllocEx(handle, null(), size, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE) };
        if place.is_null() {
            return Err(io::Error::last_os_error());
        }
        let remote = Self { process, place };
        // SAFETY: so many bytes are readable here and writable there.
        match unsafe { WriteProcessMemory(handle, place, path.as_ptr().cast(), size, null_mut()) } {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(remote),
        }
    }

    /// Starts the thread there that loads the library.
    fn open_library(&self) -> io::Result<OwnedHandle> {
        // The system maps kernel32 at one address in all processes of a session.
        // SAFETY: kernel32 is in every process, and both are strings that end in zero.
        let function =
            unsafe { GetProcAddress(GetModuleHandleW(w!("kernel32.dll")), c"LoadLibraryW".as_ptr().cast()) };
        // SAFETY: a function of one pointer that returns one word, which is all that a thread needs.
        let routine = unsafe { transmute::<FARPROC, LPTHREAD_START_ROUTINE>(function) };
        // SAFETY: the function exists there, and its argument is the path there.
        let thread = unsafe {
            CreateRemoteThread(self.process.as_raw_handle(), null(), 0, routine, self.place, 0, null_mut())
        };
        if thread.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a handle that nothing else owns.
        Ok(unsafe { OwnedHandle::from_raw_handle(thread) })
    }
}

impl Drop for RemotePath<'_> {
    fn drop(&mut self) {
        // SAFETY: memory of `write`, which nothing uses any more.
        unsafe { VirtualFreeEx(self.process.as_raw_handle(), self.place, 0, MEM_RELEASE) };
    }
}
