//! Reads GPUs of AMD and Intel from the files of their kernel drivers, without a vendor's library.
//!
//! DECISION: no library of a vendor is asked. AMD's has another name in each release and is absent where only
//! Vulkan is installed, and its list of processes is known to say 0 (ROCm/rocm_smi_lib#165).

mod card;
mod fdinfo;
mod files;
mod kfd;
mod pci;
mod processes;
mod regions;
mod room;
mod survey;
#[cfg(test)]
mod tests;

pub use card::{Board, KernelCard, MemoryPool, RoomLimit};
pub(crate) use files::{CardFiles, IntelDriver};
pub(crate) use survey::KernelSurvey;
