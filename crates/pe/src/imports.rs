//! Functions that an image imports by name, at its start and when they are first called.

use crate::{Image, number32, number64, wide};

/// A function of another library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Import<'a> {
    /// File name of the library, as the linker wrote it.
    pub library: &'a str,
    pub name: &'a str,
    /// Address of the pointer that the loader fills in.
    pub slot: u32,
    /// True if the library is loaded by the first call of one of its functions.
    pub is_delayed: bool,
}

/// Number of a table in the optional header, size of its entries, and offsets of name, names and slots.
#[derive(Clone, Copy)]
struct Table {
    directory: usize,
    entry: u32,
    library: usize,
    names: usize,
    slots: usize,
    is_delayed: bool,
}

const AT_START: Table =
    Table { directory: 1, entry: 20, library: 12, names: 0, slots: 16, is_delayed: false };
const DELAYED: Table = Table { directory: 13, entry: 32, library: 4, names: 16, slots: 12, is_delayed: true };

/// Mark of an import by number.
const BY_NUMBER: u64 = 1 << 63;
/// Bounds of all imports, for a damaged file: real ones have some hundred functions of some dozen libraries.
const MOST_LIBRARIES: usize = 4096;
const MOST_FUNCTIONS: usize = 1 << 16;

impl<'a> Image<'a> {
    /// The functions that are imported by name.
    pub fn imports(&self) -> Vec<Import<'a>> {
        let mut imports = Vec::new();
        for table in [AT_START, DELAYED] {
            let start = self.directory(table.directory);
            let entries = core::iter::successors(start, |at| at.checked_add(table.entry));
            for entry in entries.take(MOST_LIBRARIES) {
                if self.of_library(table, entry, &mut imports).is_none() {
                    break;
                }
            }
        }
        imports
    }

    /// Adds the functions of one library; `None` behind the last.
    fn of_library(&self, table: Table, entry: u32, imports: &mut Vec<Import<'a>>) -> Option<()> {
        let bytes = self.from(entry)?;
        let field = |offset| number32(bytes, offset).filter(|address| *address != 0);
        let library = self.text(field(table.library)?)?;
        let slots = field(table.slots)?;
        // Some linkers write the names only into the slots, which the loader has overwritten in memory.
        let names = self.from(field(table.names).unwrap_or(slots))?;
        for index in (0..).take(MOST_FUNCTIONS.saturating_sub(imports.len())) {
            let Some(name) = number64(names, wide(index) * 8).filter(|name| *name != 0) else { break };
            let slot = index.checked_mul(8).and_then(|offset| slots.checked_add(offset));
            // Behind a number of two bytes that is a hint for the loader.
            let name = u32::try_from(name & !BY_NUMBER).ok().filter(|_| name & BY_NUMBER == 0);
            let name = name.and_then(|name| self.text(name.checked_add(2)?));
            if let (Some(name), Some(slot)) = (name, slot) {
                imports.push(Import { library, name, slot, is_delayed: table.is_delayed });
            }
        }
        Some(())
    }
}
