//! Fake card of 8 GiB that all processes of a test share. The fake CUDA driver counts its memory, and the
//! fake NVML shows it.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;

use crate::built::built;

const GIB: u64 = 1 << 30;

pub(crate) struct Card {
    folder: TempDir,
}

impl Card {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let driver = built("libplimsoll_fake_cuda.so", "fake-cuda");
        for name in ["libcuda.so.1", "libcuda.so"] {
            symlink(&driver, folder.path().join(name)).expect("the folder is ours");
        }
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The variables of every process that has this card.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let (usage, folder) = (self.path("usage"), self.folder.path().display());
        let uuid = "GPU-00000008-0000-0000-0000-000000000000";
        let shown = json!([{ "uuid": uuid, "name": "Fake 8G", "total": 8 * GIB, "free": 8 * GIB, "pci": "00000000:01:00.0",
            "usage": usage }]);
        let path = |path: PathBuf| path.display().to_string();
        vec![
            ("LD_LIBRARY_PATH", folder.to_string()),
            ("PLIMSOLL_FAKE_CUDA", format!("total=8G context=256M shared={} uuids={uuid}", usage.display())),
            ("PLIMSOLL_NVML", path(built("libnvidia_ml.so", "fake-nvml"))),
            ("PLIMSOLL_FAKE_NVML_CARDS", shown.to_string()),
            ("PLIMSOLL_GUARD_LIBRARY", path(built("libplimsoll_guard.so", "plimsoll-guard"))),
        ]
    }
}
