//! Chooses how guard comes into a program: as a backend that ggml loads, or by injection.

use std::io::Read;
use std::path::Path;

use plimsoll_pe::{Image, Layout};
use plimsoll_wire::env::GGML_BACKEND_PATH;

/// The most of a library that is read: its imports stand before the code for cards.
const MOST: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// ggml reads `GGML_BACKEND_PATH` and loads guard as one of its backends.
    Backend,
    /// A thread in the program loads guard before the program runs.
    Injected,
}

// DECISION: a thread in another program alarms antivirus programs, so ggml loads guard where that is enough.
// ggml loads it after its own backends. Then a runtime within a backend has found the driver already, and
// only one that is a library of its own is met in the import table.
/// The way for a program, by the libraries in its folder.
pub(super) fn of(program: &Path) -> Way {
    let reads_path = |bytes: &[u8]| {
        bytes.windows(GGML_BACKEND_PATH.len()).any(|window| window == GGML_BACKEND_PATH.as_bytes())
    };
    let has_runtime = |bytes: &[u8]| {
        let image = Image::read(bytes, Layout::File);
        let imports = image.map(|image| image.imports()).unwrap_or_default();
        imports.iter().any(|import| import.library.to_ascii_lowercase().starts_with("cudart64_"))
    };
    let has = |library: &str, fits: &dyn Fn(&[u8]) -> bool| {
        begin(&program.with_file_name(library)).is_some_and(|bytes| fits(&bytes))
    };
    // The user's own backend stays.
    let is_free = std::env::var_os(GGML_BACKEND_PATH).is_none();
    if is_free && has("ggml.dll", &reads_path) && has("ggml-cuda.dll", &has_runtime) {
        Way::Backend
    } else {
        Way::Injected
    }
}

fn begin(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    plimsoll_file::open(path).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
