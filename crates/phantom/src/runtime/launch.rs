//! Registers the kernels of an engine under phantom (the stand-in for CUDA), and answers queries about them.
//! Launches do nothing.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::{null_mut, without_provenance_mut};

use crate::kernel;
use crate::machine::{INVALID, give, machine};
use crate::properties::FunctionAttributes;

crate::succeeding! {
    __cudaLaunchKernel __cudaPushCallConfiguration __cudaRegisterFatBinaryEnd __cudaRegisterVar
    __cudaUnregisterFatBinary
}

/// The compiler's word for a fat binary: its magic number, its version, its address.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct FatBinaryWrapper {
    magic: u32,
    version: u32,
    binary: *const u8,
    unused: *const c_void,
}

crate::exported! {
    /// Called by the constructors of the kernels' library. The handle is the binary's own address, never
    /// null.
    fn __cudaRegisterFatBinary(wrapper: *const FatBinaryWrapper) -> *mut c_void {
        without_provenance_mut(wrapper.as_ref().map_or(0, |wrapper| wrapper.binary.addr()).max(1))
    }

    /// `name` lives as long as the library that the kernel is in.
    fn __cudaRegisterFunction(
        binary: *mut c_void, host: *const c_void, _device: *mut c_char, name: *const c_char,
    ) {
        kernel::register(host.addr(), binary.addr(), name.addr());
    }

    fn __cudaPopCallConfiguration as __hipPopCallConfiguration(
        grid: *mut [c_uint; 3], block: *mut [c_uint; 3], shared: *mut usize, stream: *mut *mut c_void,
    ) -> c_int {
        give(grid, [1; 3]);
        give(block, [1; 3]);
        give(shared, 0);
        give(stream, null_mut())
    }

    /// The handle of a kernel is the address of its stub.
    fn __cudaGetKernel(kernel: *mut *mut c_void, host: *mut c_void) -> c_int { give(kernel, host) }

    /// The structures of later runtimes begin with this one.
    fn cudaFuncGetAttributes as hipFuncGetAttributes(place: *mut FunctionAttributes, host: *const c_void) -> c_int {
        let Some(card) = machine().cards.get(machine().current()) else { return INVALID };
        let code = kernel::code(host.addr(), card.capability);
        let (major, minor) = card.capability;
        let version = c_int::try_from(major * 10 + minor).unwrap_or(0);
        let attributes = FunctionAttributes {
            shared: code.map_or(0, |code| usize::try_from(code.shared).unwrap_or(0)),
            most_threads: 1024,
            registers: code.map_or(0, |code| c_int::try_from(code.registers).unwrap_or(0)),
            ptx_version: version,
            binary_version: version,
            ..FunctionAttributes::default()
        };
        give(place, attributes)
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor as cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
    as hipOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, host: *const c_void, threads: c_int, dynamic: usize,
    ) -> c_int {
        let Some(card) = machine().cards.get(machine().current()) else { return INVALID };
        let code = kernel::code(host.addr(), card.capability);
        let threads = u32::try_from(threads).unwrap_or(0);
        let dynamic = u32::try_from(dynamic).unwrap_or(u32::MAX);
        let most = kernel::occupancy(card, code, threads, dynamic);
        if code.is_none_or(|code| !code.own) && kernel::is_new(host.addr()) {
            machine().memory.report().guessed(kernel::name(host.addr()), most);
        }
        give(blocks, c_int::try_from(most).unwrap_or(0))
    }

    /// The text is the C string of the library that the kernel is in.
    fn cudaFuncGetName(name: *mut *const c_char, host: *const c_void) -> c_int {
        let text = kernel::name(host.addr());
        if text.is_empty() { INVALID } else { give(name, text.as_ptr().cast()) }
    }
}
