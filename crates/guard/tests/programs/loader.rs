//! Test program in Rust that binds the driver like a statically linked CUDA runtime: dlopen, dlsym for
//! cuGetProcAddress_v2, and every other function through it.
//!
//! It allocates the sizes in its arguments and prints the results.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

#[link(name = "dl")]
unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Find = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

fn main() {
    const LOCAL_AND_NOW: c_int = 2;
    // SAFETY: the prototypes are those of cuda.h.
    unsafe {
        let library = dlopen(c"libcuda.so.1".as_ptr(), LOCAL_AND_NOW);
        assert!(!library.is_null(), "no driver");
        let find: Find = transmute(dlsym(library, c"cuGetProcAddress_v2".as_ptr()));
        let get = |name: &CStr| {
            let (mut found, mut status) = (null_mut(), -1);
            assert_eq!(find(name.as_ptr(), &mut found, 12000, 0, &mut status), 0, "{name:?}");
            found
        };
        let init: unsafe extern "C" fn(c_uint) -> c_int = transmute(get(c"cuInit"));
        let retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int = transmute(get(c"cuDevicePrimaryCtxRetain"));
        let set: unsafe extern "C" fn(*mut c_void) -> c_int = transmute(get(c"cuCtxSetCurrent"));
        let allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int = transmute(get(c"cuMemAlloc"));
        let mut context = null_mut();
        assert_eq!((init(0), retain(&mut context, 0), set(context)), (0, 0, 0));
        for size in std::env::args().skip(2) {
            let size = CString::new(size).expect("an argument has no zero").into_string().expect("digits");
            let mut pointer = 0;
            println!("{}", allocate(&mut pointer, size.parse().expect("a number")));
        }
    }
}
