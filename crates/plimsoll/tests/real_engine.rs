//! Tests of `plimsoll serve` with a real llama.cpp: planned memory, OpenAI's own client, and every route that
//! an engine answers.
//!
//! The models are synthetic and tiny; engine and client library are installed below the target folder by the
//! first test that needs them.

mod burst;
mod checked;
mod crowd;
mod cuda;
mod debian;
mod depth;
mod dialects;
mod drift;
mod exact;
mod exact_rows;
mod fleet;
mod growth;
mod hip;
mod hip_guard;
mod hip_rows;
mod host_memory;
mod leaving;
mod open_webui;
mod openai;
mod quickstart;
mod requested;
mod routes;
mod shown;
mod sleeping;
mod sockets;
mod upstream;
pub(crate) mod venv;
mod vulkan;
mod vulkan_account;
mod vulkan_rows;
mod warm;
mod words;
