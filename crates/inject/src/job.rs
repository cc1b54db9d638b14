//! Puts processes into a Windows job object, which ends them when its last handle is closed.

use std::io;
use std::mem::zeroed;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle, RawHandle};
use std::ptr::null;

use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectExtendedLimitInformation, SetInformationJobObject,
};

/// Handle of a job that ends its processes when it is closed, which the system does for a killed owner, too.
#[derive(Debug)]
pub struct Job {
    _handle: OwnedHandle,
}

impl Job {
    /// A new job with this process. Processes that it starts later belong to the job.
    pub(crate) fn with(process: RawHandle) -> io::Result<Self> {
        // SAFETY: neither attributes nor a name.
        let handle = unsafe { CreateJobObjectW(null(), null()) };
        if handle.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a handle that nothing else owns.
        let handle = unsafe { OwnedHandle::from_raw_handle(handle) };
        // SAFETY: zeroes are a value of this structure of numbers.
        let mut limits: JOBOBJECT_EXTENDED_LIMIT_INFORMATION = unsafe { zeroed() };
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        let size = u32::try_from(size_of_val(&limits)).unwrap_or(0);
        let job = handle.as_raw_handle();
        // SAFETY: a job, the structure of this class, and its size; a process that the caller has.
        let placed = unsafe {
            SetInformationJobObject(job, JobObjectExtendedLimitInformation, (&raw const limits).cast(), size)
                != 0
                && AssignProcessToJobObject(job, process) != 0
        };
        if placed { Ok(Self { _handle: handle }) } else { Err(io::Error::last_os_error()) }
    }
}
