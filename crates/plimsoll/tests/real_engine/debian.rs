//! Fetches llama.cpp of Debian sid with its HIP or Vulkan backend. Packages are unpacked below the target
//! directory, not installed.
//!
//! apt gets a separate state folder, so that this machine's own package lists do not mix two releases. The
//! engine runs with sid's own loader and C library. ggml searches for backends in the program's folder, which
//! here is the loader's folder.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cuda::{fetched, run};

const SOURCE: &str =
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian sid main\n";
/// Packages of any backend.
const PACKAGES: [&str; 8] = [
    "llama.cpp-tools",
    "libllama0",
    "libggml0",
    "libc6",
    "libgcc-s1",
    "libgomp1",
    "libssl3t64",
    "libstdc++6",
];
const LIBRARIES: &str = "root/usr/lib/x86_64-linux-gnu";

/// A backend of ggml, and the names under which it needs its runtime.
pub(crate) struct Backend {
    name: &'static str,
    package: &'static str,
    runtime: &'static [&'static str],
}

/// The package holds 1.3 GB of kernels for ten kinds of card.
pub(crate) const HIP: Backend = Backend {
    name: "hip",
    package: "libggml0-backend-hip",
    runtime: &["libamdhip64.so.6", "libhipblas.so.2", "librocblas.so.4"],
};
pub(crate) const VULKAN: Backend =
    Backend { name: "vulkan", package: "libggml0-backend-vulkan", runtime: &["libvulkan.so.1"] };

impl Backend {
    /// The llama-server, fetched once. Its `LD_LIBRARY_PATH` is looked through before sid's folders.
    pub(crate) fn server(&self) -> PathBuf {
        fetched(&format!("{}-engine-sid", self.name), |place| fetch(self, place)).join("llama-server")
    }

    /// A folder with this library under the names of the runtime.
    pub(crate) fn runtime(&self, folder: &Path, library: &Path) -> PathBuf {
        for name in self.runtime {
            symlink(library, folder.join(name)).unwrap();
        }
        folder.to_owned()
    }
}

fn fetch(backend: &Backend, place: &Path) {
    for part in ["apt/lists/partial", "apt/archives/partial"] {
        fs::create_dir_all(place.join(part)).unwrap();
    }
    let apt = place.join("apt");
    fs::write(apt.join("sources.list"), SOURCE).unwrap();
    let path = |part: &str| apt.join(part).display().to_string();
    let settings = [
        format!("Dir::State={}", path("")),
        format!("Dir::State::Lists={}", path("lists")),
        format!("Dir::Cache={}", path("")),
        format!("Dir::Etc::sourcelist={}", path("sources.list")),
        "Dir::Etc::sourceparts=-".to_owned(),
        "Dir::Etc::preferencesparts=-".to_owned(),
        "Dir::State::status=/dev/null".to_owned(),
        "APT::Architecture=amd64".to_owned(),
        "APT::Sandbox::User=root".to_owned(),
        "Acquire::Languages=none".to_owned(),
    ];
    let get = |words: &[&str]| {
        let options = settings.iter().flat_map(|setting| ["-o", setting]);
        run(Command::new("apt-get").args(options).args(words).current_dir(&apt));
    };
    get(&["update"]);
    get(&[&["download", backend.package], &PACKAGES[..]].concat());
    for entry in fs::read_dir(&apt).unwrap().flatten() {
        if entry.path().extension().is_some_and(|kind| kind == "deb") {
            run(Command::new("dpkg-deb").arg("-x").arg(entry.path()).arg(place.join("root")));
        }
    }
    fs::remove_dir_all(&apt).unwrap();
    let libraries = place.join(LIBRARIES);
    fs::copy(libraries.join("ld-linux-x86-64.so.2"), place.join("ld-linux-x86-64.so.2")).unwrap();
    for library in ["libggml-cpu-x64.so", &format!("libggml-{}.so", backend.name)] {
        let folders = fs::read_dir(libraries.join("ggml")).unwrap().flatten();
        let found = folders.map(|folder| folder.path().join(library)).find(|path| path.exists()).unwrap();
        fs::rename(found, place.join(library)).unwrap();
    }
    let script = format!(
        "#!/bin/sh\nhere=$(dirname \"$(readlink -f \"$0\")\")\nlibraries=$here/{LIBRARIES}\n\
         exec \"$here/ld-linux-x86-64.so.2\" --library-path \"$LD_LIBRARY_PATH:$libraries:$libraries/llama\" \
         \"$here/root/usr/bin/llama-server\" \"$@\"\n"
    );
    fs::write(place.join("llama-server"), script).unwrap();
    fs::set_permissions(place.join("llama-server"), Permissions::from_mode(0o755)).unwrap();
}
