//! Entry points of the library: the loader's, and that of a backend of ggml.
//!
//! `plimsoll run` loads the library into a suspended process, or ggml loads it by `GGML_BACKEND_PATH`.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::{null, null_mut};

use windows_sys::Win32::Foundation::HMODULE;
use windows_sys::Win32::System::LibraryLoader::{
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_PIN, GetModuleHandleExW,
    GetModuleHandleW,
};
use windows_sys::w;

use crate::say::say;
use crate::{driver, fence, hooks, modules, settings};

/// `DLL_PROCESS_ATTACH`.
const ATTACH: u32 = 1;
/// `LDR_DLL_NOTIFICATION_REASON_LOADED`.
const LOADED: u32 = 1;
/// `GGML_BACKEND_API_VERSION` (ggml-backend-impl.h @ llama.cpp b8390, b10605).
const GGML_VERSION: c_int = 2;

/// `LDR_DLL_LOADED_NOTIFICATION_DATA` up to the module's address.
#[repr(C)]
#[derive(Debug)]
struct Notification {
    flags: u32,
    path: *const c_void,
    name: *const c_void,
    module: HMODULE,
}

type Notified = unsafe extern "system" fn(u32, *const Notification, *mut c_void);
type Register = unsafe extern "system" fn(u32, Notified, *mut c_void, *mut *mut c_void) -> c_int;

#[unsafe(no_mangle)]
extern "system" fn DllMain(module: HMODULE, reason: u32, _reserved: *mut c_void) -> c_int {
    if reason == ATTACH && settings::options().is_some() {
        stay(module);
        note_late_load();
        if !watch() {
            say!(
                "this system does not announce libraries; those that are loaded from now on are not guarded"
            );
        }
        modules::begin(module);
    }
    1
}

/// Keeps the library loaded, whatever its loader does: the program's import tables lead here.
fn stay(module: HMODULE) {
    let flags = GET_MODULE_HANDLE_EX_FLAG_PIN | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS;
    let mut own = null_mut();
    // SAFETY: an address of this library, which is its handle, and a place of ours.
    unsafe { GetModuleHandleExW(flags, module.cast(), &raw mut own) };
}

/// Notes that the program has used a card already, and may have streams that guard does not know.
fn note_late_load() {
    let (mut flags, mut is_active) = (0, 0);
    // SAFETY: places of ours; card 0 stands for all.
    let code = unsafe { driver::cuDevicePrimaryCtxGetState(0, &raw mut flags, &raw mut is_active) };
    if code == driver::SUCCESS && is_active != 0 {
        fence::be_unsure();
    }
}

/// Asks the loader to announce libraries (`LdrRegisterDllNotification`, Windows Vista and later).
fn watch() -> bool {
    // SAFETY: ntdll is in every process, and both are strings that end in zero.
    let register = unsafe {
        let ntdll = GetModuleHandleW(w!("ntdll.dll"));
        hooks::get_procedure(ntdll, c"LdrRegisterDllNotification".as_ptr().cast())
    };
    if register == 0 {
        return false;
    }
    let mut cookie = null_mut();
    // SAFETY: the function of this name has these arguments (LdrRegisterDllNotification,
    // learn.microsoft.com).
    let status = unsafe { transmute::<usize, Register>(register)(0, notified, null_mut(), &raw mut cookie) };
    status == 0
}

unsafe extern "system" fn notified(reason: u32, data: *const Notification, _context: *mut c_void) {
    // SAFETY: the loader passes what it has loaded.
    let data = unsafe { data.as_ref() };
    if let Some(data) = data.filter(|_| reason == LOADED) {
        modules::announce(data.module);
    }
}

/// `ggml_backend_reg`: a backend without devices.
#[repr(C)]
#[derive(Debug)]
struct Registration {
    version: c_int,
    name: extern "C" fn(*const Registration) -> *const c_char,
    device_count: extern "C" fn(*const Registration) -> usize,
    device: extern "C" fn(*const Registration, usize) -> *const c_void,
    procedure: extern "C" fn(*const Registration, *const c_char) -> *const c_void,
    context: usize,
}

static REGISTRATION: Registration =
    Registration { version: GGML_VERSION, name, device_count, device, procedure, context: 0 };

/// ggml asks a library of `GGML_BACKEND_PATH` for its backend.
#[unsafe(no_mangle)]
extern "C" fn ggml_backend_init() -> *const c_void {
    (&raw const REGISTRATION).cast()
}

extern "C" fn name(_: *const Registration) -> *const c_char {
    c"plimsoll guard".as_ptr()
}

extern "C" fn device_count(_: *const Registration) -> usize {
    0
}

extern "C" fn device(_: *const Registration, _: usize) -> *const c_void {
    null()
}

extern "C" fn procedure(_: *const Registration, _: *const c_char) -> *const c_void {
    null()
}
