//! Packs an engine's source for `cargo xtask gpu bundle`, without the parts that a CUDA build of its server
//! does not need.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::engine;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("no source of {build}: {error}")]
    Fetch { build: String, error: engine::BuildError },
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error("tar of {} failed; its output is above", .0.display())]
    Tar(PathBuf),
}

/// Left out of the archive: other backends, the web page, models, documents, tests. Each is a folder below
/// `llama.cpp`.
const LEFT_OUT: &[&str] = &[
    ".devops",
    ".github",
    "benches",
    "ci",
    "conversion",
    "docs",
    "examples",
    "ggml/src/ggml-cann",
    "ggml/src/ggml-et",
    "ggml/src/ggml-hexagon",
    "ggml/src/ggml-metal",
    "ggml/src/ggml-opencl",
    "ggml/src/ggml-openvino",
    "ggml/src/ggml-sycl",
    "ggml/src/ggml-virtgpu",
    "ggml/src/ggml-vulkan",
    "ggml/src/ggml-webgpu",
    "ggml/src/ggml-zdnn",
    "ggml/src/ggml-zendnn",
    "gguf-py",
    "grammars",
    "media",
    "models",
    "pocs",
    "requirements",
    "skills",
    "tests",
    "tools/mtmd/legacy-models",
    "tools/mtmd/tests",
    "tools/server/bench",
    "tools/server/public",
    "tools/server/tests",
    "tools/server/webui",
    "tools/ui/src",
    "tools/ui/static",
    "tools/ui/tests",
];

/// Writes `FOLDER/BUILD.tar.xz`, in which the tree is called `llama.cpp`.
pub(crate) fn pack(build: &str, folder: &Path) -> Result<(), SourceError> {
    let tree =
        engine::source_of(build).map_err(|error| SourceError::Fetch { build: build.to_owned(), error })?;
    fs::create_dir_all(folder).map_err(|error| SourceError::Write { path: folder.to_owned(), error })?;
    let archive = folder.join(format!("{build}.tar.xz"));
    let done = Command::new("tar")
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-C"])
        .arg(tree.parent().unwrap_or(Path::new("/")))
        .args(LEFT_OUT.iter().map(|name| format!("--exclude=llama.cpp/{name}")))
        .args(["--exclude=*.gguf", "--exclude=*.png", "--exclude=*.jpg", "-cJf"])
        .arg(&archive)
        .arg("llama.cpp")
        .stdout(io::stderr())
        .status();
    match done {
        Ok(status) if status.success() => Ok(()),
        _ => Err(SourceError::Tar(archive)),
    }
}
