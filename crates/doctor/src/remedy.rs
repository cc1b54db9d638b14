//! Remedies for each cause and sub-cause, the mildest first.
//!
//! Remedies follow from the cause alone. Concrete values, such as a context that fits, come from a memory
//! plan made by the caller.

use plimsoll_base::{Advice, Hint};

use super::cause::{Cause, SubCause};
use super::facts::Facts;
use super::pattern::Pattern;

pub(super) fn hints(cause: Cause, sub_cause: Option<SubCause>, facts: &Facts) -> Vec<Hint> {
    let mut advice = match sub_cause {
        Some(sub_cause) => of_sub_cause(sub_cause),
        None => &[],
    };
    // Sub-causes without an entry of their own are served by their cause.
    if advice.is_empty() {
        advice = of_cause(cause);
    }
    let mut hints: Vec<Hint> = advice.iter().map(|text| hint(text)).collect();
    match cause {
        // The typed hint comes first: `plan` can compute it for the model at hand.
        Cause::KvCacheTooLarge => hints.insert(0, Hint::new(Advice::QuantiseCache("q8_0"))),
        Cause::ForeignProcess => {
            if let Some(holder) = facts.holders().iter().max_by_key(|holder| holder.used) {
                hints.insert(
                    0,
                    hint(&format!(
                        "process {} holds {}: stop it or move it to another card",
                        holder.name, holder.used
                    )),
                );
            }
        }
        // The encoder of images allocates on the card with the first image
        // (`clip.cpp:clip_image_batch_encode`).
        Cause::PoolGrowth if facts.says(Pattern::SeesImage) => {
            hints.insert(
                0,
                hint("leave room for the image encoder, or keep it on the host (--no-mmproj-offload)"),
            );
        }
        _ => {}
    }
    hints
}

fn hint(text: &str) -> Hint {
    Hint::new(Advice::Other(text.to_owned()))
}

fn of_cause(cause: Cause) -> &'static [&'static str] {
    match cause {
        Cause::ModelTooLarge => &[
            "put fewer layers on the card (-ngl), keep experts on the host (--n-cpu-moe), or use a smaller quantisation",
            "plimsoll plan -- FLAGS shows what fits",
        ],
        Cause::KvCacheTooLarge => &["use a shorter context (-c), fewer slots (-np), or a quantised cache"],
        Cause::ComputeBufferTooLarge => &[
            "use a smaller micro-batch (-ub), enable flash attention (-fa on), or serve fewer requests at once",
        ],
        Cause::PoolGrowth => &[
            "leave memory free after the load: use a shorter context, fewer layers on the card, or an f16 \
                cache in builds that convert a quantised cache to f16",
            "plimsoll run --pool ours -- CMD replaces ggml's legacy pool; plimsoll plan -- FLAGS shows how \
                large the pool grows",
        ],
        Cause::ForeignProcess => {
            &["list the processes on the card with plimsoll doctor, stop those that are not needed, or use \
                another card"]
        }
        Cause::WrongDeviceContext => &[
            "set CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER=PCI_BUS_ID before the process starts, and name the main card (-mg)",
            "plimsoll run --card CARD -- CMD hides the other cards from a program",
        ],
        Cause::UnifiedMemoryRefused => {
            &["run plimsoll doctor on the machine: it checks for a faulty L4T release, page cache, a real \
                shortage, fragmented memory and a container's limit"]
        }
        Cause::HostPinnedLimit => {
            &["raise the limit of locked memory (ulimit -l, memlock of the container), pin less memory at \
                once, or disable pinning (GGML_CUDA_NO_PINNED=1)"]
        }
        Cause::FragmentationCachingAllocator => &["set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"],
        Cause::NvmlAssertMasksOom => &[
            "treat this error as out of memory: the last allocation in the traceback shows the size; check \
            which other processes use the card",
            "use a newer PyTorch, which reports the refused allocation even where NVML cannot list processes",
        ],
        Cause::UnifiedMemoryThrash => {
            &["unset GGML_CUDA_ENABLE_UNIFIED_MEMORY, and put only as many layers on the card as fit"]
        }
        Cause::DriverOrHw => &[
            "read the kernel's log (dmesg | grep -e NVRM -e Xid); check the card's power, cooling and slot, \
            and the driver's version",
        ],
        Cause::Leak => &[
            "restart the program before memory is full, and update it; plimsoll run --trace FILE shows what \
                is never freed",
        ],
        Cause::HostOom => &["add host memory or swap, or leave mmap enabled (omit --no-mmap)"],
        Cause::NotOom => &["look for the cause in the lines above; more memory will not help"],
        Cause::Other => &["plimsoll doctor -- CMD runs the program under guard and records each refused \
            allocation"],
    }
}

