//! Lets the fake engine die in different ways, with the last log lines that llama.cpp would print.
//!
//! A diagnosis reads these lines, so their fixed parts are copied word by word: `ggml-cuda.cu:
//! ggml_cuda_error` and `ggml_backend_cuda_buffer_type_alloc_buffer`, `ggml-alloc.c:alloc_tensor_range`,
//! `llama.cpp:llama_model_load`, `server.cpp:main` @ b10605.

use std::process::Command;

use rustix::process::{self, Resource, Rlimit, Signal};

use super::log;

/// Keeps deaths by signal from leaving core files behind.
pub(crate) fn leave_no_core() {
    process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).ok();
}

#[expect(clippy::exit, reason = "a double dies where the script says, as a real engine does")]
pub(crate) fn exit(status: i32) -> ! {
    std::process::exit(status)
}

/// Dies of a signal. Rust's own SIGSEGV handler swallows the first one and steps aside, hence the loop.
pub(crate) fn of_signal(signal: Signal) -> ! {
    loop {
        process::kill_process(process::getpid(), signal).ok();
    }
}

pub(crate) fn of_broken_model(model: &str) -> ! {
    log(format_args!(
        "llama_model_load: error loading model: tensor 'blk.0.attn_q.weight' data is not within the file bounds, model is corrupted or incomplete"
    ));
    log(format_args!("llama_model_load_from_file_impl: failed to load model"));
    log(format_args!("srv    load_model: failed to load model, '{model}'"));
    leave_load()
}

#[expect(clippy::cast_precision_loss, reason = "printed with two decimals")]
pub(crate) fn of_oom_at_load(model: &str, bytes: u64) -> ! {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    log(format_args!(
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating {mebibytes:.2} MiB on device 0: cudaMalloc failed: out of memory"
    ));
    log(format_args!("alloc_tensor_range: failed to allocate CUDA0 buffer of size {bytes}"));
    log(format_args!("llama_model_load: error loading model: unable to allocate CUDA0 buffer"));
    log(format_args!("llama_model_load_from_file_impl: failed to load model"));
    log(format_args!("srv    load_model: failed to load model, '{model}'"));
    leave_load()
}

fn leave_load() -> ! {
    log(format_args!("srv          main: exiting due to model loading error"));
    exit(1)
}

/// The words of `ggml_abort` at a CUDA error; what follows them is the caller's.
pub(crate) fn notify_oom_at_depth() {
    log(format_args!("CUDA error: out of memory"));
    log(format_args!(
        "  current device: 0, in function alloc at /llama.cpp/ggml/src/ggml-cuda/ggml-cuda.cu:567"
    ));
    log(format_args!("  cuMemCreate(&handle, reserve_size, &prop, 0)"));
    log(format_args!("/llama.cpp/ggml/src/ggml-cuda/ggml-cuda.cu:107: CUDA error"));
}

/// A debugger that never returns (`ggml.c: ggml_print_backtrace @ b10605`).
pub(crate) fn debugger() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000");
    command
}

pub(crate) fn of_taken_port(host: &str, port: u16) -> ! {
    log(format_args!("srv         start: couldn't bind HTTP server socket, hostname: {host}, port: {port}"));
    log(format_args!("srv          main: exiting due to HTTP server error"));
    exit(1)
}
