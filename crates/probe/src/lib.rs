//! Reads memory figures of programs under guard (the preloaded library), headers of model files, and stored
//! measurements.
#![forbid(unsafe_code)]

mod adapters;
pub mod bus;
pub mod contexts;
mod estimate;
pub mod folder;
pub mod guard;
pub mod headers;
pub mod library;
pub mod models;
pub mod own_file;
mod processor;
mod user_folder;

pub use adapters::missing_adapters;
pub use estimate::estimate;
pub use processor::processor;
