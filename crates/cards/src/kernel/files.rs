//! Interface to the machine whose cards are read: its files, its processes' descriptors, and answers of
//! Intel's drivers.

use plimsoll_host::ProcTree;

/// Driver of an Intel card; each has an answer of its own to the question about memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntelDriver {
    Xe,
    I915,
}

/// Files of a machine, and the questions that only a live one answers.
pub(crate) trait CardFiles: ProcTree {
    fn is_live(&self) -> bool;

    /// Names of the descriptors of a process that may be open on a GPU.
    fn descriptors(&self, pid: u32) -> Vec<String>;

    /// The driver's answer about memory, by the minor number of the card's render node.
    fn memory_regions(&self, minor: u32, driver: IntelDriver) -> Option<Vec<u8>>;

    /// A file of one value, without the white space and NULs around it; `None` where it is empty.
    fn value(&self, path: &str) -> Option<String> {
        let bytes = self.read(path).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        // Copies of sysfs files may be padded to a page.
        let value = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!value.is_empty()).then(|| value.to_owned())
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.value(path)?.parse().ok()
    }

    /// A file of lines, each `key value` or `key=value`.
    fn text(&self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.read(path).ok()?).into_owned())
    }
}
