//! What can be the matter. The names are those of `plimsoll.diagnosis/1` and do not change.

use std::fmt;

use serde::{Serialize, Serializer};

macro_rules! named {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal: $words:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// As it stands in JSON.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// In words, for a sentence that begins with `most likely`.
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

named! {
    /// Why an allocation failed, or what looked as if one had.
    Cause {
        ModelTooLarge = "model_too_large": "the weights do not fit",
        KvCacheTooLarge = "kv_cache_too_large": "the KV cache does not fit",
        ComputeBufferTooLarge = "compute_buffer_too_large": "the buffers of the computation do not fit",
        PoolGrowth = "pool_growth": "the pool of the run time grew after the load, and nothing was left for it",
        ForeignProcess = "foreign_process": "somebody else holds the memory",
        WrongDeviceContext = "wrong_device_context": "the program works on another card than it should",
        UnifiedMemoryRefused = "unified_memory_refused": "the kernel refused memory that the machine shares with its card",
        HostPinnedLimit = "host_pinned_limit": "host memory could not be pinned; the card has room",
        FragmentationCachingAllocator = "fragmentation_caching_allocator": "the caching allocator holds enough, in pieces too small",
        NvmlAssertMasksOom = "nvml_assert_masks_oom": "an assertion about NVML hides that memory ran out",
        UnifiedMemoryThrash = "unified_memory_thrash": "managed memory moves to and fro instead of failing",
        DriverOrHw = "driver_or_hw": "the card, its bus or its driver failed",
        Leak = "leak": "memory is taken and not given back",
        NotOom = "not_oom": "memory is not the matter",
        Other = "other": "none of the known causes is shown by what is here",
    }
}

impl Cause {
    /// What the sizes of a refusal decide: how much was asked for, free, and held by whom.
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
    /// What exactly, where a cause has several mechanisms with a remedy each.
    SubCause {
        PolicyCap = "nvmap_policy_cap": "this release of L4T refuses more than a part of free memory",
        PageCache = "page_cache": "free memory is full of cached files, which are counted as used",
        TrueShortage = "true_shortage": "the machine has not got so much",
        Fragmentation = "fragmentation": "what is free is in small blocks",
        AddressReservation = "va_reservation": "addresses could not be reserved; memory was not asked for",
        AllocationLimit = "allocation_limit": "one allocation is larger than the driver allows",
        ContainerLimit = "container_limit": "the container's limit counts memory of the card",
        Override = "tensor_override": "tensors were sent to a buffer that cannot be made",
        PipelineCopies = "pipeline_copies": "pipeline parallelism keeps several copies of the buffers",
        KernelSlab = "kernel_slab_leak": "the kernel's own memory grew",
        KeepAlive = "keep_alive": "the model stays loaded for some minutes, as it should",
        HostKilled = "host_oom_killer": "the kernel killed it for want of host memory",
        HostMemory = "host_ram": "host memory ran out, not the card's",
        Baseline = "baseline_overhead": "what a context takes by itself is missing",
        PreviousChild = "previous_child_not_gone": "the engine before had not given its memory back",
        WrongBuild = "wrong_build": "the program was built for another card or library",
        Optional = "optional_allocation": "what was refused is optional, and the run went on",
        Recovered = "recovered": "it tried again with less, and went on",
        PortTaken = "port_taken": "its port is taken",
        CommandLine = "command_line": "it refused its command line",
        MissingLibrary = "missing_library": "it lacks a shared library",
        ModelFile = "model_file": "it could not read its model",
        RequestTooLong = "request_too_long": "a request was longer than the context",
        NotStarted = "not_started": "it could not be started",
        DriverSpill = "driver_spill": "the driver had already moved memory to the host",
        MemoryFault = "memory_fault": "it read or wrote memory that is not its own",
    }
}
