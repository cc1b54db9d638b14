//! Lists the causes that a diagnosis can name, such as fragmentation or another process on the card.
//!
//! Their codes are part of the published format `plimsoll.diagnosis/1` and do not change.

use std::fmt;

use serde::{Serialize, Serializer};

// One list for the variant, its code and its words, so that none can be forgotten.
macro_rules! named {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal: $words:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The code in JSON.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The cause in words.
            pub const fn words(self) -> &'static str {
                match self { $(Self::$variant => $words,)* }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.code())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.code())
            }
        }
    };
}

pub(crate) use named;

named! {
    /// Cause of a failed allocation, or of an error that looks like one.
    Cause {
        ModelTooLarge = "model_too_large": "the weights do not fit",
        KvCacheTooLarge = "kv_cache_too_large": "the KV cache does not fit",
        ComputeBufferTooLarge = "compute_buffer_too_large": "the compute buffers do not fit",
        PoolGrowth = "pool_growth": "the run-time pool grew after the load, and no memory was left for its \
            growth",
        ForeignProcess = "foreign_process": "other processes hold the memory",
        WrongDeviceContext = "wrong_device_context": "the program uses a different card than intended",
        UnifiedMemoryRefused = "unified_memory_refused": "the kernel refused memory that host and GPU share",
        HostPinnedLimit = "host_pinned_limit": "host memory could not be pinned",
        FragmentationCachingAllocator = "fragmentation_caching_allocator": "the caching allocator holds \
            free memory, but in blocks that are too small",
        NvmlAssertMasksOom = "nvml_assert_masks_oom": "an NVML assertion hides that memory ran out",
        UnifiedMemoryThrash = "unified_memory_thrash": "the driver moves managed memory between card and \
            host instead of refusing requests",
        DriverOrHw = "driver_or_hw": "the card, its bus or its driver failed",
        Leak = "leak": "the program allocates memory and does not release it",
        /// Only in verdicts: rules and classifier file it under `NotOom`, whose reports they have in common.
        HostOom = "host_oom": "the host ran out of memory, not the card",
        NotOom = "not_oom": "memory is not the problem",
        Other = "other": "the evidence shows none of the known causes",
    }
}

impl Cause {
    /// True for causes that the sizes of a refusal decide: requested, free, held by others.
    pub(super) const fn is_of_sizes(self) -> bool {
        matches!(
            self,
            Self::ModelTooLarge
                | Self::KvCacheTooLarge
                | Self::ComputeBufferTooLarge
                | Self::PoolGrowth
                | Self::ForeignProcess
                | Self::FragmentationCachingAllocator
        )
    }
}

named! {
    /// Mechanism of a cause, where each mechanism has its own remedy.
    SubCause {
        PolicyCap = "nvmap_policy_cap": "this release of L4T refuses allocations beyond a certain part of \
            the free memory",
        PageCache = "page_cache": "the page cache fills the memory, and the driver counts it as used",
        TrueShortage = "true_shortage": "the machine has less memory than requested",
        Fragmentation = "fragmentation": "the free memory is in small blocks",
        AddressReservation = "va_reservation": "address space could not be reserved; no memory was requested",
        AllocationLimit = "allocation_limit": "one allocation is larger than the driver allows",
        CommitLimit = "commit_limit": "Windows backs the memory of a card with main memory and the page file, and \
            these are full",
        CapacityMisreported = "capacity_misreported": "the GPU runtime (such as ROCm) offers less memory \
            of the card than the kernel has for it",
        AlongsideFree = "refused_beside_free_memory": "less was requested than was free, and the log does not show why it \
            was refused",
        Unexplained = "out_of_memory": "memory of the card ran out, and the log does not show its purpose",
        Released = "neighbour_released": "another process released memory of the card while the program measured it",
        ContainerLimit = "container_limit": "the container's memory limit includes GPU memory",
        Override = "tensor_override": "tensors were assigned to a buffer type that cannot hold them",
        PipelineCopies = "pipeline_copies": "pipeline parallelism keeps several copies of the buffers",
        KernelSlab = "kernel_slab_leak": "the kernel's own memory (slab) grew",
        KeepAlive = "keep_alive": "the model stays loaded for some minutes after its last request, as \
            configured",
        HostKilled = "host_oom_killer": "the process was killed because host memory ran out",
        GroupLimit = "cgroup_limit": "the memory limit of its container or service was reached",
        Killed = "killed": "the process was killed from outside (SIGKILL)",
        HostMemory = "host_ram": "host memory ran out, not card memory",
        Baseline = "baseline_overhead": "the missing memory is the size of an empty CUDA context",
        PreviousChild = "previous_child_not_gone": "the previous engine had not released its memory",
        OldDriver = "driver_too_old": "the driver is older than the CUDA version that the program needs",
        NoDriver = "driver_unreachable": "the program cannot reach a driver that works",
        WrongBuild = "wrong_build": "the program was built for another card or library",
        Optional = "optional_allocation": "the refused memory is optional, and the program continued",
        Recovered = "recovered": "the engine retried with less memory and continued",
        PortTaken = "port_taken": "the port is already in use",
        CommandLine = "command_line": "the program rejected its command line",
        MissingLibrary = "missing_library": "a shared library is missing",
        PythonImport = "python_import": "Python cannot import a module",
        ModelFile = "model_file": "the program could not read its model",
        RequestTooLong = "request_too_long": "a request was longer than the context",
        NotStarted = "not_started": "the program could not be started",
        DriverSpill = "driver_spill": "the driver had already moved GPU memory to the host",
        MemoryFault = "memory_fault": "a GPU kernel accessed memory outside its allocations",
    }
}
