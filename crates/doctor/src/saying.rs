//! The phrases by which engines, drivers, kernels and people say what happened, as one table, and the one search that finds them.
//!
//! DECISION: there is one way to read an engine's words. The last lines of a dead child and a log of a gigabyte go through the same
//! table; a row names what the phrase says ([`Saying`]) and, where it tells the scheduler something, the coarse [`Sign`]. Matched
//! without regard to case, anywhere in a line, so that prefixes (journald, docker, llama-swap, timestamps) need no stripping.
//! One search runs over the raw bytes; only lines with a hit are ever looked at again.
//!
//! Sources: `ggml-cuda.cu`, `ggml-alloc.c`, `ggml-vulkan.cpp`, `llama-model.cpp`, `llama-context.cpp`, `llama-kv-cache.cpp`,
//! `server.cpp`, `common/arg.cpp @ b10605` and their older forms; PyTorch's `CUDACachingAllocator.cpp`; vLLM's worker; ollama's
//! scheduler; NVRM and the kernel's `oom_kill.c`; libnvrm of L4T; glibc's loader; Python's argparse.

use std::sync::LazyLock;

mod blamed;
mod frameworks;
mod printed;
mod row;
mod search;
mod stages;
mod status;
mod system;
mod told;

use self::row::{end_of_word, says, sign, word};
use self::search::Search;

pub(super) use self::row::{Row, Tells};

/// What a phrase says. The groups follow the way of an allocation: refused, where, at which stage; then machine, then people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Saying {
    // An allocation that failed.
    CardRefused,
    RuntimeRefused,
    VulkanRefused,
    BufferRefused,
    WeightsRefused,
    CacheRefused,
    ComputeRefused,
    GraphRefused,
    OutputRefused,
    HostRefused,
    UnsizedRefused,
    PinnedRefused,
    TorchRefused,
    TorchWouldExceed,
    TorchAllocated,
    TorchRequested,
    TorchFree,
    TorchLimit,
    TorchParts,
    TensorRefused,
    Unworded,
    BudgetRefused,
    OthersSeen,
    CardTwice,
    CardBusy,
    CacheFull,
    ArenaFull,
    AllocationLimit,
    SharedMemoryFull,
    VllmStartup,
    VllmNoBlocks,
    VllmContext,
    VllmFlags,
    VllmWeights,
    OllamaRequired,
    OllamaHost,
    Recovered,
    OutOfMemory,
    // The statement that failed.
    InPool,
    VaReservation,
    CublasCreate,
    CublasInit,
    CublasFailed,
    ContextCall,
    PinCall,
    LockRefused,
    // How far it had come.
    NewAttempt,
    LoadsWeights,
    MakesContext,
    MakesCache,
    ReservesGraph,
    FrameLoads,
    FrameCaches,
    FrameComputes,
    Serves,
    Works,
    SeesImage,
    PipelineCopies,
    Override,
    WeightsSize,
    CacheSize,
    ComputeSize,
    CardSize,
    CardUsed,
    CardTotals,
    CardFree,
    MicroBatch,
    ContextTokens,
    ModelSize,
    Breakdown,
    OllamaCard,
    // The card, its driver, the kernel.
    NvMap,
    NvmlQueryAssert,
    NvmlInitAssert,
    Camera,
    Xid,
    OffBus,
    IllegalAccess,
    DriverFault,
    DriverMismatch,
    CardFault,
    WrongBuild,
    ProgramFault,
    KernelMemory,
    KernelKill,
    NodeKilled,
    WslRefused,
    Killed,
    Meminfo,
    Buddyinfo,
    Tegrastats,
    FreeCommand,
    SmiProcess,
    Nameless,
    Release,
    UnifiedBoard,
    UnifiedSwitch,
    // Not memory.
    PortTaken,
    NotStarted,
    MissingLibrary,
    UnknownFlag,
    RequestTooLong,
    WaitedLong,
    CpuInstead,
    BuiltForOther,
    Wonders,
    ModelFile,
    Assertion,
    Exception,
    // What people tell.
    Leaks,
    NotReleased,
    Grows,
    EachRound,
    GrowsEachRound,
    FailsAgain,
    KeptAlive,
    VisibleDevices,
    NotHeeded,
    StrayContext,
    CardsSetApart,
    DeviceChoice,
    ManagedMemory,
    PageFaults,
    Slow,
    TakesLong,
    PageCache,
    CacheRuledOut,
    Compaction,
    Slab,
    Pinned,
    Neighbour,
    Desktop,
    NobodyShown,
    TakenBefore,
    PreviousChild,
    Harmless,
    Meant,
    GoesOn,
    Fragmented,
    ModelTooBig,
    LongContext,
    PastKeys,
    GrowsWithDepth,
    CacheWord,
    BigBatch,
    Activations,
    HostMemory,
    Container,
    Windows,
    Wsl,
    Baseline,
    Declines,
    DriverGone,
    Died,
    TorchSnapshot,
    ModelToCard,
    Trains,
    LessDidNotHelp,
    CuredByContext,
    CuredByBatch,
    CuredByModel,
    CuredByPieces,
}

/// What programs print comes first.
static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    [
        printed::ROWS,
        stages::ROWS,
        frameworks::ROWS,
        status::ROWS,
        system::ROWS,
        told::ROWS,
        blamed::ROWS,
    ]
    .concat()
});

/// Finds what programs print and what people tell.
static ALL: LazyLock<Search> = LazyLock::new(|| Search::new(&ROWS));
/// Finds what programs print alone.
static PRINTED: LazyLock<Search> =
    LazyLock::new(|| Search::new(&ROWS[..ROWS.len() - told::ROWS.len() - blamed::ROWS.len()]));

/// How many rows there are.
pub(super) fn rows() -> usize {
    ROWS.len()
}

/// A row by its number, for readers that are tried alone.
#[cfg(test)]
pub(super) fn row(number: usize) -> &'static Row {
    &ROWS[number % ROWS.len()]
}

/// Whose words are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    All,
    /// What programs print, in a log too long to be a report.
    Printed,
}

/// A phrase in a block of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    pub(super) start: usize,
    pub(super) row: usize,
    pub(super) saying: Saying,
}

/// The first hit at or after `from`.
pub(super) fn next(words: Words, bytes: &[u8], from: usize) -> Option<Hit> {
    let search = match words {
        Words::All => &ALL,
        Words::Printed => &PRINTED,
    };
    let (start, row) = search.find(bytes, from)?;
    Some(Hit {
        start,
        row,
        saying: ROWS[row].saying,
    })
}

/// All rows whose phrase is in `line`, in the order of the table.
pub(super) fn rows_in(line: &str) -> Vec<&'static Row> {
    let found = ALL.all(line.as_bytes());
    found.into_iter().map(|index| &ROWS[index]).collect()
}
