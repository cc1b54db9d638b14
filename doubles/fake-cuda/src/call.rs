//! Declares the functions of the fake CUDA driver by a macro, and does what every call has in common.
//!
//! From each declaration, `driver!` generates the exported function, its `_ptds`/`_ptsz` variant (in which
//! the NULL stream is the thread's own), a separate thunk for `distinct=1`, and the row that
//! `cuGetProcAddress` uses. So a function cannot be exported but missing from the table, or logged under
//! another name.

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt::Write;
use std::thread;

use crate::code::{Code, Outcome};
use crate::faults;
use crate::log;
use crate::settings::settings;

/// Which stream the handle 0 means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultStream {
    Legacy,
    PerThread,
}

/// A function that can be looked up.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The name without the suffix of its ABI.
    pub(crate) name: &'static str,
    /// The first version of CUDA whose `name` means this function.
    pub(crate) since: i32,
    pub(crate) address: fn() -> *const c_void,
    /// Another address for the same.
    pub(crate) thunk: fn() -> *const c_void,
    /// The twin for programs built with per-thread default streams.
    pub(crate) per_thread: Option<fn() -> *const c_void>,
}

thread_local!(static DEFAULT_STREAM: Cell<DefaultStream> = const { Cell::new(DefaultStream::Legacy) });

/// What handle 0 means in the call under way.
pub(crate) fn default_stream() -> DefaultStream {
    DEFAULT_STREAM.get()
}

/// Runs one call: latency, the fault that is due, the act, the log.
pub(crate) fn run(
    symbol: &'static str,
    stream: DefaultStream,
    act: impl FnOnce() -> Outcome,
    show: impl FnOnce(bool, &mut String),
) -> Code {
    if !settings().latency.is_zero() {
        thread::sleep(settings().latency);
    }
    let before = DEFAULT_STREAM.replace(stream);
    let code = Code::from(faults::strike(symbol).and_then(|()| act()));
    DEFAULT_STREAM.set(before);
    if log::is_kept() {
        let mut line = format!("call {symbol}(");
        show(code.0 == 0, &mut line);
        let _ = write!(line, ") = {}", code.0);
        log::write(line);
    }
    code
}

/// Appends `name=value` to a line of the log.
pub(crate) fn show_argument(name: &str, value: &impl crate::abi::Show, succeeded: bool, line: &mut String) {
    if !line.ends_with('(') {
        line.push_str(", ");
    }
    line.push_str(name);
    line.push('=');
    value.show(succeeded, line);
}

macro_rules! driver {
    ($(fn $symbol:ident $(/ $twin:ident)? = $name:literal since $since:literal $arguments:tt $body:block)*) => {
        $(
            $crate::call::driver!(@function $symbol Legacy $arguments $body);
            $($crate::call::driver!(@function $twin PerThread $arguments $body);)?
        )*

        pub(crate) const ENTRIES: &[$crate::call::Entry] = &[$(
            $crate::call::Entry {
                name: $name,
                since: $since,
                address: $crate::call::driver!(@address $symbol $arguments),
                thunk: $crate::call::driver!(@thunk $symbol $arguments),
                per_thread: $crate::call::driver!(@twin $arguments $($twin)?),
            },
        )*];
    };

    (@function $symbol:ident $stream:ident ($($argument:ident: $type:ty),* $(,)?) $body:block) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $symbol($($argument: $type),*) -> $crate::code::Code {
            $crate::call::run(
                stringify!($symbol),
                $crate::call::DefaultStream::$stream,
                || $body,
                #[allow(unused_variables, reason = "not every function has arguments")]
                |succeeded, line| {
                    $($crate::call::show_argument(stringify!($argument), &$argument, succeeded, line);)*
                },
            )
        }
    };

    (@address $symbol:ident ($($argument:ident: $type:ty),* $(,)?)) => {
        || ($symbol as extern "C" fn($($type),*) -> $crate::code::Code) as *const std::ffi::c_void
    };

    (@thunk $symbol:ident ($($argument:ident: $type:ty),* $(,)?)) => {
        || {
            #[inline(never)]
            extern "C" fn thunk($($argument: $type),*) -> $crate::code::Code {
                let function: extern "C" fn($($type),*) -> $crate::code::Code = $symbol;
                std::hint::black_box(function)($($argument),*)
            }
            (thunk as extern "C" fn($($type),*) -> $crate::code::Code) as *const std::ffi::c_void
        }
    };

    (@twin $arguments:tt) => { None };
    (@twin $arguments:tt $twin:ident) => { Some($crate::call::driver!(@address $twin $arguments)) };
}

pub(crate) use driver;
