//! Reads the headers of remote models over HTTP range requests, and downloads models.
//!
//! The servers are Hugging Face's hub, its mirrors, and plain URLs. Files can also be copied from another
//! host of a fleet; the caller then fetches the bytes.
//!
//! Flags and the choice of files follow llama-server (`common/download.cpp`, `common/hf-cache.cpp` @ 0.5.0).
//! Files in a local cache are not fetched. All responses of a server are untrusted input.
#![forbid(unsafe_code)]

mod address;
mod beginning;
mod cached;
mod client;
mod copy;
mod derived;
mod download;
mod download_plan;
mod downloaded;
mod error;
mod head;
#[cfg(unix)]
mod linux;
mod listing;
mod notes;
mod part_file;
mod post;
mod source;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use linux as system;
#[cfg(windows)]
use windows as system;

pub use address::Address;
pub use beginning::Beginning;
pub use cached::Caches;
pub use client::{Bounds, Client, Traffic};
pub use copy::{CopyCalls, FileCopy};
pub use derived::{DeriveError, DerivedModel};
pub use download::DownloadProgress;
pub use download_plan::{DownloadPlan, download_name};
pub use downloaded::DownloadedModel;
pub use error::{HostFault, HubError, HubFailure};
pub use head::{Origin, RemoteHead};
pub use listing::{HubFile, Listing, is_repository};
pub use post::{PostError, post_json};

pub use source::{Hub, LocatedModel, ModelPlace, RemoteModel};

// Tests of the public interface, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
extern crate self as plimsoll_hub;
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;
