//! Names the environment variables that Plimsoll's processes, its libraries and the engines read and set.

/// CUDA: the cards that a process may see, in its order. Plimsoll always writes UUIDs.
pub const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// CUDA: the order in which cards are numbered. Plimsoll always writes `PCI_BUS_ID`.
pub const CUDA_DEVICE_ORDER: &str = "CUDA_DEVICE_ORDER";
/// llama-server: set by a router in its children; switches the control channel on (see [`crate::control`]).
pub const LLAMA_SERVER_ROUTER_PORT: &str = "LLAMA_SERVER_ROUTER_PORT";
/// llama-server: the API key that it requires of its clients.
pub const LLAMA_API_KEY: &str = "LLAMA_API_KEY";
/// Plimsoll: another NVML library than the driver's, for tests; empty for none.
pub const NVML: &str = "PLIMSOLL_NVML";
/// Guard: its options, as [`crate::options::GuardOptions`] reads them. Without the variable guard does
/// nothing at all.
pub const GUARD: &str = "PLIMSOLL_GUARD";
/// Guard: the folder in which each process writes its page, as `PID.page`, and which holds their common
/// ledger. Without it the figures of a process are not published, and it keeps to its budget alone.
pub const GUARD_PAGES: &str = "PLIMSOLL_GUARD_PAGES";
/// Guard: the trace's path; each process appends `.PID` to it.
pub const GUARD_TRACE: &str = "PLIMSOLL_GUARD_TRACE";
/// Plimsoll: path of a `libplimsoll_guard.so` other than the one next to the program.
pub const GUARD_LIBRARY: &str = "PLIMSOLL_GUARD_LIBRARY";
/// Vulkan's loader: layers that are on in every program, first the one nearest to it, separated by `:`.
pub const VK_INSTANCE_LAYERS: &str = "VK_INSTANCE_LAYERS";
/// Vulkan's loader: the folders of layers' manifests, instead of its own and of [`VK_ADD_LAYER_PATH`].
pub const VK_LAYER_PATH: &str = "VK_LAYER_PATH";
/// Vulkan's loader since 1.3.234: further folders of manifests.
pub const VK_ADD_LAYER_PATH: &str = "VK_ADD_LAYER_PATH";
/// Name of guard among Vulkan's layers.
pub const GUARD_LAYER: &str = "VK_LAYER_PLIMSOLL_guard";
/// ggml: an out-of-tree backend that an engine loads at its start.
pub const GGML_BACKEND_PATH: &str = "GGML_BACKEND_PATH";
/// Phantom: its cards, separated by `;`, each
/// `total=BYTES,free=BYTES,cc=MAJOR.MINOR[,sms=N][,integrated=1][,vmm=0][,name=TEXT]`, with the limits of
/// Vulkan (`vendor`, `range` and more). Without it there is no card.
pub const PHANTOM_CARDS: &str = "PLIMSOLL_PHANTOM_CARDS";
/// Phantom: the file to which it appends what was asked of the cards, as JSON lines.
pub const PHANTOM_REPORT: &str = "PLIMSOLL_PHANTOM_REPORT";
/// Plimsoll: another `libplimsoll_phantom.so` than the one beside the program.
pub const PHANTOM_LIBRARY: &str = "PLIMSOLL_PHANTOM_LIBRARY";

/// Names that ggml's backends were linked with (CUDA 11 to 13, ROCm 6 and 7, Vulkan).
pub const STAND_INS: [&str; 17] = [
    "libvulkan.so.1",
    "libamdhip64.so.6",
    "libamdhip64.so.7",
    "libhipblas.so.2",
    "libhipblas.so.3",
    "librocblas.so.4",
    "librocblas.so.5",
    "libcuda.so.1",
    "libcudart.so.11.0",
    "libcudart.so.12",
    "libcudart.so.13",
    "libcublas.so.11",
    "libcublas.so.12",
    "libcublas.so.13",
    "libcublasLt.so.11",
    "libcublasLt.so.12",
    "libcublasLt.so.13",
];
