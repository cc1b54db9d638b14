//! Makes a private folder on Windows, among the user's temporary files.

use std::io;
use std::path::Path;

use tempfile::TempDir;

/// Private folder of this process. Dropping it removes it.
#[derive(Debug)]
pub struct OwnedFolder(TempDir);

impl OwnedFolder {
    /// Creates a folder whose name starts with `prefix`.
    pub fn create(prefix: &str) -> io::Result<Self> {
        tempfile::Builder::new().prefix(prefix).tempdir().map(Self)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}
