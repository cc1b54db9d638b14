//! Kinds of log lines that the diagnosis recognises. Each phrase in the tables of `formats/` belongs to one
//! kind.

macro_rules! patterns {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// Meaning of a phrase. Patterns of one line are read in this order: the refusal first, then the
        /// statement and the stage, then sizes, then the machine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum Pattern {
            $($(#[$about])* $name,)*
        }

        impl Pattern {
            /// The pattern of a name in the tables.
            pub(crate) fn named(name: &str) -> Option<Self> {
                match name {
                    $(stringify!($name) => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

patterns! {
    // Refused allocations.
    PinnedRefused, HostRefused, CardRefused,
    /// A library was refused memory and names no size.
    BareRefused,
    /// A call of the GPU run time failed, without the name of a buffer.
    RuntimeRefused,
    TorchRefused,
    /// PyTorch reports a bare run-time error: its own allocator did not refuse.
    Unworded,
    TensorRefused, BudgetRefused, NoLayersFit, ArenaFull, AllocationLimit, SharedMemoryFull, TorchParts,
    TorchWouldExceed, TorchAllocated, TorchRequested, TorchLimit, TorchFree, VulkanRefused, BufferRefused,
    WeightsRefused, CacheRefused, ComputeRefused, OutputRefused, GraphRefused, UnsizedRefused, OthersSeen,
    CardTwice, CardBusy, CacheFull, VllmStartup, VllmNoBlocks, VllmContext, VllmFlags, VllmWeights,
    /// vLLM found more free memory after its profiling run than before it.
    Released,
    OllamaRequired, OllamaHost, Recovered, OutOfMemory,
    // The statement that failed.
    InPool,
    /// The function of ggml in which a call of the run time failed.
    InFunction,
    /// The function of a pool, legacy or of virtual memory: every allocation after the load may fail there.
    PoolFunction,
    VaReservation, CublasCreate, CublasInit, CublasFailed, ContextCall, PinCall, LockRefused,
    // Progress of the program.
    NewAttempt, LoadsWeights, LoadsEncoder, MakesContext, MakesCache, ReservesGraph, Serves, Works, SeesImage,
    FrameLoads, FrameCaches, FrameComputes, CpuInstead, PipelineCopies, Override,
    // Sizes and options.
    WeightsSize, CacheSize, ComputeSize, MicroBatch, CardUsed, CardTotals, CardSize, CardFree, ContextTokens,
    LongestContext, Layers,
    /// Sequences that llama.cpp serves at once.
    Slots,
    /// Sizes of the model that its compute buffer grows with.
    ModelWidth,
    ModelSize, Breakdown, OllamaCard, Projected,
    /// Main memory and swap that ollama finds free.
    OllamaSystem,
    /// Metal counts what is allocated, and what it recommends at most.
    WorkingSet,
    /// The kernel's own count of a card's memory.
    KernelVram,
    // The machine.
    NvMap, UnifiedBoard, NvmlQueryAssert, NvmlInitAssert, Xid, OffBus, Camera, KernelMemory, NodeKilled,
    WslRefused, KernelKill,
    /// The kernel names the process that it killed.
    ProcessKilled,
    Killed, Meminfo, Buddyinfo, Tegrastats, FreeCommand, SmiProcess,
    /// NVML finds no name behind a process number: the process has exited.
    Nameless,
    /// The report says that the card also drives a desktop.
    Desktop,
    Release, UnifiedSwitch, CardFault, IllegalAccess, DriverFault, DeviceLost, DriverMismatch, ProgramFault, WrongBuild,
    // From here on it only matters that the line is there.
    PortTaken,
    CacheQuantised,
    /// A draft model found no room.
    DraftRefused,
    /// llama.cpp chose no values that fit, because the command line has them.
    FitGaveUp,
    Expandable, NotStarted, MissingLibrary, PythonImport, UnknownFlag, RequestTooLong, WaitedLong, ModelFile,
    Assertion, Exception, Died, TorchSnapshot, SlowRecovery, KeptAlive,
    /// A frame or a node of ComfyUI's VAE.
    InVae,
    /// A frame of the attention of ComfyUI's sampler.
    InAttention,
    NotAFailure, TacticSkipped, DropCaches, Grows, Container, Windows, Wsl,
    /// ggml's pool of virtual memory is on.
    PagedPool,
    /// Flash attention is off, so a quantised V cache is refused.
    FlashOff,
    /// Flash attention is on, so it is no advice.
    FlashOn,
    // Options that the log has already.
    ExpertsOnHost, EncoderOnHost, GraphsOff, Eager, LargeAllocations,
    /// A call that keeps a graph of kernels in memory of the card.
    GraphMemory,
    /// The GPU shares the host's memory: an APU, a Mac, an integrated GPU.
    SharesHost,
    // The maker of the card, and the interface to it.
    OfAmd, OfIntel, OfApple, OfNvidia, OnVulkan, OnSycl,
    // The program that writes the log.
    OfOllama,
    /// A line in the form of ollama's log, which seldom says `ollama`.
    OllamaLine,
    OfMlx, OfVllm, OfSglang, OfComfyUi, OfTgi, OfJax, OfTensorFlow, OfWhisper, OfKobold, OfDiffusion, OfLlama,
    OfTorch,
}

impl Pattern {
    /// True if a further line of this kind adds nothing to the facts.
    pub(crate) fn only_presence_counts(self) -> bool {
        self >= Self::PortTaken || self == Self::SeesImage
    }
}
