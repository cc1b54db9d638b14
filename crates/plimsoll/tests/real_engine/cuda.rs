//! Fetches a real llama.cpp with a prebuilt CUDA or Vulkan backend, for tests on a machine without a card.
//! Nothing is compiled.
//!
//! The server is PyPI's xllamacpp of September 2026, the backends are npm's `@node-llama-cpp/linux-x64-cuda`
//! (llama.cpp 0.5.0, `libcudart.so.13`) and `-vulkan`. All have version 2 of the backend interface. They lie
//! below the target directory, fetched once.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The release of xllamacpp, and the build of llama.cpp in it.
const RELEASE: &str = "2026.9.11063";
pub(crate) const BUILD: u64 = 11_063;
const BACKENDS: &str = "@node-llama-cpp/linux-x64-";
const BACKENDS_RELEASE: &str = "3.22.1";
/// The server's command line, written for another release of the same interface.
const ADAPTER: &str = include_str!("../../../engine/src/program/xllamacpp_server.py");

/// An engine and what its loader needs to find the backend.
pub(crate) struct CudaEngine {
    pub(crate) program: PathBuf,
    pub(crate) backend: PathBuf,
    /// The folder in which the server's own ggml has the name that the backend needs.
    pub(crate) libraries: PathBuf,
}

impl CudaEngine {
    /// Lets a command's engine load a backend.
    pub(crate) fn prepare(&self, backend: &Path, command: &mut Command) {
        command.env("GGML_BACKEND_PATH", backend).env("LD_LIBRARY_PATH", &self.libraries);
    }
}

pub(crate) fn engine() -> &'static CudaEngine {
    static ENGINE: OnceLock<CudaEngine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let place = fetched(&format!("cuda-engine-{RELEASE}"), fetch);
        CudaEngine {
            program: place.join("llama-server"),
            backend: place.join("package/bins/linux-x64-cuda/libggml-cuda.so"),
            libraries: place.join("lib"),
        }
    })
}

/// The Vulkan backend for the same server.
pub(crate) fn vulkan_backend() -> PathBuf {
    let place = fetched(&format!("vulkan-backend-{BACKENDS_RELEASE}"), |place| {
        fs::create_dir_all(place).unwrap();
        unpack("vulkan", place);
    });
    place.join("package/bins/linux-x64-vulkan/libggml-vulkan.so")
}

/// A model's file in this folder, written by the first test that asks for it.
pub(crate) fn specimen(name: &str, folder: &Path) -> PathBuf {
    let path = folder.join(format!("{name}.gguf"));
    if !path.exists() {
        plimsoll_specimens::write(name, &path, &plimsoll_specimens::Changes::default()).unwrap();
    }
    path
}

/// A folder below the target directory, made once.
pub(crate) fn fetched(name: &str, fetch: impl FnOnce(&Path)) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let place = target.join(name);
    let lock = fs::File::create(target.join("cuda-engine.lock")).unwrap();
    // Tests run in processes of their own, and one of them fetches.
    lock.lock().unwrap();
    if !place.exists() {
        let partial = target.join("cuda-engine.partial");
        let _ = fs::remove_dir_all(&partial);
        fetch(&partial);
        fs::rename(&partial, &place).unwrap();
    }
    place
}

/// A backend's package of npm.
fn unpack(backend: &str, place: &Path) {
    let package = format!("{BACKENDS}{backend}@{BACKENDS_RELEASE}");
    run(Command::new("npm").args(["pack", "--silent", &package]).current_dir(place));
    run(Command::new("sh")
        .args(["-c", "tar -xzf node-llama-cpp-*.tgz && rm node-llama-cpp-*.tgz"])
        .current_dir(place));
}

fn fetch(place: &Path) {
    fs::create_dir_all(place.join("lib")).unwrap();
    let python = place.join("python");
    run(Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
        .arg(&python)
        .arg(format!("xllamacpp=={RELEASE}")));
    symlink("../python/xllamacpp/xllamacpp.abi3.so", place.join("lib/libggml-base.so")).unwrap();
    unpack("cuda", place);
    let adapter = ADAPTER.replace("2026.10.11549", RELEASE).replace(
        "import ctypes\nimport os\nimport signal\n",
        "import ctypes\nimport os\nimport signal\nimport sys as _sys\n\n_sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), \"python\"))\n",
    );
    let program = place.join("llama-server");
    fs::write(&program, format!("#!/usr/bin/env python3\n{adapter}")).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
}

pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let stated = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stated}");
}
