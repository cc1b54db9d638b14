//! Guard's pages, files of models and measurements that are kept.
#![forbid(unsafe_code)]

pub mod bus;
pub mod contexts;
pub mod folder;
pub mod guard;
pub mod headers;
pub mod library;
pub mod own_file;
mod processor;
mod user_folder;

pub use processor::processor;
