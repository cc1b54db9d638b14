//! ggml functions of the engine that loaded the plugin.
//!
//! DECISION: they are looked up in the symbol tables of the loaded objects, neither linked nor found by
//! `dlsym`. The plugin therefore loads into any process, finds a ggml that was loaded privately (by a Python
//! module), and can report what is missing instead of failing to load. Exactly one ggml must be present; with
//! two, the one that is loading the plugin is unknown. A statically linked engine that exports nothing gets a
//! message that names the remedy.

use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};

use crate::abi::{Backend, Buffer, BufferTable, Device, Event, Graph, Handle, InitParams, Registry, Tensor};
use plimsoll_nostd::elf::ElfImage;

/// Declares the functions, and finds each by its name.
macro_rules! functions {
    ($($(#[$about:meta])* $name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of ggml, under its own names.
        pub(crate) struct Functions {
            $($(#[$about])* pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// The functions of one object, or the names of those that it lacks.
            fn of(object: &ElfImage<'_>) -> Result<Self, Vec<&'static str>> {
                let mut missing = Vec::new();
                $(let $name = object.function(c_name(concat!(stringify!($name), "\0")));
                if $name.is_null() {
                    missing.push(stringify!($name));
                })*
                if !missing.is_empty() {
                    return Err(missing);
                }
                // SAFETY: each is the function of that name in a ggml; their signatures are the same in every
                // build that has them, and what they take and return is measured before it is relied on
                // (`probe`).
                Ok(unsafe { Self { $($name: core::mem::transmute::<*const c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>($name)),* } })
            }
        }
    };
}

functions! {
    ggml_op_name: fn(c_int) -> *const c_char;
    ggml_unary_op_name: fn(c_int) -> *const c_char;
    ggml_glu_op_name: fn(c_int) -> *const c_char;
    ggml_type_name: fn(c_int) -> *const c_char;
    ggml_type_size: fn(c_int) -> usize;
    ggml_blck_size: fn(c_int) -> i64;
    ggml_is_quantized: fn(c_int) -> bool;
    ggml_version: fn() -> *const c_char;
    ggml_backend_buffer_init: fn(Handle, BufferTable, Handle, usize) -> *mut Buffer;
    ggml_backend_buffer_free: fn(*mut Buffer);
    ggml_backend_buffer_get_size: fn(*mut Buffer) -> usize;
    ggml_backend_buffer_get_type: fn(*mut Buffer) -> Handle;
    ggml_backend_buffer_set_usage: fn(*mut Buffer, c_int);
    ggml_backend_cpu_buffer_from_ptr: fn(Handle, usize) -> *mut Buffer;
    ggml_backend_cpu_buffer_type: fn() -> Handle;
    ggml_backend_buft_name: fn(Handle) -> usize;
    ggml_backend_buft_get_alignment: fn(Handle) -> usize;
    ggml_backend_buft_get_max_size: fn(Handle) -> usize;
    ggml_backend_buft_get_alloc_size: fn(Handle, *const Tensor) -> usize;
    ggml_backend_buft_is_host: fn(Handle) -> u8;
    ggml_backend_buft_get_device: fn(Handle) -> *mut Device;
    ggml_backend_dev_name: fn(*mut Device) -> usize;
    ggml_backend_dev_description: fn(*mut Device) -> usize;
    ggml_backend_dev_type: fn(*mut Device) -> c_int;
    ggml_backend_dev_get_props: fn(*mut Device, Handle);
    ggml_backend_dev_init: fn(*mut Device, *const c_char) -> usize;
    ggml_backend_dev_buffer_type: fn(*mut Device) -> usize;
    ggml_backend_dev_host_buffer_type: fn(*mut Device) -> usize;
    ggml_backend_dev_supports_op: fn(*mut Device, *const Tensor) -> u8;
    ggml_backend_dev_supports_buft: fn(*mut Device, Handle) -> u8;
    ggml_backend_dev_offload_op: fn(*mut Device, *const Tensor) -> u8;
    ggml_backend_dev_backend_reg: fn(*mut Device) -> *mut Registry;
    ggml_backend_event_new: fn(*mut Device) -> *mut Event;
    ggml_backend_reg_name: fn(*mut Registry) -> usize;
    ggml_backend_reg_dev_count: fn(*mut Registry) -> usize;
    ggml_backend_reg_get_proc_address: fn(*mut Registry, *const c_char) -> usize;
    ggml_backend_name: fn(*mut Backend) -> usize;
    ggml_backend_graph_compute_async: fn(*mut Backend, *mut Graph) -> c_int;
    ggml_backend_get_device: fn(*mut Backend) -> *mut Device;
    ggml_tensor_overhead: fn() -> usize;
    ggml_init: fn(InitParams) -> Handle;
    ggml_free: fn(Handle);
    ggml_new_tensor_4d: fn(Handle, c_int, i64, i64, i64, i64) -> *mut Tensor;
    ggml_mul_mat: fn(Handle, *mut Tensor, *mut Tensor) -> *mut Tensor;
    ggml_scale: fn(Handle, *mut Tensor, f32) -> *mut Tensor;
    ggml_view_1d: fn(Handle, *mut Tensor, i64, usize) -> *mut Tensor;
    ggml_get_name: fn(*const Tensor) -> *const c_char;
    ggml_new_graph: fn(Handle) -> *mut Graph;
    ggml_build_forward_expand: fn(*mut Graph, *mut Tensor);
    ggml_graph_n_nodes: fn(*mut Graph) -> c_int;
    ggml_graph_node: fn(*mut Graph, c_int) -> *mut Tensor;
}

/// A literal that `functions!` has ended with a zero.
const fn c_name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// Properties of the engine, as far as they can be measured.
pub(crate) struct Engine {
    pub(crate) functions: Functions,
    /// `llama_build_number`, where it is exported.
    pub(crate) build: Option<u32>,
    /// ggml's own version.
    pub(crate) version: String,
    /// True if its ggml has operations that came with builds whose copies of the cache are in the compute
    /// buffer.
    pub(crate) has_col2im: bool,
}

/// Reason why no engine was found.
pub(crate) enum Missing {
    Nothing,
    Several,
    Functions(Vec<&'static str>),
}

static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(core::ptr::null_mut());

/// The engine, once [`find`] has found it.
pub(crate) fn get() -> Option<&'static Engine> {
    // SAFETY: null, or an Engine that is never freed and never written again.
    unsafe { ENGINE.load(Acquire).as_ref() }
}

/// Keeps the engine for as long as the process lives.
pub(crate) fn keep(engine: Engine) -> &'static Engine {
    let engine = alloc::boxed::Box::leak(alloc::boxed::Box::new(engine));
    ENGINE.store(core::ptr::from_mut(engine), Release);
    engine
}

#[derive(Default)]
struct Search {
    found: Vec<(usize, Result<Functions, Vec<&'static str>>)>,
    has_col2im: bool,
    build: Option<u32>,
}

/// Looks through everything that the process has loaded.
pub(crate) fn find() -> Result<Engine, Missing> {
    let mut search = Search::default();
    // SAFETY: `visit` gets back the search that we pass, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    let Search {
        mut found,
        has_col2im,
        build,
    } = search;
    if found.len() > 1 {
        return Err(Missing::Several);
    }
    let (_, functions) = found.pop().ok_or(Missing::Nothing)?;
    let functions = functions.map_err(Missing::Functions)?;
    // SAFETY: ggml_version takes nothing and returns a constant.
    let version = text(unsafe { (functions.ggml_version)() });
    Ok(Engine {
        functions,
        build,
        version,
        has_col2im,
    })
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid object and the search that `find` gave it.
    let (object, search) = unsafe { (ElfImage::of(&*info), &mut *search.cast::<Search>()) };
    let Some(object) = object else { return 0 };
    let init = object.function(c"ggml_backend_buffer_init");
    if !init.is_null() && search.found.iter().all(|(address, _)| *address != init.addr()) {
        search.has_col2im = !object.function(c"ggml_col2im_1d").is_null();
        search.found.push((init.addr(), Functions::of(&object)));
    }
    let number = object.function(c"_Z18llama_build_numberv");
    if !number.is_null() {
        // SAFETY: `int llama_build_number(void)` of llama.cpp's common library.
        let number =
            unsafe { core::mem::transmute::<*const c_void, unsafe extern "C" fn() -> c_int>(number) };
        // SAFETY: it returns a constant.
        search.build = u32::try_from(unsafe { number() }).ok().filter(|build| *build > 0);
    }
    0
}

/// A C string of the engine's as text.
pub(crate) fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: not null, and the engine's names end in zero.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}