fn of_sub_cause(sub_cause: SubCause) -> &'static [&'static str] {
    match sub_cause {
        SubCause::PolicyCap => {
            &["upgrade L4T to a release without this limit (R35.6.4, R36.5 or later); dropping caches does \
            not help"]
        }
        SubCause::PageCache => {
            &["use plimsoll reclaim --need SIZE --file MODEL: it first drops the cached pages of the model \
                files, which requires no root"]
        }
        SubCause::TrueShortage => &["stop other programs, add swap for host memory, or use a smaller model"],
        SubCause::Fragmentation => {
            &["drop the page cache as root, then write 1 to /proc/sys/vm/compact_memory"]
        }
        SubCause::AddressReservation => {
            &["build ggml with GGML_CUDA_NO_VMM, or start the program with plimsoll run, which reserves \
                fewer addresses"]
        }
        SubCause::AllocationLimit => &[
            "use a smaller micro-batch or context, or let ggml split its buffers (GGML_VK_FORCE_MAX_ALLOCATION_SIZE)",
        ],
        SubCause::ContainerLimit => &["raise the container's memory limit: it includes GPU memory"],
        SubCause::Override => &["remove the tensor overrides (-ot) one by one to find the one that fails"],
        SubCause::PipelineCopies => {
            &["build with GGML_SCHED_MAX_COPIES=1, or serve one request at once (--parallel 1)"]
        }
        SubCause::KernelSlab => &["reboot, and watch the slab with slabtop: reclaim cannot free this memory"],
        SubCause::KeepAlive => &["set keep_alive to 0 to release memory at once"],
        SubCause::Killed => {
            &["`dmesg | grep -i -e oom -e killed` shows whether the kernel killed the process; if so, add \
            host memory or swap"]
        }
        SubCause::OldDriver => {
            &["update the driver, or use a build for an older CUDA version: `nvidia-smi` shows the highest \
            CUDA version that the driver supports"]
        }
        SubCause::PythonImport => &[
            "install the module in the environment of this Python, or correct the module's name; memory is \
            not involved",
        ],
        SubCause::HostKilled | SubCause::HostMemory => {
            &["add host memory or swap, or leave mmap enabled (omit --no-mmap)"]
        }
        SubCause::Baseline => &["request a slightly smaller share of the card (--gpu-memory-utilization)"],
        SubCause::PreviousChild => {
            &["wait until the card's memory is released before the next start, as plimsoll serve does"]
        }
        SubCause::WrongBuild => &["use a build for this card's architecture and for the CUDA version of \
            this driver"],
        SubCause::Optional | SubCause::Recovered => &["no action is needed"],
        SubCause::PortTaken => &["stop the program that listens on this port, or use another port"],
        SubCause::CommandLine => &["compare the options with those that the program lists with --help"],
        SubCause::MissingLibrary => &["install the library, or add its folder to LD_LIBRARY_PATH"],
        SubCause::ModelFile => {
            &["check that the model file exists and is complete, and that this build supports the model"]
        }
        SubCause::RequestTooLong => {
            &["enlarge the context (-c) if the plan shows that the larger context fits, or send a shorter \
                request"]
        }
        SubCause::NotStarted => &["check that the program exists, is executable and was built for this \
            machine"],
        SubCause::DriverSpill | SubCause::MemoryFault => &[],
    }
}
