//! Replaces `cuGetProcAddress`, with which every CUDA runtime finds the driver's functions.
//!
//! The driver is asked first; if guard has a hook for the function, the hook's address is returned instead.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt::Write;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::{standing_for, variants};
use crate::driver::{SUCCESS, loader};
use crate::hooks::{Hook, hooks};
use crate::say::say;
use crate::settings;
use crate::text::Text;

/// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.
const PER_THREAD: u64 = 1 << 1;
/// The newest CUDA whose ABIs were compared with the table (`data/cuda/entry-points.txt`).
const KNOWN: c_int = 13_050;

/// Replaces the driver's function by the hook for it.
///
/// # Safety
/// The arguments of a `cuGetProcAddress` that succeeded.
unsafe fn substitute(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64) {
    // SAFETY: the driver has read the name and written the address.
    let (name, theirs) = unsafe {
        if symbol.is_null() || function.is_null() || (*function).is_null() || !settings::wanted() {
            return;
        }
        (CStr::from_ptr(symbol).to_bytes(), *function)
    };
    let hook = standing_for(name, theirs).or_else(|| by_version(name, theirs, version, flags));
    if let Some(hook) = hook {
        // SAFETY: as above.
        unsafe { *function = hook.address() };
    }
}

/// The hook of the ABI that `name` had in this version. ABIs older than the oldest hook have none; of the
/// newer ones, all up to [`KNOWN`] have one.
#[cold]
fn by_version(name: &[u8], theirs: *mut c_void, version: c_int, flags: u64) -> Option<&'static Hook> {
    // DECISION: if the driver's address differs from `dlsym`'s, the requested version decides the ABI. For a
    // version that is newer than the table, the driver is asked whether it has the same function for the
    // newest known one. If not, the ABI is new, and the program gets the driver's own function.
    variants(name).next()?;
    let version =
        if version > KNOWN && driver_has(name, KNOWN, flags) == Some(theirs) { KNOWN } else { version };
    if version > KNOWN {
        unknown(name, version);
        return None;
    }
    let newest = variants(name)
        .filter(|hook| hook.since <= version && !hook.per_thread)
        .max_by_key(|hook| hook.since)?;
    let twin =
        variants(name).find(|hook| hook.per_thread && hook.since == newest.since && flags & PER_THREAD != 0);
    let hook = twin.unwrap_or(newest);
    // A function in another object than the driver is another interposer's, which must stay in front.
    let theirs = loader::place(theirs)?.dli_fbase;
    let ours = loader::place(hook.slot.function())?.dli_fbase;
    (theirs == ours).then_some(hook)
}

/// The driver's function of this name in this version.
fn driver_has(name: &[u8], version: c_int, flags: u64) -> Option<*mut c_void> {
    let mut symbol = Text::new();
    symbol.write_str(core::str::from_utf8(name).ok()?).ok()?;
    let (mut function, mut status) = (null_mut(), 0);
    // SAFETY: a C string, and the places are ours.
    let result = unsafe {
        real::cuGetProcAddress_v2(symbol.as_c()?.as_ptr(), &raw mut function, version, flags, &raw mut status)
    };
    (result == SUCCESS && status == 0).then_some(function)
}

fn unknown(name: &[u8], version: c_int) {
    static STATED: AtomicBool = AtomicBool::new(false);
    if !STATED.swap(true, Relaxed) {
        let name = core::str::from_utf8(name).unwrap_or_default();
        say!(
            "the program uses {name} of CUDA {version}, but guard knows CUDA up to {KNOWN}; newer features \
            are not guarded"
        );
    }
}

hooks! {
    in CUDA when always;

    fn cuGetProcAddress = "cuGetProcAddress" since 11030 (
        symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64
    ) calls real {
        let result = real(symbol, function, version, flags);
        if result == SUCCESS {
            substitute(symbol, function, version, flags);
        }
        result
    }

    // The answers of the twin, if a driver has it, are for per-thread default streams.
    fn cuGetProcAddress_v2 / cuGetProcAddress_v2_ptsz = "cuGetProcAddress" since 12000 (
        symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int
    ) calls (real, per_thread) {
        let result = real(symbol, function, version, flags, status);
        if result == SUCCESS && (status.is_null() || *status == 0) {
            let flags = if per_thread { flags | PER_THREAD } else { flags };
            substitute(symbol, function, version, flags);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// New versions of a function whose parameters did not change.
    const SAME_PARAMETERS: [(&str, c_int); 1] = [("cuGraphAddNode", 13_040)];
    /// The version before it.
    const SAME_AS: c_int = 12_030;
    /// The version of CUDA with the first functions for per-thread default streams, which have a twin in the
    /// table.
    const PER_THREAD_SINCE: c_int = 7000;

    /// Name of each function, and the versions of its ABI with the number of parameters.
    fn entry_points() -> impl Iterator<Item = (&'static str, Vec<(c_int, usize)>)> {
        let lines = include_str!("../../../../data/cuda/entry-points.txt").lines();
        lines.filter(|line| !line.starts_with('#')).map(|line| {
            let mut words = line.split(' ');
            let version = |word: &str| {
                let (since, parameters) = word.split_once(':').unwrap();
                (since.parse().unwrap(), parameters.parse().unwrap())
            };
            (words.next().unwrap(), words.map(version).collect())
        })
    }

    #[test]
    fn every_abi_of_a_hooked_function_has_a_hook() {
        let mut newest = 0;
        for (name, versions) in entry_points() {
            newest = newest.max(versions.iter().map(|(since, _)| *since).max().unwrap());
            let since: Vec<c_int> = variants(name.as_bytes()).map(|hook| hook.since).collect();
            let Some(oldest) = since.iter().min() else { continue };
            for (version, _) in versions {
                let known = version < *oldest || since.contains(&version) || version == PER_THREAD_SINCE;
                assert!(known || SAME_PARAMETERS.contains(&(name, version)), "{name} of CUDA {version}");
            }
        }
        assert_eq!(newest, KNOWN);
    }

    #[test]
    fn a_hook_has_as_many_parameters_as_its_function_in_the_headers() {
        let mut compared = 0;
        for (name, versions) in entry_points() {
            for (since, parameters) in versions {
                let same = |version| {
                    version == since || SAME_PARAMETERS.contains(&(name, since)) && version == SAME_AS
                };
                for hook in variants(name.as_bytes()).filter(|hook| same(hook.since)) {
                    assert_eq!(hook.parameters, parameters, "{} of CUDA {since}", hook.symbol);
                    compared += 1;
                }
            }
        }
        assert!(compared > 60, "{compared}");
    }

    #[test]
    fn every_function_that_takes_or_returns_memory_is_hooked() {
        let takes = |name: &str| {
            let starts = ["cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemHostRegister", "cuArrayCreate"];
            let whole = [
                "cuMemCreate",
                "cuMemRelease",
                "cuMemMap",
                "cuMemUnmap",
                "cuMemPoolCreate",
                "cuMemPoolDestroy",
                "cuArray3DCreate",
                "cuMipmappedArrayCreate",
                "cuMemGetInfo",
                "cuCtxCreate",
                "cuDevicePrimaryCtxRetain",
            ];
            starts.iter().any(|start| name.starts_with(start)) || whole.contains(&name)
        };
        let taking: Vec<&str> = entry_points().map(|(name, _)| name).filter(|name| takes(name)).collect();
        assert!(taking.len() > 15, "{taking:?}");
        for name in taking {
            assert!(variants(name.as_bytes()).next().is_some(), "{name}");
        }
    }
}
